import { type AdamRequest, adamRequest, checkData, checkpointName, type ModelLimits, refuse, strict } from './checks.ts'
import { chunked, joined } from './chunks.ts'
import { isFailure, TinkerError } from './failure.ts'
import type { FutureType } from './future.ts'
import type { Reply } from './reading.ts'
import { modelInfo, readForward, samplerAnswer, savedAnswer, stepAnswer } from './responses.ts'
import { SamplingClient } from './sampling.ts'
import type { TinkerSession } from './session.ts'
import type { WireRequest } from './transport.ts'
import { encodeForward, type ForwardOutput, type ForwardRequest, jsonForward, type WireDatum } from './wire/messages.ts'

export interface ForwardOptions {
  /** Clip thresholds and the like; `ppo` takes ratios (`clip_low_threshold: 0.8`). */
  readonly config?: Readonly<Record<string, number>>
}

export interface StepResult {
  /** Every number that the server reported; NaN where it had none. */
  readonly metrics: Readonly<Record<string, number>>
  /** Global norm of the gradient; undefined where the server does not report it, NaN where it is not finite. */
  readonly gradNorm: number | undefined
}

const NEVER = new AbortController().signal

/**
 * One model on the server: its weights, accumulated gradients and Adam state. Requests go out in order, each once the server
 * has taken the one before; results may be awaited together.
 */
export class TrainingClient {
  #next = 1
  /** The last submission; the next one waits for it. */
  #turn: Promise<unknown> = Promise.resolve()
  #unloaded = false

  constructor(
    private readonly session: TinkerSession,
    readonly id: string,
    readonly baseModel: string,
    readonly limits: ModelLimits,
    private readonly onUnload: (t: TrainingClient) => void,
  ) {}

  private get client() {
    return this.session.client
  }

  /** Loss and log-probabilities, no gradient. */
  forward(
    data: readonly WireDatum[],
    loss = 'cross_entropy',
    o: ForwardOptions = {},
    signal: AbortSignal = NEVER,
  ): Promise<ForwardOutput> {
    return this.#forward(data, loss, o, true, signal)
  }

  /** Adds to the gradients that the next `optimStep` applies. Large batches are split; the output is one. */
  forwardBackward(
    data: readonly WireDatum[],
    loss: string,
    o: ForwardOptions = {},
    signal: AbortSignal = NEVER,
  ): Promise<ForwardOutput> {
    return this.#forward(data, loss, o, false, signal)
  }

