import { EngineError, type WeightsVersion } from '../../core/index.ts'
import type {
  AdamParams,
  Capabilities,
  Checkpoint,
  Datum,
  Engine,
  EngineUsage,
  Loss,
  LossReport,
  Model,
  Sample,
  SampleRequest,
  Sampler,
  StepReport,
  TokenSequence,
} from '../contract.ts'
import { checkRequest } from './checks.ts'
import type { ModelConfig } from './model-config.ts'
import type { BackboneOptions, Handle, OpenOptions } from './protocol.ts'
import { WorkerClient } from './worker-client.ts'

const NOTHING: EngineUsage = { promptTokens: 0, sampledTokens: 0, trainedTokens: 0, cpuS: 0 }

/**
 * Starts the embedded engine: one worker thread, ONNX Runtime on `threads` threads, the backbone in memory.
 * Throws an EngineError naming a backbone file that is missing or broken, a ConfigError for a bad configuration.
 * @example
 * await using engine = await openOnnxEngine({ backbone: 'assets/backbone/model.safetensors', checkpointDir, threads: 2 })
 */
export async function openOnnxEngine(options: OpenOptions): Promise<OnnxEngine> {
  const client = await WorkerClient.start()
  try {
    const { config, frozen, version } = await client.call('open', [options])
    return new OnnxEngine(client, config, new OnnxSampler(client, config, frozen, version))
  } catch (e) {
    await client.close().catch(() => undefined)
    throw e
  }
}

export class OnnxEngine implements Engine {
  readonly capabilities: Capabilities

  constructor(
    private readonly client: WorkerClient,
    readonly config: ModelConfig,
    private readonly backbone: OnnxSampler,
  ) {
    this.capabilities = {
      name: 'onnx',
      losses: ['cross_entropy', 'importance_sampling', 'ppo'],
      context: config.context,
      reduction: 'sum',
      seedsHonoured: true,
      entropyBonus: true,
      kl: true,
    }
  }

  async frozen(signal: AbortSignal): Promise<OnnxSampler> {
    signal.throwIfAborted()
    return this.backbone
  }

  async open(from: 'frozen' | Checkpoint, signal: AbortSignal): Promise<OnnxModel> {
    const { model } = await this.client.call('openModel', [from], { signal })
    return new OnnxModel(this.client, this.config, model)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.client.close()
  }
}

export class OnnxModel implements Model, AsyncDisposable {
  #usage = NOTHING

  constructor(
    private readonly client: WorkerClient,
    private readonly config: ModelConfig,
    private readonly handle: Handle,
  ) {}

  /** Training on this model and sampling from its snapshots, as of the last answer. */
  get usage(): EngineUsage {
    return this.#usage
  }

  async snapshot(signal: AbortSignal): Promise<OnnxSnapshot> {
    const { sampler, version } = await this.client.call('snapshot', [this.handle], { signal })
    return new OnnxSnapshot(this.client, this.config, sampler, version, (u) => this.#use(u))
  }

  forwardBackward(data: readonly Datum[], loss: Loss, signal: AbortSignal): Promise<LossReport> {
    return this.client.call('forwardBackward', [this.handle, data, loss], this.#options(signal))
  }

  optimStep(adam: AdamParams, signal: AbortSignal): Promise<StepReport> {
    return this.client.call('optimStep', [this.handle, adam], this.#options(signal))
  }

  /** Weights, moments and step count; gradients not applied yet belong to an unfinished step and are not in it. */
  save(name: string, signal: AbortSignal): Promise<Checkpoint> {
    return this.client.call('save', [this.handle, name], this.#options(signal))
  }

  /** Writes the present weights in half precision, as a backbone that `openOnnxEngine` reads. */
  saveBackbone(path: string, options: BackboneOptions, signal: AbortSignal): Promise<{ readonly bytes: number }> {
    return this.client.call('saveBackbone', [this.handle, path, options], this.#options(signal))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.call('closeModel', [this.handle])
  }

  #options(signal: AbortSignal): { signal: AbortSignal; usage: (u: EngineUsage) => void } {
    return { signal, usage: (u) => this.#use(u) }
  }

  #use(usage: EngineUsage): void {
    this.#usage = usage
  }
}

export class OnnxSampler implements Sampler {
  readonly limits: { readonly context: number }
  #usage = NOTHING

  constructor(
    protected readonly client: WorkerClient,
    private readonly config: ModelConfig,
    protected readonly handle: Handle,
    readonly version: WeightsVersion,
    private readonly onUsage?: (usage: EngineUsage) => void,
  ) {
    this.limits = { context: config.context }
  }

  /** Of a snapshot: its model's usage. */
  get usage(): EngineUsage {
    return this.#usage
  }

  /**
   * All requests of one call are decoded together, so hand over a step's requests at once. One that cannot be sampled
   * rejects alone.
   */
  sample(requests: readonly SampleRequest[], signal: AbortSignal): readonly Promise<Sample>[] {
    const waiting = new Map<number, { resolve: (s: Sample) => void; reject: (e: unknown) => void }>()
    const sent: SampleRequest[] = []
    const promises = requests.map((r, i) => {
      const promise = new Promise<Sample>((resolve, reject) => {
        checkRequest(r, i, this.config)
        waiting.set(sent.push(r) - 1, { resolve, reject })
      })
      // A caller that awaits them in order must not crash on a later one's failure first.
      promise.catch(() => undefined)
      return promise
    })
    if (sent.length === 0) return promises
    const options = {
      ...this.#options(signal),
      part: ({ request, sequences }: { request: number; sequences: Sample['sequences'] }): void => {
        waiting.get(request)?.resolve({ sequences, version: this.version })
      },
    }
    this.client
      .call('sample', [this.handle, sent], options)
      .then(() => new EngineError('the engine ended sampling without an answer'))
      .catch((e: unknown) => e)
      // Those that were answered are settled already.
      .then((e) => {
        for (const w of waiting.values()) w.reject(e)
      })
    return promises
  }

  logprobs(sequences: readonly TokenSequence[], signal: AbortSignal): Promise<readonly Float32Array[]> {
    return this.client.call('logprobs', [this.handle, sequences], this.#options(signal))
  }

  next(
    prefixes: readonly TokenSequence[],
    ids: readonly number[],
    signal: AbortSignal,
  ): Promise<readonly Float32Array[]> {
    return this.client.call('next', [this.handle, prefixes, ids], this.#options(signal))
  }

  #options(signal: AbortSignal): { signal: AbortSignal; usage: (u: EngineUsage) => void } {
    return {
      signal,
      usage: (u) => {
        this.#usage = u
        this.onUsage?.(u)
      },
    }
  }
}

/** A sampler whose weights the worker keeps until it is disposed. */
export class OnnxSnapshot extends OnnxSampler implements AsyncDisposable {
  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.call('closeSampler', [this.handle])
  }
}
