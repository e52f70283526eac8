import { type LoraRequest, loraRequest, type ModelLimits, strict } from './checks.ts'
import type { TinkerClient } from './client.ts'
import { TinkerError } from './failure.ts'
import { createdModel, samplingSessionAnswer } from './responses.ts'
import { SamplingClient } from './sampling.ts'
import { TrainingClient } from './training.ts'
import type { WireRequest } from './transport.ts'

export interface CreateModel {
  readonly baseModel: string
  /** Absent: whatever the server makes without (full weights, or a refusal). */
  readonly lora?: LoraRequest
  readonly limits?: ModelLimits
  readonly metadata?: Readonly<Record<string, string>>
}

const NEVER = new AbortController().signal

/**
 * Owns models and samplers. A server unloads the models of a session whose heartbeats stop (SkyRL: after 300 s), so a
 * session must be disposed of: that unloads its models and ends the heartbeats.
 */
export class TinkerSession implements AsyncDisposable {
  #models = 0
  #samplers = 0
  #lost: string | undefined
  readonly #closing: (() => Promise<void>)[] = []
  readonly #open = new Set<TrainingClient>()

  constructor(
    readonly client: TinkerClient,
    readonly id: string,
    /** What the server wanted to be read. */
    readonly messages: readonly string[],
  ) {}

  /** Creates a model; `load_weights` may be its first request. */
  async createModel(o: CreateModel, signal: AbortSignal = NEVER): Promise<TrainingClient> {
    this.check()
    const what = `create_model ${o.baseModel}`
    const lora = o.lora === undefined ? undefined : strict(what, loraRequest, o.lora)
    const body = {
      session_id: this.id,
      model_seq_id: this.#models++,
      base_model: o.baseModel,
      ...(o.metadata ? { user_metadata: o.metadata } : {}),
      ...(lora
        ? {
            lora_config: {
              rank: lora.rank,
              ...(lora.seed === undefined ? {} : { seed: lora.seed }),
              ...(lora.trainUnembed === undefined ? {} : { train_unembed: lora.trainUnembed }),
              ...(lora.trainMlp === undefined ? {} : { train_mlp: lora.trainMlp }),
              ...(lora.trainAttn === undefined ? {} : { train_attn: lora.trainAttn }),
            },
          }
        : {}),
      type: 'create_model',
    }
    // A second copy costs a slot until the session ends, no more.
    const request: WireRequest = {
      what,
      method: 'POST',
      path: '/create_model',
      body: Buffer.from(JSON.stringify(body)),
      repeatable: true,
    }
    const { id, modelId } = await this.client.submit(request, signal)
    if (modelId) this.client.journal.opened(modelId, this.id)
    try {
      const made = await this.client.retrieve(id, request, 'CreateModel', (_, json) => createdModel.parse(json), signal)
      const model = made.model_id ?? modelId
      if (!model) throw new TinkerError(what, { kind: 'unreadable', detail: 'a model without an id' })
      if (!modelId) this.client.journal.opened(model, this.id)
      const training = new TrainingClient(this, model, o.baseModel, o.limits ?? {}, (t) => this.#open.delete(t))
      this.#open.add(training)
      return training
    } catch (e) {
      // What the server refused to create needs no unloading.
      if (modelId && e instanceof TinkerError && (e.failure.kind === 'failed' || e.failure.kind === 'invalid'))
        this.client.journal.closed(modelId)
      throw e
    }
  }

  /** A frozen pointer to a base model, or to sampler weights saved under a name. */
  async createSampler(
    from: { readonly baseModel: string } | { readonly path: string },
    limits: ModelLimits = {},
    signal: AbortSignal = NEVER,
  ): Promise<SamplingClient> {
    this.check()
    const of = 'baseModel' in from ? from.baseModel : from.path
    const body = {
      session_id: this.id,
      sampling_session_seq_id: this.nextSampler(),
      ...('baseModel' in from ? { base_model: from.baseModel } : { model_path: from.path }),
      type: 'create_sampling_session',
    }
    const r = await this.client.post(
      `create_sampling_session ${of}`,
      '/create_sampling_session',
      body,
      samplingSessionAnswer,
      signal,
    )
    return new SamplingClient(this, r.sampling_session_id, of, limits)
  }

  /** Unloads a model that this process did not open: an orphan of one that was killed. */
  async unload(modelId: string, signal: AbortSignal = NEVER): Promise<void> {
    const request: WireRequest = {
      what: `unload_model ${modelId}`,
      method: 'POST',
      path: '/unload_model',
      body: Buffer.from(JSON.stringify({ model_id: modelId, type: 'unload_model' })),
      repeatable: true,
    }
    const { id } = await this.client.submit(request, signal)
    await this.client.retrieve(id, request, 'UnloadModel', () => undefined, signal)
    this.client.journal.closed(modelId)
  }

  /** Why the session is gone, if it is. */
  get lost(): string | undefined {
    return this.#lost
  }
  lose(detail: string): void {
    this.#lost ??= detail
  }
  nextSampler(): number {
    return this.#samplers++
  }
  /** @throws TinkerError `model-lost` once the server has forgotten the session. */
  check(): void {
    if (this.#lost !== undefined)
      throw new TinkerError(`session ${this.id}`, { kind: 'model-lost', detail: `the session expired (${this.#lost})` })
  }
  onClose(f: () => Promise<void>): void {
    this.#closing.push(f)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(30_000)
    await Promise.allSettled([...this.#open].map((m) => m.unload(signal)))
    await Promise.allSettled(this.#closing.map((f) => f()))
  }
}
