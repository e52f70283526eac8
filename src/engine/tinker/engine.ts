import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError, contentHash, EngineError, messageOf, weightsVersion } from '../../core/index.ts'
import type { Capabilities, Checkpoint, Engine } from '../contract.ts'
import { type ClientOptions, TinkerClient } from './client.ts'
import { isFailure } from './failure.ts'
import { fileJournal } from './journal.ts'
import { probeServer, type ServerReport } from './probes.ts'
import { RemoteModel } from './remote-model.ts'
import { Meter, RemoteSampler } from './remote-sampler.ts'
import { type Needs, requireServer } from './requirements.ts'
import type { TinkerSession } from './session.ts'

export interface TinkerEngineOptions {
  readonly url: string
  /** Another server for the frozen backbone: a NaN in one adapter was seen to poison every model of its server. */
  readonly worldModelUrl?: string
  /** Base model; default the server's only one. */
  readonly model?: string
  readonly apiKey?: string
  readonly rank: number
  readonly seed: number
  /** Tokens of prompt and output, where the server does not say. */
  readonly context?: number
  readonly vocab?: number
  /** Where the server's gradient norms do not show it. */
  readonly reduction?: 'sum' | 'sequence-mean'
  /** Folder of the journal of open models and of what the probes found. */
  readonly stateDir: string
  readonly needs: Omit<Needs, 'context'>
  readonly concurrency?: number
  readonly log?: (line: string) => void
  readonly onProbe?: (name: string) => void
  /** For tests: another fetch, clock, heartbeat. */
  readonly client?: Partial<ClientOptions>
}

/**
 * Connects, unloads what an earlier process of this run left behind, probes the server and refuses it, by configuration key,
 * where the run needs what it lacks. Nothing is trained before that.
 * @throws ConfigError, TinkerError
 */
export async function openTinkerEngine(o: TinkerEngineOptions, signal: AbortSignal): Promise<TinkerEngine> {
  mkdirSync(o.stateDir, { recursive: true })
  const journal = fileJournal(join(o.stateDir, 'tinker-models.jsonl'))
  const orphans = journal.open()
  const log = o.log ?? (() => undefined)
  let queue = ''
  const clientOptions: Omit<ClientOptions, 'baseUrl'> = {
    ...(o.apiKey ? { apiKey: o.apiKey } : {}),
    ...(o.concurrency ? { concurrency: o.concurrency } : {}),
    onQueue(what, why) {
      // Every request says it at every poll; people need it once.
      if (why !== queue) log(`${what} waits: ${why}`)
      queue = why
    },
    ...o.client,
  }
  const client = new TinkerClient({ baseUrl: o.url, journal, ...clientOptions })
  const model = await baseModel(client, o, signal)
  const session = await client.createSession({ tags: ['wmrl'] }, signal)
  let world: TinkerSession | undefined
  try {
    for (const m of session.messages) log(m)
    for (const orphan of orphans) {
      await session.unload(orphan.model, signal).catch((e: unknown) => {
        if (!isFailure(e, 'not-found', 'model-lost', 'failed', 'invalid')) throw e
        journal.closed(orphan.model)
      })
      log(`unloaded ${orphan.model}, which an earlier process left behind`)
    }
    const probed = await probeServer(
      session,
      {
        baseModel: model.name,
        context: model.context ?? o.context,
        // Some servers want one rank for all of their models.
        rank: o.rank,
        ...(o.vocab === undefined ? {} : { vocab: Math.min(o.vocab, 256) }),
        losses: [...new Set(['importance_sampling', ...o.needs.losses.filter((l) => l !== 'cross_entropy')])],
        ...(o.onProbe ? { onProbe: o.onProbe } : {}),
      },
      signal,
    )
    const report: ServerReport =
      probed.reduction === 'unknown' && o.reduction ? { ...probed, reduction: o.reduction } : probed
    writeFileSync(join(o.stateDir, 'tinker-server.json'), `${JSON.stringify(report, null, 1)}\n`)
    for (const n of report.notes) log(`server: ${n}`)
    const context = Math.min(report.context ?? Number.POSITIVE_INFINITY, o.context ?? Number.POSITIVE_INFINITY)
    requireServer(report, {
      ...o.needs,
      frozenBase: o.needs.frozenBase && o.worldModelUrl === undefined,
      context: Number.isFinite(context) ? context : undefined,
    })
    if (o.worldModelUrl) {
      const other = new TinkerClient({ baseUrl: o.worldModelUrl, ...clientOptions })
      await baseModel(other, { ...o, model: model.name }, signal, 'engine.worldModelUrl')
      world = await other.createSession({ tags: ['wmrl-world-model'] }, signal)
    }
    return new TinkerEngine(o, session, world, model.name, report, context)
  } catch (e) {
    await world?.[Symbol.asyncDispose]()
    await session[Symbol.asyncDispose]()
    throw e
  }
}

