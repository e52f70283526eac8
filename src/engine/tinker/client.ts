import type { z } from 'zod'
import { type Clock, waits } from '../../core/index.ts'
import { systemClock } from './clock.ts'
import { type Credentials, exchangedKey, plainKey } from './credentials.ts'
import { isFailure, TinkerError } from './failure.ts'
import { type FutureCall, retrieve } from './future.ts'
import { type StartHeartbeat, threadHeartbeat } from './heartbeat.ts'
import { type Journal, memoryJournal } from './journal.ts'
import type { Reply } from './reading.ts'
import {
  authToken,
  type ClientConfig,
  capabilitiesAnswer,
  checkpointsAnswer,
  clientConfig,
  sessionAnswer,
  submitted,
  weightsInfo,
} from './responses.ts'
import { TinkerSession } from './session.ts'
import { CEILINGS, type Ceilings, type Fetch, Transport, type WireRequest } from './transport.ts'

export const SDK_VERSION = '0.25.0'

/** What is known of a server beyond the protocol; probes find it out (`probeServer`). */
export interface ServerTraits {
  /** How losses travel. `auto` starts with JSON and changes on the first 415. */
  readonly wire: 'auto' | 'json' | 'protobuf'
  /**
   * Whether it recognises a training request that it has seen (same model, sequence number and body). False, the default,
   * is the safe belief: what may have been executed is never sent again, the call ends as `ambiguous`.
   */
  readonly deduplicates: boolean
}

export interface ClientOptions {
  /** Without `/api/v1`. */
  readonly baseUrl: string
  readonly apiKey?: string
  readonly traits?: Partial<ServerTraits>
  /** Where sequence numbers and open models are kept; default in memory. */
  readonly journal?: Journal
  readonly fetch?: Fetch
  readonly clock?: Clock
  /** Uniform in [0,1): the jitter of back-off. */
  readonly random?: () => number
  readonly ceilings?: Partial<Ceilings>
  readonly heartbeat?: StartHeartbeat
  /** Milliseconds between heartbeats. */
  readonly heartbeatEvery?: number
  /** Samples in flight at once. */
  readonly concurrency?: number
  /** Called when a server says why it lets a request wait. */
  readonly onQueue?: (what: string, why: string) => void
}

export interface SupportedModel {
  readonly name: string
  readonly context: number | undefined
}

const NEVER = new AbortController().signal

/**
 * A client of any server of the Tinker protocol. Nothing is sent before the first call.
 * @example
 * const client = new TinkerClient({ baseUrl: 'http://127.0.0.1:8000' })
 * const [model] = await client.models()
 * await using session = await client.createSession()
 * const trained = await session.createModel({ baseModel: model.name, lora: { rank: 8 } })
 */
export class TinkerClient {
  readonly transport: Transport
  readonly journal: Journal
  traits: ServerTraits
  #credentials: Credentials
  #config: Promise<ClientConfig> | undefined
  readonly #newKey = new Set<(key: string) => void>()

  constructor(readonly options: ClientOptions) {
    this.traits = { wire: 'auto', deduplicates: false, ...options.traits }
    this.journal = options.journal ?? memoryJournal()
    this.#credentials = plainKey(options.apiKey)
    this.transport = new Transport({
      baseUrl: options.baseUrl.replace(/\/+$/, '').replace(/\/api\/v1$/, ''),
      key: (signal) => this.#credentials.current(signal),
      fetch: options.fetch ?? ((url, init) => fetch(url, init)),
      clock: options.clock ?? systemClock,
      ceilings: { ...CEILINGS, ...options.ceilings },
      random: options.random ?? Math.random,
    })
  }

  async health(signal: AbortSignal = NEVER): Promise<boolean> {
    const r = await this.transport.exchange(
      { what: 'healthz', method: 'GET', path: '/healthz', repeatable: true },
      this.transport.o.ceilings.heartbeat,
      {},
      signal,
    )
    return r.status === 200
  }

