import { gzipSync } from 'node:zlib'
import type { Clock } from '../../../core/index.ts'
import type { Fetch } from '../transport.ts'
import type { ForwardRequest } from '../wire/messages.ts'
import { TOY_VOCAB, ToyModel, type ToyState } from './toy-model.ts'
import { decodeForward, encodeForwardOutput, encodeSampleOutput } from './wire-server.ts'

// biome-ignore lint/suspicious/noExplicitAny: a stub reads what its own client sends
type Body = Record<string, any>

/** What happens to one exchange on its way. */
export type Fault =
  /** The server never sees it. */
  | { readonly kind: 'lose-request' }
  /** It is executed; the answer is lost. */
  | { readonly kind: 'lose-reply' }
  /** The server sees it twice; the client reads the second answer. */
  | { readonly kind: 'duplicate' }
  /** A second copy arrives when other requests have overtaken it. */
  | { readonly kind: 'late-copy'; readonly ms: number }
  | { readonly kind: 'delay'; readonly ms: number }
  /** The answer loses its second half. */
  | { readonly kind: 'corrupt' }
  /** Headers, then nothing. */
  | { readonly kind: 'stall' }
  | {
      readonly kind: 'answer'
      readonly status: number
      readonly body?: string
      readonly headers?: Readonly<Record<string, string>>
    }

export interface StubOptions {
  readonly wire?: 'json' | 'protobuf'
  readonly deduplicates?: boolean
  readonly reduction?: 'sum' | 'sequence-mean'
  /** SkyRL's JAX back end: sampling loads the saved file into the slot that is being trained. */
  readonly isolation?: 'snapshot' | 'none'
  readonly promptLogprobs?: 'n' | 'n-1'
  /** How a failed future is told. */
  readonly failures?: 'skyrl' | 'hosted' | 'tuft' | 'open-rl' | 'verl'
  /** Losses that it refuses. */
  readonly refuses?: readonly string[]
  readonly gradNorm?: boolean
  readonly maxModels?: number
  readonly context?: number
  readonly vocab?: number
  /** Full weights, of which there is one set. */
  readonly full?: boolean
  /** Long poll before "not ready", in milliseconds of `clock`. */
  readonly longPollMs?: number
  /** Time that work takes. */
  readonly workMs?: number
  readonly sampler?: 'good' | 'zeros' | 'off'
  readonly clock: Clock
  readonly fault?: (request: { path: string; n: number; body: string }) => Fault | undefined
}

interface Slot {
  readonly id: string
  readonly session: string
  readonly model: ToyModel
  /** Sampling session whose file is in the slot. */
  loaded: string | undefined
  requests: number
}
interface Future {
  readonly ready: Promise<void>
  done: boolean
  reply: (() => Response) | undefined
  taken: boolean
}

export const TOY_BASE = 'toy/base'

/** A Tinker server in this process, for tests: a toy model behind the real protocol, with faults on the way. */
export class StubServer {
  readonly seen: { path: string; body: string; headers: Headers }[] = []
  /** Optimiser steps that were really executed, lr 0 left out. */
  optimSteps = 0
  forwardBackwards = 0
  readonly sessions = new Set<string>()
  readonly models = new Map<string, Slot>()
  readonly checkpoints = new Map<string, ToyState>()
  private readonly base: ToyModel
  private readonly samplers = new Map<string, { model: string | undefined; state: ToyState }>()
  private readonly futures = new Map<string, Future>()
  private readonly known = new Map<string, { body: string; id: string }>()
  private leftover: ToyModel | undefined
  private ids = 0
  private exchanges = 0
  private work: Promise<unknown> = Promise.resolve()

  constructor(readonly o: StubOptions) {
    this.base = new ToyModel(this.reduction, this.o.vocab)
  }
  private get reduction(): 'sum' | 'sequence-mean' {
    return this.o.reduction ?? 'sum'
  }

  /** Forgets everything that was not on disk. */
  restart(): void {
    this.sessions.clear()
    this.models.clear()
    this.samplers.clear()
    this.futures.clear()
    this.known.clear()
  }
  /** What a server does 300 s after the last heartbeat. */
  expire(): void {
    this.models.clear()
    this.sessions.clear()
  }

