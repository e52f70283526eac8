import { EngineError, type WeightsVersion, weightsVersion } from '../../core/index.ts'
import type {
  AdamParams,
  Checkpoint,
  Datum,
  EngineUsage,
  Loss,
  LossReport,
  Model,
  Sampler,
  StepReport,
} from '../contract.ts'
import { isFailure, TinkerError } from './failure.ts'
import { checkDatums, forwardData, type LossCall, type LossServer, lossValue, ownLoss, slopeLoss } from './loss-data.ts'
import { Meter, RemoteSampler } from './remote-sampler.ts'
import { shifted, unshifted } from './shift.ts'
import type { TrainingClient } from './training.ts'
import type { ForwardOutput } from './wire/messages.ts'

export interface RemoteModelOptions {
  readonly training: TrainingClient
  readonly server: LossServer & {
    readonly samplerIsolation: 'snapshot' | 'none'
    readonly deduplicates: boolean
  }
  readonly context: number
  /** Ids below it may be used for the guard's sequence. */
  readonly vocab: number
  readonly version?: WeightsVersion
  readonly log?: (line: string) => void
  /** Takes a checkpoint off the server. */
  readonly forget?: (path: string) => Promise<unknown>
}

/** Own checkpoints that stay on the server. */
const KEEP = 3

/**
 * The policy on a server. On servers without sampler isolation it is kept strictly in turn: snapshot, all samples, train;
 * a sampler that is older than the last update is refused, and a fixed sequence is scored before and after sampling, since
 * a server that rolls training back does not say so.
 */
export class RemoteModel implements Model, AsyncDisposable {
  readonly #meter = new Meter()
  #version: WeightsVersion
  #steps = 0
  #pending = false
  #sampling = 0
  #snapshots = 0
  #lost: string | undefined
  #guard: readonly number[] | undefined
  readonly #saved: string[] = []

  constructor(private readonly o: RemoteModelOptions) {
    this.#version = o.version ?? weightsVersion(`${o.training.id}@0`)
  }

  get id(): string {
    return this.o.training.id
  }
  get usage(): EngineUsage {
    return this.#meter.usage
  }
  get version(): WeightsVersion {
    return this.#version
  }