  /** The server's own settings; all optional, empty where it has none. Exchanges the key where the server wants that. */
  config(signal: AbortSignal = NEVER): Promise<ClientConfig> {
    this.#config ??= this.#readConfig(signal).catch((e: unknown) => {
      this.#config = undefined
      throw e
    })
    return this.#config
  }

  async #readConfig(signal: AbortSignal): Promise<ClientConfig> {
    let config: ClientConfig
    try {
      config = await this.post('client/config', '/client/config', { sdk_version: SDK_VERSION }, clientConfig, signal)
    } catch (e) {
      if (isFailure(e, 'not-found')) return {}
      throw e
    }
    if (config.pjwt_auth_enabled) {
      const key = this.options.apiKey
      const asking = new Transport({ ...this.transport.o, key: async () => key })
      this.#credentials = exchangedKey(
        async (s) => {
          const r = await asking.send({ what: 'auth/token', method: 'POST', path: '/auth/token', repeatable: true }, s)
          return this.parse('auth/token', authToken, r.json).jwt
        },
        () => Date.now(),
        (jwt) => {
          for (const f of this.#newKey) f(jwt)
        },
      )
    }
    return config
  }

  async models(signal: AbortSignal = NEVER): Promise<SupportedModel[]> {
    await this.config(signal)
    const r = await this.get('get_server_capabilities', '/get_server_capabilities', capabilitiesAnswer, signal)
    return r.supported_models.map((m) => ({ name: m.model_name, context: m.max_context_length ?? undefined }))
  }

  /** Opens a session and keeps it alive until it is disposed. */
  async createSession(
    o: { readonly tags?: readonly string[]; readonly metadata?: Readonly<Record<string, string>> } = {},
    signal: AbortSignal = NEVER,
  ): Promise<TinkerSession> {
    await this.config(signal)
    const body = {
      tags: o.tags ?? [],
      user_metadata: o.metadata ?? null,
      sdk_version: SDK_VERSION,
      type: 'create_session',
    }
    const r = await this.post('create_session', '/create_session', body, sessionAnswer, signal)
    if (r.error_message)
      throw new TinkerError('create_session', { kind: 'failed', category: 'user', detail: r.error_message })
    const session: TinkerSession = new TinkerSession(
      this,
      r.session_id,
      [r.info_message, r.warning_message].filter((m): m is string => !!m),
    )
    const start = this.options.heartbeat ?? threadHeartbeat
    const heartbeat = start({
      url: `${this.transport.o.baseUrl}/api/v1/session_heartbeat`,
      key: await this.#credentials.current(signal),
      sessionId: r.session_id,
      everyMs: this.options.heartbeatEvery ?? 10_000,
      ceilingMs: this.transport.o.ceilings.heartbeat,
      onLost: (detail) => session.lose(detail),
    })
    const onKey = (key: string): void => heartbeat.key(key)
    this.#newKey.add(onKey)
    session.onClose(async () => {
      this.#newKey.delete(onKey)
      await heartbeat.stop()
    })
    return session
  }

  /** Checkpoints of a model, whoever's it was. */
  async checkpoints(modelId: string, signal: AbortSignal = NEVER): Promise<{ path: string; type: string }[]> {
    const r = await this.get(
      `checkpoints of ${modelId}`,
      `/training_runs/${encodeURIComponent(modelId)}/checkpoints`,
      checkpointsAnswer,
      signal,
    )
    return r.checkpoints.map((c) => ({ path: c.tinker_path, type: c.checkpoint_type ?? '' }))
  }

  /** Whether the server still has a checkpoint. */
  async hasWeights(path: string, signal: AbortSignal = NEVER): Promise<boolean> {
    try {
      await this.post(`weights_info of ${path}`, '/weights_info', { tinker_path: path }, weightsInfo, signal)
      return true
    } catch (e) {
      if (isFailure(e, 'not-found', 'invalid')) return false
      throw e
    }
  }

  /** Removes `tinker://model/weights/name` or `.../sampler_weights/name`; true where it was there. */
  async deleteCheckpoint(path: string, signal: AbortSignal = NEVER): Promise<boolean> {
    const m = /^tinker:\/\/([^/]+)\/(.+)$/.exec(path)
    if (!m) return false
    try {
      await this.transport.send(
        {
          what: `delete ${path}`,
          method: 'DELETE',
          path: `/training_runs/${encodeURIComponent(m[1]!)}/checkpoints/${m[2]}`,
          repeatable: true,
        },
        signal,
      )
      return true
    } catch (e) {
      if (isFailure(e, 'not-found', 'invalid')) return false
      throw e
    }
  }

  /** Bytes of a sampler checkpoint's archive (tar.gz of the adapter). Waits while the server packs it. */
  async archive(modelId: string, name: string, signal: AbortSignal = NEVER): Promise<Uint8Array> {
    const what = `archive of ${modelId}/${name}`
    const path = `/training_runs/${encodeURIComponent(modelId)}/checkpoints/${encodeURIComponent(name)}/archive`
    const ceiling = this.transport.o.ceilings.submission
    const end = this.transport.clock.now() + ceiling
    for (;;) {
      const r = await this.transport.exchange({ what, method: 'GET', path, repeatable: true }, ceiling, {}, signal)
      if (r.status === 503 && this.transport.clock.now() < end) {
        await this.transport.clock.sleep(30_000, signal)
        continue
      }
      const target =
        r.status >= 300 && r.status < 400
          ? r.headers.get('location')
          : r.status === 200 && r.contentType.startsWith('application/json')
            ? (JSON.parse(Buffer.from(r.body).toString('utf8')) as { url?: string }).url
            : undefined
      if (r.status === 200 && target === undefined) return r.body
      if (!target) throw new TinkerError(what, { kind: 'unavailable', status: r.status, detail: `HTTP ${r.status}` })
      const from = `${this.transport.o.baseUrl}/api/v1${path}`
      const url = new URL(target, from)
      // The key goes to the server alone, never to where it points.
      const own = url.origin === new URL(from).origin
      const key = own ? await this.#credentials.current(signal) : undefined
      const answer = await this.transport.o.fetch(url.href, {
        headers: key === undefined ? {} : { 'X-API-Key': key },
        signal: AbortSignal.any([signal, AbortSignal.timeout(ceiling)]),
      })
      if (!answer.ok)
        throw new TinkerError(what, { kind: 'unavailable', status: answer.status, detail: `HTTP ${answer.status}` })
      return new Uint8Array(await answer.arrayBuffer())
    }
  }

  // ---- for the other parts of this client ----

  parse<T>(what: string, schema: z.ZodType<T>, json: unknown): T {
    const r = schema.safeParse(json)
    if (r.success) return r.data
    const issue = r.error.issues[0]!
    throw new TinkerError(
      what,
      { kind: 'unreadable', detail: `an answer without ${issue.path.join('.') || 'its fields'} (${issue.message})` },
      { cause: r.error },
    )
  }

  async get<T>(what: string, path: string, schema: z.ZodType<T>, signal: AbortSignal): Promise<T> {
    const r = await this.transport.send({ what, method: 'GET', path, repeatable: true }, signal)
    return this.parse(what, schema, r.json)
  }

  /** A call that is answered at once and that doubling does not hurt. */
  async post<T>(what: string, path: string, body: object, schema: z.ZodType<T>, signal: AbortSignal): Promise<T> {
    const r = await this.transport.send(
      { what, method: 'POST', path, body: Buffer.from(JSON.stringify(body)), repeatable: true },
      signal,
    )
    return this.parse(what, schema, r.json)
  }

  /** Submits a request and gives its future's id, once the server has taken it. */
  async submit(r: WireRequest, signal: AbortSignal): Promise<{ id: string; modelId: string | undefined }> {
    const answer = await this.transport.send(r, signal)
    const s = this.parse(r.what, submitted, answer.json)
    return { id: s.request_id, modelId: s.model_id ?? undefined }
  }

  /** Waits for a submitted request's result. */
  retrieve<T>(
    id: string,
    r: WireRequest,
    type: FutureCall<T>['type'],
    read: (reply: Reply, json: unknown) => T,
    signal: AbortSignal,
  ): Promise<T> {
    const onQueue = this.options.onQueue
    const call: FutureCall<T> = {
      what: r.what,
      type,
      repeatable: r.repeatable,
      submit: async () => (await this.submit(r, signal)).id,
      read,
      ...(onQueue ? { onQueue: (why) => onQueue(r.what, why) } : {}),
    }
    return waits.during(`server: ${r.what}`, this.transport.o.ceilings.future, () =>
      retrieve(this.transport, id, call, signal),
    )
  }
}