  async #forward(
    data: readonly WireDatum[],
    loss: string,
    o: ForwardOptions,
    forwardOnly: boolean,
    signal: AbortSignal,
  ): Promise<ForwardOutput> {
    const name = forwardOnly ? 'forward' : 'forward_backward'
    checkData(`${name} of ${this.id}`, data, loss, this.limits, { forwardOnly })
    this.#alive(name)
    // The turn is taken at once: a step that is called next must not overtake.
    const { chunks, results } = await this.#inOrder(async () => {
      const config = await this.client.config(signal)
      const chunks = chunked(data, {
        data: config.fwdbwd_max_chunk_len ?? 1024,
        bytes: config.fwdbwd_max_chunk_bytes_count ?? 5_000_000,
      })
      const results: Promise<ForwardOutput>[] = []
      for (const chunk of chunks) {
        const r = { modelId: this.id, data: chunk, loss, forwardOnly, ...(o.config ? { config: o.config } : {}) }
        const { id, request } = await this.#submitForward(r, signal)
        const type = forwardOnly ? 'Forward' : 'ForwardBackward'
        const result = this.client.retrieve(id, request, type, readForward, signal)
        result.catch(() => undefined)
        results.push(result)
        // Some servers cannot take the next chunk before they have finished this one.
        if (config.parallel_fwdbwd_chunks === false) await result
      }
      return { chunks, results }
    })
    const outputs = await Promise.all(results)
    outputs.forEach((out, k) => {
      if (out.outputs.length !== chunks[k]!.length)
        throw new TinkerError(`${name} of ${this.id}`, {
          kind: 'unreadable',
          detail: `${out.outputs.length} results for ${chunks[k]!.length} data`,
        })
    })
    return joined(outputs)
  }

  /** Sends in the form that the server speaks; a 415 names the other one and costs nothing. */
  async #submitForward(
    r: Omit<ForwardRequest, 'seqId'>,
    signal: AbortSignal,
  ): Promise<{ id: string; request: WireRequest }> {
    const name = r.forwardOnly ? 'forward' : 'forward_backward'
    const seqId = this.#reserve()
    const make = (protobuf: boolean): WireRequest => {
      const full = { ...r, seqId }
      return {
        what: `${name} ${seqId} of ${this.id}`,
        method: 'POST',
        path: r.forwardOnly && !protobuf ? '/forward' : '/forward_backward',
        body: protobuf ? encodeForward(full) : Buffer.from(JSON.stringify(jsonForward(full))),
        contentType: protobuf ? 'application/x-protobuf' : 'application/json',
        // A forward pass changes nothing, however often it runs.
        repeatable: r.forwardOnly === true || this.client.traits.deduplicates,
      }
    }
    const { wire } = this.client.traits
    const first = make(wire === 'protobuf')
    try {
      return { id: (await this.client.submit(first, signal)).id, request: first }
    } catch (e) {
      const otherForm =
        wire === 'auto' &&
        ((isFailure(e, 'invalid') && e.failure.status === 415) ||
          (r.forwardOnly === true && isFailure(e, 'not-found') && !/model/i.test(e.failure.detail)))
      if (!otherForm) throw e
      const second = make(true)
      const { id } = await this.client.submit(second, signal)
      this.client.traits = { ...this.client.traits, wire: 'protobuf' }
      return { id, request: second }
    }
  }

  /**
   * Sends one training request twice: a server that recognises copies gives both the same future. For probes; on other
   * servers the gradient is then there twice and wants clearing (`optimStep` with a learning rate of 0).
   */
  async recognisesCopies(data: readonly WireDatum[], loss: string, signal: AbortSignal = NEVER): Promise<boolean> {
    this.#alive('forward_backward')
    const { request, ids } = await this.#inOrder(async () => {
      const { id, request } = await this.#submitForward({ modelId: this.id, data, loss }, signal)
      return { request, ids: [id, (await this.client.submit(request, signal)).id] }
    })
    for (const id of new Set(ids)) await this.client.retrieve(id, request, 'ForwardBackward', readForward, signal)
    return ids[0] === ids[1]
  }

  /** Applies the accumulated gradients and clears them. A learning rate of 0 only clears them. */
  async optimStep(adam: AdamRequest, signal: AbortSignal = NEVER): Promise<StepResult> {
    const a = strict(`optim_step of ${this.id}`, adamRequest, adam)
    const adam_params = {
      learning_rate: a.learningRate,
      beta1: a.beta1 ?? 0.9,
      beta2: a.beta2 ?? 0.95,
      eps: a.epsilon ?? 1e-12,
      weight_decay: a.weightDecay ?? 0,
      grad_clip_norm: a.gradClipNorm ?? 0,
    }
    return this.#call(
      'optim_step',
      'OptimStep',
      { adam_params, type: 'optim_step' },
      (_, json) => {
        const { metrics } = stepAnswer.parse(json)
        const all = Object.fromEntries(Object.entries(metrics ?? {}).map(([k, v]) => [k, v ?? Number.NaN]))
        const norm = Object.entries(all).find(([k]) => /(^|[./])grad_norm(:|$)/.test(k))
        return { metrics: all, gradNorm: norm?.[1] }
      },
      signal,
    )
  }

  /** Weights and optimiser state under a name, for `load`. A name that an own earlier try took counts as saved. */
  async save(name: string, signal: AbortSignal = NEVER): Promise<{ path: string }> {
    strict(`save_weights of ${this.id}`, checkpointName, name)
    const path = `tinker://${this.id}/weights/${name}`
    try {
      return await this.#call(
        'save_weights',
        'SaveWeights',
        { path: name, type: 'save_weights' },
        (_, json) => savedAnswer.parse(json),
        signal,
        // Saving twice writes the same weights: a second copy is refused at worst.
        { repeatable: true },
      )
    } catch (e) {
      if (!isFailure(e, 'exists') || e.tries < 2) throw e
      if (await this.#savedByUs(path, signal)) return { path }
      throw e
    }
  }

  /** The reply of our own save was lost: it is there, or will be within moments. */
  async #savedByUs(path: string, signal: AbortSignal): Promise<boolean> {
    for (let i = 0; i < 30; i++) {
      const all = await this.client.checkpoints(this.id, signal)
      if (all.some((c) => c.path === path && c.type !== 'sampler')) return true
      await this.client.transport.clock.sleep(2_000, signal)
    }
    return false
  }

  /** Restores saved weights; servers allow it only as a model's first request. */
  async load(path: string, o: { readonly optimizer: boolean }, signal: AbortSignal = NEVER): Promise<void> {
    if (this.#next !== 1)
      refuse(`load_weights of ${this.id}`, 'weights can only be loaded as the first request of a model')
    await this.#call(
      'load_weights',
      'LoadWeights',
      { path, optimizer: o.optimizer, type: 'load_weights' },
      () => undefined,
      signal,
      { repeatable: true },
    )
  }

  /** The present weights as a sampler. Always a new one: an old session would sample old weights, or worse. */
  async sampler(signal: AbortSignal = NEVER): Promise<SamplingClient> {
    const r = await this.#call(
      'save_weights_for_sampler',
      'SaveWeightsForSampler',
      { sampling_session_seq_id: this.session.nextSampler(), type: 'save_weights_for_sampler' },
      (_, json) => samplerAnswer.parse(json),
      signal,
      { repeatable: true },
    )
    if (r.sampling_session_id) return new SamplingClient(this.session, r.sampling_session_id, this.id, this.limits)
    if (r.path) return this.session.createSampler({ path: r.path }, this.limits, signal)
    throw new TinkerError(`save_weights_for_sampler of ${this.id}`, {
      kind: 'unreadable',
      detail: 'a sampler without an id',
    })
  }

  /** The present weights for sampling under a name, which also makes an archive of them. */
  async saveForSampler(name: string, signal: AbortSignal = NEVER): Promise<{ path: string }> {
    strict(`save_weights_for_sampler of ${this.id}`, checkpointName, name)
    return this.#call(
      'save_weights_for_sampler',
      'SaveWeightsForSampler',
      { path: name, type: 'save_weights_for_sampler' },
      (_, json) => savedAnswer.parse(json),
      signal,
      { repeatable: true },
    )
  }

  async info(
    signal: AbortSignal = NEVER,
  ): Promise<{ lora: boolean | undefined; rank: number | undefined; tokenizer: string | undefined }> {
    const r = await this.client.post(
      `get_info of ${this.id}`,
      '/get_info',
      { model_id: this.id, type: 'get_info' },
      modelInfo,
      signal,
    )
    const rank = r.lora_rank ?? r.model_data?.lora_config?.rank ?? undefined
    return {
      lora: r.is_lora ?? (rank === undefined ? undefined : rank > 0),
      rank,
      tokenizer: r.model_data?.tokenizer_id ?? undefined,
    }
  }

  /** Frees the model's slot. Gradients that were not applied must be cleared first: a slot keeps them for the next model. */
  async unload(signal: AbortSignal = NEVER): Promise<void> {
    if (this.#unloaded) return
    this.#unloaded = true
    this.onUnload(this)
    try {
      await this.session.unload(this.id, signal)
    } catch (e) {
      if (!isFailure(e, 'model-lost', 'not-found')) throw e
      this.client.journal.closed(this.id)
    }
  }

  /** Next sequence number, durable before it is used. */
  #reserve(): number {
    const n = this.#next++
    this.client.journal.reserved(this.id, this.#next)
    return n
  }

  #alive(name: string): void {
    this.session.check()
    if (this.#unloaded)
      throw new TinkerError(`${name} of ${this.id}`, { kind: 'model-lost', detail: 'it was unloaded' })
  }

  #inOrder<T>(f: () => Promise<T>): Promise<T> {
    const run = this.#turn.then(f)
    this.#turn = run.catch(() => undefined)
    return run
  }

  async #call<T>(
    name: string,
    type: FutureType,
    body: object,
    read: (reply: Reply, json: unknown) => T,
    signal: AbortSignal,
    o: { readonly repeatable?: boolean } = {},
  ): Promise<T> {
    this.session.check()
    if (this.#unloaded)
      throw new TinkerError(`${name} of ${this.id}`, { kind: 'model-lost', detail: 'it was unloaded' })
    const { id, request } = await this.#inOrder(async () => {
      const seqId = this.#reserve()
      const r: WireRequest = {
        what: `${name} ${seqId} of ${this.id}`,
        method: 'POST',
        path: `/${name}`,
        body: Buffer.from(JSON.stringify({ model_id: this.id, seq_id: seqId, ...body })),
        repeatable: o.repeatable ?? this.client.traits.deduplicates,
      }
      return { id: (await this.client.submit(r, signal)).id, request: r }
    })
    return this.client.retrieve(id, request, type, read, signal)
  }
}