  async snapshot(signal: AbortSignal): Promise<Sampler & AsyncDisposable> {
    this.#alive()
    const shared = this.o.server.samplerIsolation === 'none'
    if (shared && this.#sampling > 0)
      throw new EngineError(`${this.#sampling} samples of the last snapshot are not finished`)
    if (shared) this.#guard = await this.#score(signal)
    // Of the weights when it was asked for: an update may come in before it is there.
    const number = ++this.#snapshots
    const version = this.#version
    const steps = this.#steps
    const client = await this.o.training.sampler(signal)
    let open = true
    const sampler = new RemoteSampler({
      client,
      version,
      context: this.o.context,
      meter: this.#meter,
      admit: () => {
        if (!open) throw new EngineError('this snapshot was given back')
        if (!shared) return
        if (number !== this.#snapshots)
          throw new EngineError(`snapshot ${version} is not the newest: sampling it would change the model`)
        if (steps !== this.#steps || this.#pending)
          throw new EngineError(`the model was trained since snapshot ${version}: sampling it would undo that`)
      },
      running: (change) => {
        this.#sampling += change
      },
    })
    return Object.assign(sampler, {
      [Symbol.asyncDispose]: async (): Promise<void> => {
        open = false
      },
    })
  }

  async forwardBackward(data: readonly Datum[], loss: Loss, signal: AbortSignal): Promise<LossReport> {
    this.#alive()
    if (data.length === 0) throw new EngineError('no data')
    if (loss.entropyBonus) throw new EngineError('a server does not compute the exact entropy: entropyBonus must be 0')
    checkDatums(data, loss)
    const { server } = this.o
    if (server.samplerIsolation === 'none' && this.#sampling > 0)
      throw new EngineError(`${this.#sampling} samples are not finished: training now would change them`)
    if (this.#pending && server.reduction === 'sequence-mean')
      throw new EngineError('this server averages over all data of a step: hand a step over in one call')
    await this.#unchanged(signal)
    const own = ownLoss(data, loss, server)
    const call =
      own ??
      slopeLoss(
        data,
        loss,
        server,
        await this.#checked(
          await this.o.training.forward(forwardData(data), 'cross_entropy', {}, signal),
          data,
          signal,
        ),
      )
    const out = await this.#train(call, signal)
    const logprobs = await this.#checked(out, data, signal)
    this.#meter.trainedTokens += data.reduce((n, d) => n + d.tokens.length, 0)
    return {
      loss: lossValue(data, loss, logprobs),
      logprobs,
      entropy: Number.NaN,
      tokens: data.reduce((n, d) => n + d.mask.reduce((a, m) => a + m, 0), 0),
    }
  }

  /** Where a reply was lost and the server would double the gradient: clears what may be there and does it again, once. */
  async #train(call: LossCall, signal: AbortSignal): Promise<ForwardOutput> {
    const options = call.config ? { config: call.config } : {}
    this.#pending = true
    try {
      return await this.o.training.forwardBackward(call.data, call.loss, options, signal)
    } catch (e) {
      if (isFailure(e, 'broken-result', 'not-finite'))
        await this.#lose(`the server could not deliver a loss (${e.message})`)
      if (!isFailure(e, 'ambiguous', 'future-taken')) throw e
      this.o.log?.(`${e.message}; clearing the gradient and doing it again`)
      await this.o.training.optimStep({ learningRate: 0 }, signal)
      return await this.o.training.forwardBackward(call.data, call.loss, options, signal)
    }
  }

  /** Once begun it is finished: a step that was given up half-way might or might not be in the next checkpoint. */
  async optimStep(adam: AdamParams, signal: AbortSignal): Promise<StepReport> {
    this.#alive()
    signal.throwIfAborted()
    const r = await this.o.training.optimStep(
      {
        learningRate: adam.learningRate,
        ...(adam.beta1 === undefined ? {} : { beta1: adam.beta1 }),
        ...(adam.beta2 === undefined ? {} : { beta2: adam.beta2 }),
        ...(adam.epsilon === undefined ? { epsilon: 1e-8 } : { epsilon: adam.epsilon }),
        ...(adam.weightDecay === undefined ? {} : { weightDecay: adam.weightDecay }),
        ...(adam.gradClip === undefined ? {} : { gradClipNorm: adam.gradClip }),
      },
      new AbortController().signal,
    )
    this.#pending = false
    this.#steps++
    this.#version = weightsVersion(`${this.o.training.id}@${this.#steps}`)
    this.#guard = undefined
    if (r.gradNorm !== undefined && !Number.isFinite(r.gradNorm))
      await this.#lose(`the gradient of step ${this.#steps} was not finite and has destroyed the weights`)
    return { version: this.#version, gradNorm: r.gradNorm ?? Number.NaN, applied: true }
  }

  async save(name: string, signal: AbortSignal): Promise<Checkpoint> {
    this.#alive()
    // Names are taken for ever on some servers; a resumed run has a new model, so they cannot meet.
    const { path } = await this.o.training.save(name.replace(/[^a-zA-Z0-9_-]+/g, '-').slice(0, 200), signal)
    this.#saved.push(path)
    while (this.#saved.length > KEEP) await this.o.forget?.(this.#saved.shift()!).catch(() => undefined)
    return { name, location: path, version: this.#version }
  }

  /** Adapter of the present weights on the server, by name. */
  async publish(name: string, signal: AbortSignal): Promise<{ readonly path: string }> {
    this.#alive()
    return this.o.training.saveForSampler(name, signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#lost !== undefined) return
    this.#lost = 'it was given back'
    const signal = AbortSignal.timeout(60_000)
    // Gradients that were not applied would be the slot's next model's.
    if (this.#pending) await this.o.training.optimStep({ learningRate: 0 }, signal).catch(() => undefined)
    await this.o.training.unload(signal)
  }

  #alive(): void {
    if (this.#lost !== undefined) throw new EngineError(`model ${this.o.training.id} is gone: ${this.#lost}`)
  }

  /** The model is worth nothing any more, and on some servers spoils every other one until it is unloaded. */
  async #lose(why: string): Promise<never> {
    this.#lost = why
    await this.o.training.unload(AbortSignal.timeout(60_000)).catch(() => undefined)
    throw new EngineError(
      `${why}; the model was unloaded, no optimiser step was taken on it: resume from the last checkpoint`,
    )
  }

  /** One row a datum, in step with its tokens. */
  #rows(out: ForwardOutput, data: readonly Datum[]): Float32Array[] {
    return out.outputs.map((row, i) => {
      const lp = row.logprobs
      const n = data[i]!.tokens.length - 1
      if (!lp || lp.length !== n)
        throw new TinkerError(`model ${this.o.training.id}`, {
          kind: 'unreadable',
          detail: `${lp?.length ?? 0} log-probabilities of datum ${i} for ${n} tokens`,
        })
      return unshifted(lp)
    })
  }

  async #checked(out: ForwardOutput, data: readonly Datum[], signal: AbortSignal): Promise<Float32Array[]> {
    signal.throwIfAborted()
    const logprobs = this.#rows(out, data)
    for (const [i, row] of logprobs.entries()) {
      for (let t = 1; t < row.length; t++)
        if (!Number.isFinite(row[t]!)) await this.#lose(`log-probability ${t} of datum ${i} is ${row[t]}`)
      const loss = out.outputs[i]!.elementwise_loss
      if (loss?.some((v) => !Number.isFinite(v))) await this.#lose(`the loss of datum ${i} is not finite`)
    }
    return logprobs
  }

  /** Log-probabilities of a fixed sequence, of the shape that the probes used. */
  async #score(signal: AbortSignal): Promise<number[]> {
    const s = Array.from({ length: 17 }, (_, i) => 3 + ((i * 37 + 11) % (this.o.vocab - 4)))
    const datum = shifted(s, { weights: s.map((_, i) => (i >= 6 ? 1 : 0)) })
    const out = await this.o.training.forward([datum], 'cross_entropy', {}, signal)
    return [...(out.outputs[0]?.logprobs ?? [])]
  }

  async #unchanged(signal: AbortSignal): Promise<void> {
    const before = this.#guard
    if (!before) return
    this.#guard = undefined
    const now = await this.#score(signal)
    const gap = before.reduce((m, v, i) => Math.max(m, Math.abs(v - now[i]!)), 0)
    if (!(gap < 1e-2))
      await this.#lose(
        `sampling changed the model that is being trained (by ${gap.toFixed(3)} nats on a fixed sequence)`,
      )
  }
}