  readonly fetch: Fetch = async (url, init) => {
    const path = new URL(url).pathname.replace('/api/v1', '')
    const bytes = init.body ? Buffer.from(init.body as Uint8Array) : Buffer.alloc(0)
    const headers = new Headers(init.headers)
    const n = this.exchanges++
    const fault = this.o.fault?.({ path, n, body: bytes.toString('latin1') })
    const run = (): Promise<Response> => {
      this.seen.push({ path, body: bytes.toString('latin1'), headers })
      return this.handle(init.method ?? 'GET', path, bytes, headers, url)
    }
    const broken = (): never => {
      throw new TypeError('fetch failed', { cause: Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' }) })
    }
    switch (fault?.kind) {
      case undefined:
        return run()
      case 'lose-request':
        return broken()
      case 'lose-reply':
        await run()
        return broken()
      case 'duplicate':
        await run()
        return run()
      case 'late-copy':
        this.o.clock.sleep(fault.ms).then(run, () => undefined)
        return run()
      case 'delay':
        await this.o.clock.sleep(fault.ms)
        return run()
      case 'corrupt': {
        const r = await run()
        const b = Buffer.from(await r.arrayBuffer())
        return new Response(b.subarray(0, Math.floor(b.length / 2)), { status: r.status, headers: r.headers })
      }
      case 'stall': {
        const r = await run()
        return new Response(new ReadableStream({ start: () => undefined }), { status: r.status, headers: r.headers })
      }
      case 'answer':
        return new Response(fault.body ?? '', {
          status: fault.status,
          headers: { 'content-type': 'application/json', ...fault.headers },
        })
    }
  }

  private async handle(method: string, path: string, bytes: Buffer, headers: Headers, url: string): Promise<Response> {
    const body = (): Body => JSON.parse(bytes.toString('utf8')) as Body
    if (method === 'DELETE') {
      const m = /^\/training_runs\/([^/]+)\/checkpoints\/(.+)$/.exec(path)
      return this.checkpoints.delete(`tinker://${m?.[1]}/${m?.[2]}`)
        ? new Response(null, { status: 204 })
        : json(404, { detail: 'Checkpoint not found' })
    }
    const run = /^\/training_runs\/([^/]+)\/checkpoints(\/[^/]+\/archive)?$/.exec(path)
    if (run?.[2])
      return new Response(null, {
        status: 302,
        headers: { location: new URL(url).pathname.replace('/archive', '/download') },
      })
    if (path.endsWith('/download'))
      return new Response(packed('adapter_config.json', '{"r":4}'), { headers: { 'content-type': 'application/gzip' } })
    if (run) {
      const all = [...this.checkpoints.keys()].filter((k) => k.startsWith(`tinker://${run[1]}/weights/`))
      return json(200, { checkpoints: all.map((k) => ({ tinker_path: k, checkpoint_type: 'training' })) })
    }
    switch (path) {
      case '/healthz':
        return json(200, { status: 'ok' })
      case '/client/config':
        return json(200, { pjwt_auth_enabled: false })
      case '/get_server_capabilities':
        return json(200, {
          supported_models: [
            { model_name: TOY_BASE, ...(this.o.context ? { max_context_length: this.o.context } : {}) },
          ],
        })
      case '/create_session': {
        const id = `session_${++this.ids}`
        this.sessions.add(id)
        return json(200, { session_id: id })
      }
      case '/session_heartbeat':
        return this.sessions.has(body().session_id)
          ? json(200, { type: 'session_heartbeat' })
          : json(404, { detail: 'Session not found' })
      case '/create_model':
        return this.createModel(body())
      case '/get_info':
        return this.models.has(body().model_id)
          ? json(200, { model_id: body().model_id, model_data: {}, is_lora: this.o.full !== true })
          : json(404, { detail: 'Model not found' })
      case '/weights_info':
        return this.checkpoints.has(body().tinker_path)
          ? json(200, { base_model: TOY_BASE, is_lora: true, lora_rank: 4 })
          : json(404, { detail: 'Checkpoint not found' })
      case '/unload_model': {
        const slot = this.models.get(body().model_id)
        if (!slot) return json(404, { detail: 'Model not found' })
        return this.submit(undefined, () => {
          this.leftover = slot.model
          this.models.delete(slot.id)
          return json(200, { model_id: slot.id, status: 'unloaded' })
        })
      }
      case '/forward':
      case '/forward_backward':
        return this.forward(path, bytes, headers)
      case '/optim_step':
        return this.optim(body(), bytes)
      case '/save_weights':
        return this.save(body())
      case '/save_weights_for_sampler':
        return this.saveForSampler(body(), bytes)
      case '/load_weights':
        return this.load(body(), bytes)
      case '/create_sampling_session': {
        const b = body()
        const id = `sampling_${++this.ids}`
        if (b.base_model && b.base_model !== TOY_BASE) return json(404, { detail: 'unknown base model' })
        this.samplers.set(id, { model: undefined, state: this.base.state() })
        return json(200, { sampling_session_id: id })
      }
      case '/asample':
        return this.sample(body())
      case '/retrieve_future':
        return this.retrieve(body().request_id)
    }
    return json(404, { detail: 'Not Found' })
  }

  /** Queues work; a request that was seen before (same model, number and body) gives the same future. */
  private submit(
    key: { model: string; seq: number; body: string } | undefined,
    work: () => Response,
    more: object = {},
  ): Response {
    if (key && this.o.deduplicates !== false) {
      const old = this.known.get(`${key.model}/${key.seq}`)
      if (old) {
        return old.body === key.body
          ? json(200, { request_id: old.id, ...more })
          : json(409, { detail: 'Training request sequence number was reused' })
      }
    }
    const id = String(++this.ids)
    if (key) this.known.set(`${key.model}/${key.seq}`, { body: key.body, id })
    const future: Future = { done: false, taken: false, reply: undefined, ready: Promise.resolve() }
    const run = this.work.then(async () => {
      if (this.o.workMs) await this.o.clock.sleep(this.o.workMs)
      let r: Response
      try {
        r = work()
      } catch (e) {
        r = this.failed(e instanceof Error ? e.message : String(e))
      }
      const copy = Buffer.from(await r.arrayBuffer())
      future.reply = () => new Response(copy, { status: r.status, headers: r.headers })
      future.done = true
    })
    this.work = run.catch(() => undefined)
    this.futures.set(id, Object.assign(future, { ready: run }))
    return json(200, { request_id: id, status: 'pending', ...more })
  }

  private async retrieve(id: string): Promise<Response> {
    const f = this.futures.get(id)
    if (!f) return json(404, { detail: 'Future not found' })
    if (!f.done) await Promise.race([f.ready, this.o.clock.sleep(this.o.longPollMs ?? 30_000)])
    if (!f.done) return json(200, { type: 'try_again', queue_state: 'active' })
    if (this.o.failures === 'verl') {
      if (f.taken) return json(200, { error: 'future id result already retrieved', category: 'Application' })
      f.taken = true
    }
    return f.reply!()
  }

  private failed(detail: string): Response {
    switch (this.o.failures ?? 'skyrl') {
      case 'skyrl':
        return json(400, { detail })
      case 'hosted':
        return json(200, { error: detail, category: 'user' })
      case 'tuft':
        return json(422, { detail: `Future failed: ${detail}` })
      case 'open-rl':
        return json(400, { type: 'RequestFailedResponse', error_message: detail })
      case 'verl':
        return json(200, { error: `ValueError('${detail}')`, category: 'Application' })
    }
  }

  private createModel(b: Body): Response {
    if (!this.sessions.has(b.session_id)) return json(404, { detail: 'Session not found' })
    const id = `model_${++this.ids}`
    return this.submit(
      undefined,
      () => {
        if (this.models.size >= (this.o.maxModels ?? 3))
          return this.failed(`Maximum number of LoRA adapters (${(this.o.maxModels ?? 3) + 1}) reached`)
        const slot: Slot = {
          id,
          session: b.session_id,
          model: new ToyModel(this.reduction, this.o.vocab),
          loaded: undefined,
          requests: 0,
        }
        if (this.leftover && this.o.isolation === 'none') slot.model.takeGradient(this.leftover)
        this.leftover = undefined
        this.models.set(id, slot)
        return json(200, { model_id: id, base_model: b.base_model, lora_config: { rank: b.lora_config?.rank ?? 4 } })
      },
      { model_id: id },
    )
  }

  private slot(id: string): Slot {
    const s = this.models.get(id)
    if (!s) throw new Error(`Model ${id} not loaded`)
    s.requests++
    return s
  }

  private forward(path: string, bytes: Buffer, headers: Headers): Response {
    const protobuf = headers.get('content-type') === 'application/x-protobuf'
    const wire = this.o.wire ?? 'protobuf'
    if (path === '/forward' && wire === 'protobuf') return json(404, { detail: 'Not Found' })
    if (protobuf !== (wire === 'protobuf')) return json(415, { detail: `forward_backward requires a ${wire} body` })
    const r = protobuf ? decodeForward(bytes) : fromJson(JSON.parse(bytes.toString()), path === '/forward')
    if (!/^model_\d+$/.test(r.modelId)) return json(404, { detail: 'Model not found' })
    if (this.o.refuses?.includes(r.loss))
      return json(422, {
        detail: [{ loc: ['body', 'loss_fn'], msg: `Input should not be ${r.loss}`, type: 'literal' }],
      })
    return this.submit({ model: r.modelId, seq: r.seqId, body: bytes.toString('latin1') }, () => {
      const slot = this.slot(r.modelId)
      if (!r.forwardOnly) {
        this.forwardBackwards++
        slot.model.count(r.data.length)
      }
      const rows = slot.model.forward(r)
      if (wire === 'protobuf') return binary(encodeForwardOutput(rows))
      if (rows.some((row) => row.logprobs.some(Number.isNaN)))
        return new Response('Internal Server Error', { status: 500 })
      const outputs = rows.map((row) =>
        Object.fromEntries(
          Object.entries(row).map(([k, data]) => [k, { data, dtype: 'float32', shape: [data.length] }]),
        ),
      )
      return json(200, { loss_fn_output_type: 'scalar', loss_fn_outputs: outputs, metrics: {} })
    })
  }

  private optim(b: Body, bytes: Buffer): Response {
    const a = b.adam_params
    if (a.learning_rate < 0)
      return json(422, { detail: [{ loc: ['body', 'adam_params', 'learning_rate'], msg: 'must be at least 0' }] })
    return this.submit({ model: b.model_id, seq: b.seq_id, body: bytes.toString() }, () => {
      const norm = this.slot(b.model_id).model.step(a.learning_rate, a.beta1, a.beta2, a.eps)
      if (a.learning_rate > 0) this.optimSteps++
      return json(200, this.o.gradNorm === false ? {} : { metrics: { 'skyrl.ai/grad_norm': finite(norm) } })
    })
  }

  private save(b: Body): Response {
    const path = `tinker://${b.model_id}/weights/${b.path}`
    if (this.checkpoints.has(path)) return json(409, { detail: `Checkpoint '${b.path}' already exists` })
    const slot = this.models.get(b.model_id)
    if (slot) this.checkpoints.set(path, slot.model.state())
    return this.submit(undefined, () => {
      this.checkpoints.set(path, this.slot(b.model_id).model.state())
      return json(200, { path })
    })
  }

  private saveForSampler(b: Body, bytes: Buffer): Response {
    return this.submit({ model: b.model_id, seq: b.seq_id, body: bytes.toString() }, () => {
      const state = this.slot(b.model_id).model.state()
      if (b.path) {
        this.checkpoints.set(`tinker://${b.model_id}/sampler_weights/${b.path}`, state)
        return json(200, { path: `tinker://${b.model_id}/${b.path}`, sampling_session_id: null })
      }
      const id = `sampling_${++this.ids}`
      this.samplers.set(id, { model: b.model_id, state })
      return json(200, { path: null, sampling_session_id: id })
    })
  }

  private load(b: Body, bytes: Buffer): Response {
    if (b.seq_id !== 1) return json(400, { detail: `LoadWeights is not permitted with seq_id ${b.seq_id}` })
    return this.submit({ model: b.model_id, seq: b.seq_id, body: bytes.toString() }, () => {
      const state = this.checkpoints.get(b.path)
      if (!state) throw new Error(`Checkpoint not found: ${b.path}`)
      this.slot(b.model_id).model.restore(state, b.optimizer)
      return json(200, { type: 'load_weights' })
    })
  }

  private sample(b: Body): Response {
    const s = this.samplers.get(b.sampling_session_id)
    if (!s) return json(404, { detail: 'Sampling session not found' })
    const p = b.sampling_params
    return this.submit(undefined, () => {
      const model = new ToyModel(this.reduction, this.o.vocab)
      const slot = s.model === undefined ? undefined : this.models.get(s.model)
      if (this.o.isolation === 'none' && slot) {
        // The first sample of a save, or a return to an older one, puts the file into the slot that is being trained.
        if (slot.loaded !== b.sampling_session_id) slot.model.theta = [...s.state.theta]
        slot.loaded = b.sampling_session_id
        model.theta = [...slot.model.theta]
      } else model.restore(s.state, false)
      const prompt: number[] = b.prompt.chunks.flatMap((c: { tokens: number[] }) => c.tokens)
      const lp = model.logprobs()
      const all = prompt.map((t, i) => (i === 0 ? null : (lp[t] ?? Number.NaN)))
      const sequences = model
        .sample(b.num_samples, p.max_tokens, p.seed ?? ++this.ids, p.stop ?? [], p.temperature ?? 1)
        .map((q) => ({
          ...q,
          logprobs:
            this.o.sampler === 'zeros'
              ? q.logprobs.map(() => 0)
              : this.o.sampler === 'off'
                ? q.logprobs.map((v) => v - 1.3)
                : q.logprobs,
        }))
      const out = {
        sequences,
        ...(b.prompt_logprobs ? { prompt_logprobs: this.o.promptLogprobs === 'n' ? all : all.slice(1) } : {}),
      }
      return (this.o.wire ?? 'protobuf') === 'protobuf' ? binary(encodeSampleOutput(out)) : json(200, out)
    })
  }
}

/** A tar.gz of one file. */
function packed(name: string, text: string): Buffer<ArrayBuffer> {
  const tar = Buffer.alloc(1024 + 1024)
  tar.write(name, 0)
  tar.write(text.length.toString(8).padStart(11, '0'), 124)
  tar.write('0', 156)
  tar.write(text, 512)
  return Buffer.from(gzipSync(tar))
}

const finite = (v: number): number | null => (Number.isFinite(v) ? v : null)
const json = (status: number, body: unknown): Response =>
  new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } })
const binary = (b: Uint8Array): Response =>
  new Response(Buffer.from(b), { headers: { 'content-type': 'application/x-protobuf' } })

function fromJson(b: Body, forwardOnly: boolean): ForwardRequest {
  const f = b.forward_input ?? b.forward_backward_input
  return {
    modelId: b.model_id,
    seqId: b.seq_id,
    loss: f.loss_fn,
    forwardOnly,
    ...(f.loss_fn_config ? { config: f.loss_fn_config } : {}),
    data: f.data.map((d: Body) => ({
      tokens: d.model_input.chunks.flatMap((c: { tokens: number[] }) => c.tokens),
      inputs: d.loss_fn_inputs,
    })),
  }
}

/** Patient ceilings for that clock: a busy machine must not make time-outs. */
export const PATIENT = { exchange: 2_000_000, submission: 60_000_000, outage: 60_000_000, future: 600_000_000 } as const

/** A clock that is a thousand times faster than the machine's. */
export const fastClock: Clock = {
  now: () => performance.now() * 1000,
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const t = setTimeout(() => {
        signal?.removeEventListener('abort', stop)
        resolve()
      }, ms / 1000)
      const stop = (): void => {
        clearTimeout(t)
        reject(signal!.reason)
      }
      signal?.addEventListener('abort', stop, { once: true })
    }),
}

export { TOY_VOCAB }
