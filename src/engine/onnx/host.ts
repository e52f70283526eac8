import { ConfigError, EngineError } from '../../core/index.ts'
import type { EngineUsage } from '../contract.ts'
import { checkIds, checkRequest, checkTokens } from './checks.ts'
import { decode } from './decode.ts'
import { Meter } from './meter.ts'
import { checkConfig, initialWeights, type ModelConfig } from './model-config.ts'
import { freshState, readBackbone, readCheckpoint, writeBackbone, writeCheckpoint } from './model-files.ts'
import type { Calls, Handle, Method, SamplePart } from './protocol.ts'
import { nextLogprobs, sequenceLogprobs } from './scoring.ts'
import { Sessions } from './sessions.ts'
import { Trainer } from './trainer.ts'
import { copyWeights, type WeightSet, weightSet } from './weight-set.ts'

type Handlers = {
  [M in Method]: (
    args: Parameters<Calls[M]>,
    context: CallContext,
  ) => Promise<ReturnType<Calls[M]>> | ReturnType<Calls[M]>
}

export interface CallContext {
  readonly signal: AbortSignal
  readonly part: (part: SamplePart) => void
}

/** The engine proper, without threads: holds models and samplers by handle and answers one call after another. */
export class Host {
  #sessions: Sessions | undefined
  #frozen: WeightSet | undefined
  #checkpointDir = ''
  #nextHandle = 1
  readonly #models = new Map<Handle, Trainer>()
  readonly #samplers = new Map<Handle, { readonly set: WeightSet; readonly meter: Meter }>()
  #queue: Promise<unknown> = Promise.resolve()

  /** Calls run in the order they came in: two at once would only share the same two cores. */
  call(method: Method, args: readonly unknown[], context: CallContext): Promise<unknown> {
    const run = async (): Promise<unknown> => {
      context.signal.throwIfAborted()
      const handler = this.#handlers[method] as (args: readonly unknown[], context: CallContext) => unknown
      const meter = this.#meter(method, args)
      const work = async (): Promise<unknown> => await handler(args, context)
      return meter ? await meter.measure(work) : await work()
    }
    const result = this.#queue.then(run)
    this.#queue = result.catch(() => undefined)
    return result
  }

  /** What the handle of a call has used so far. */
  usage(method: Method, args: readonly unknown[]): EngineUsage | undefined {
    return this.#meter(method, args)?.usage
  }

  #meter(method: Method, args: readonly unknown[]): Meter | undefined {
    if (method === 'open' || method === 'openModel' || method === 'close') return undefined
    const handle = args[0] as Handle
    return this.#samplers.get(handle)?.meter ?? this.#models.get(handle)?.meter
  }

  readonly #handlers: Handlers = {
    open: async ([options]) => {
      const { config, weights } =
        typeof options.backbone === 'string'
          ? await readBackbone(options.backbone)
          : {
              config: checkConfig(options.backbone.config),
              weights: initialWeights(options.backbone.config, options.backbone.seed),
            }
      this.#sessions = new Sessions(options.threads)
      this.#checkpointDir = options.checkpointDir
      this.#frozen = weightSet(config, weights)
      const frozen = this.#handle()
      this.#samplers.set(frozen, { set: this.#frozen, meter: new Meter() })
      return { config, frozen, version: this.#frozen.version }
    },
    openModel: async ([from]) => {
      const { config, weights } = this.#frozen!
      const state = from === 'frozen' ? freshState(config, copyWeights(weights)) : await readCheckpoint(from.location)
      // Sessions are compiled for one configuration, the backbone's.
      if (from !== 'frozen' && !sameConfig(state.config, config)) {
        throw new EngineError(`${from.location} is of another model than the backbone; open it with its own`)
      }
      const trainer = new Trainer(config, state.weights, state.adam, this.#sessions!)
      if (from !== 'frozen' && trainer.version() !== from.version) {
        throw new EngineError(`${from.location} holds weights ${trainer.version()}, not ${from.version}`)
      }
      const model = this.#handle()
      this.#models.set(model, trainer)
      return { model }
    },
    closeModel: ([model]) => {
      this.#models.delete(model)
      return null
    },
    snapshot: ([model]) => {
      const trainer = this.#model(model)
      const set = weightSet(trainer.config, copyWeights(trainer.weights))
      const sampler = this.#handle()
      // Shared: what a model's snapshots sample is part of what the model used.
      this.#samplers.set(sampler, { set, meter: trainer.meter })
      return { sampler, version: set.version }
    },
    closeSampler: ([sampler]) => {
      this.#samplers.delete(sampler)
      return null
    },
    forwardBackward: ([model, data, loss], { signal }) => this.#model(model).forwardBackward(data, loss, signal),
    optimStep: ([model, adam]) => this.#model(model).optimStep(adam),
    save: async ([model, name]) => {
      const trainer = this.#model(model)
      const location = await writeCheckpoint(this.#checkpointDir, trainer)
      return { name, location, version: trainer.version() }
    },
    saveBackbone: async ([model, path, options]) => {
      const { config, weights } = this.#model(model)
      const scaled = checkConfig({ ...config, logitScale: options.logitScale ?? config.logitScale })
      return { bytes: await writeBackbone(path, scaled, weights, options.metadata ?? {}) }
    },
    sample: async ([sampler, requests], { signal, part }) => {
      const { set, meter } = this.#sampler(sampler)
      for (const [i, r] of requests.entries()) checkRequest(r, i, set.config)
      await decode(this.#sessions!, set, requests, meter, signal, (request, sequences) => part({ request, sequences }))
      return null
    },
    logprobs: ([sampler, sequences], { signal }) => {
      const { set, meter } = this.#sampler(sampler)
      for (const [i, s] of sequences.entries()) checkTokens(s, `sequence ${i}`, set.config)
      return sequenceLogprobs(this.#sessions!, set, sequences, meter, signal)
    },
    next: ([sampler, prefixes, ids], { signal }) => {
      const { set, meter } = this.#sampler(sampler)
      for (const [i, s] of prefixes.entries()) checkTokens(s, `prefix ${i}`, set.config)
      checkIds(ids, 'ids', set.config)
      return nextLogprobs(this.#sessions!, set, prefixes, ids, meter, signal)
    },
    close: async () => {
      this.#models.clear()
      this.#samplers.clear()
      await this.#sessions?.close()
      return null
    },
  }

  #handle(): Handle {
    return this.#nextHandle++
  }

  #model(handle: Handle): Trainer {
    const model = this.#models.get(handle)
    if (!model) throw new EngineError('the model is closed')
    return model
  }

  #sampler(handle: Handle): { readonly set: WeightSet; readonly meter: Meter } {
    const sampler = this.#samplers.get(handle)
    if (!sampler) throw new EngineError('the sampler is disposed')
    return sampler
  }
}

function sameConfig(a: ModelConfig, b: ModelConfig): boolean {
  return (Object.keys(b) as (keyof ModelConfig)[]).every((key) => a[key] === b[key])
}

/** For the wire: which kind of error crossed it. */
export function errorKind(e: unknown): 'aborted' | 'engine' | 'config' | 'other' {
  if (e instanceof ConfigError) return 'config'
  if (e instanceof EngineError) return 'engine'
  if (e instanceof Error && e.name === 'AbortError') return 'aborted'
  return 'other'
}