async function baseModel(
  client: TinkerClient,
  o: Pick<TinkerEngineOptions, 'url' | 'model'>,
  signal: AbortSignal,
  key = 'engine.url',
): Promise<{ name: string; context: number | undefined }> {
  const models = await client.models(signal).catch((e: unknown) => {
    if (isFailure(e, 'unreachable', 'timeout'))
      throw new ConfigError(key, `no server answers (${messageOf(e)})`, 'start it, or change the URL')
    if (isFailure(e, 'unauthorised'))
      throw new ConfigError(key, `the server refuses the key (${messageOf(e)})`, 'set TINKER_API_KEY')
    throw e
  })
  // A path and its name are the same model to some servers, but they compare strings.
  const found = o.model === undefined && models.length === 1 ? models[0] : models.find((m) => m.name === o.model)
  if (found) return found
  throw new ConfigError(
    'engine.model',
    o.model === undefined ? 'the server has several base models' : `the server has no base model ${o.model}`,
    `one of ${models.map((m) => m.name).join(', ') || '(none)'}`,
  )
}

/** A server of the Tinker protocol behind the engine contract. Disposing of it unloads its models. */
export class TinkerEngine implements Engine {
  readonly capabilities: Capabilities
  readonly #models = new Set<RemoteModel>()
  readonly #worldMeter = new Meter()
  #frozen: Promise<RemoteSampler> | undefined

  constructor(
    private readonly o: TinkerEngineOptions,
    private readonly session: TinkerSession,
    private readonly world: TinkerSession | undefined,
    readonly baseModel: string,
    readonly server: ServerReport,
    private readonly context: number,
  ) {
    this.capabilities = {
      name: 'tinker',
      losses: ['cross_entropy', 'importance_sampling', 'ppo'],
      context,
      reduction: this.#reduction,
      seedsHonoured: server.seedsHonoured,
      entropyBonus: false,
      kl: server.promptLogprobs !== 'none',
    }
  }

  get #reduction(): 'sum' | 'sequence-mean' {
    return this.server.reduction === 'sequence-mean' ? 'sequence-mean' : 'sum'
  }
  get #limits() {
    return { context: this.context, ...(this.o.vocab === undefined ? {} : { vocab: this.o.vocab }) }
  }

  frozen(signal: AbortSignal): Promise<RemoteSampler> {
    this.#frozen ??= (this.world ?? this.session)
      .createSampler({ baseModel: this.baseModel }, this.#limits, signal)
      .then(
        (client) =>
          new RemoteSampler({
            client,
            version: weightsVersion(`base-${contentHash(this.baseModel).slice(0, 16)}`),
            context: this.context,
            meter: this.#worldMeter,
          }),
      )
    return this.#frozen
  }

  async open(from: 'frozen' | Checkpoint, signal: AbortSignal): Promise<RemoteModel> {
    const shared = this.server.samplerIsolation === 'none'
    if (from !== 'frozen' && !(await this.session.client.hasWeights(from.location, signal)))
      throw new EngineError(
        `the server no longer has ${from.location} (was it restarted with another database?); start the run again`,
      )
    const create = { baseModel: this.baseModel, lora: { rank: this.o.rank, seed: this.o.seed }, limits: this.#limits }
    if (from !== 'frozen' && shared) {
      // The slot may hold gradients of an earlier model, and loading must be a model's first request: a scratch model
      // takes the slot, clears it and leaves.
      const scratch = await this.session.createModel(create, signal)
      await scratch.optimStep({ learningRate: 0 }, signal)
      await scratch.unload(signal)
    }
    const training = await this.session.createModel(create, signal)
    if (from !== 'frozen') await training.load(from.location, { optimizer: true }, signal)
    else if (shared) {
      const { gradNorm } = await training.optimStep({ learningRate: 0 }, signal)
      if (gradNorm !== undefined && !Number.isFinite(gradNorm)) {
        await training.unload(signal)
        throw new EngineError('the server’s slot holds a gradient that is not finite; it is cleared now, start again')
      }
    }
    const model = new RemoteModel({
      training,
      server: {
        reduction: this.#reduction,
        maskInput: this.server.maskInput,
        losses: this.server.losses,
        samplerIsolation: this.server.samplerIsolation,
        deduplicates: this.server.deduplicates,
      },
      context: this.context,
      vocab: Math.min(this.o.vocab ?? 256, 256),
      ...(from === 'frozen' ? {} : { version: from.version }),
      ...(this.o.log ? { log: this.o.log } : {}),
      forget: (path) => this.session.client.deleteCheckpoint(path, AbortSignal.timeout(30_000)),
    })
    this.#models.add(model)
    return model
  }

  /** The adapter of the model that was opened last, as the server packs it (tar.gz); undefined where none is open. */
  async archive(name: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const model = [...this.#models].at(-1)
    if (!model) return undefined
    await model.publish(name, signal)
    return this.session.client.archive(model.id, name, signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled([...this.#models].map((m) => m[Symbol.asyncDispose]()))
    await Promise.allSettled([this.world?.[Symbol.asyncDispose](), this.session[Symbol.asyncDispose]()])
  }
}
