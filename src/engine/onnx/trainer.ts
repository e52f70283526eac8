import { EngineError, type WeightsVersion } from '../../core/index.ts'
import type { AdamParams, Datum, Loss, LossReport, StepReport } from '../contract.ts'
import { type AdamState, adamStep, freshAdam, gradientNorm } from './adam.ts'
import { type LossPlan, lossRows, planLoss, targetRows } from './loss-rows.ts'
import { Meter } from './meter.ts'
import { type ModelConfig, parameterSpecs, type Weights } from './model-config.ts'
import { packFeeds } from './pack-feeds.ts'
import { type Pack, packs, rowIndex } from './packing.ts'
import { floats, type Sessions, type Tensors, tensor } from './sessions.ts'
import { trainGraph } from './train-graph.ts'
import { versionOf, weightFeeds } from './weight-set.ts'

/** One model under training: weights, optimiser, and the gradients collected since its last step. */
export class Trainer {
  readonly meter = new Meter()
  #gradients: Map<string, Float32Array> | undefined

  constructor(
    readonly config: ModelConfig,
    readonly weights: Weights,
    readonly adam: AdamState = freshAdam(weights),
    private readonly sessions: Sessions,
  ) {}

  /** Gradients collected so far, for tests. */
  get gradients(): Weights | undefined {
    return this.#gradients
  }

  /** Adds to the collected gradients; an aborted call adds nothing. */
  async forwardBackward(data: readonly Datum[], loss: Loss, signal: AbortSignal): Promise<LossReport> {
    const plan = planLoss(data, loss, this.config)
    const logprobs = data.map((d) => new Float32Array(d.tokens.length).fill(Number.NaN))
    const inputs = data.map((d) => d.tokens.slice(0, -1))
    const gradients = new Map<string, Float32Array>()
    let total = 0
    let entropy = 0
    const packed = packs(
      inputs.map((s) => s.length),
      this.config.context,
    )
    for (const pack of packed) {
      signal.throwIfAborted()
      const feeds = {
        ...weightFeeds(this.config, this.weights),
        ...packFeeds(pack, inputs),
        ...lossFeeds(pack, data, plan),
      }
      const withBonus = Boolean(loss.entropyBonus)
      const { batch, length } = pack.shape
      const out = await this.sessions.run(
        `train ${batch}x${length}${withBonus ? ' with entropy' : ''}`,
        () => trainGraph(this.config, pack.shape, withBonus),
        feeds,
      )
      this.#collect(gradients, out, feeds.tokens!.data as Int32Array)
      const rowLoss = floats(out, 'rowLoss')
      const rowEntropy = floats(out, 'entropy')
      const rowLogprob = floats(out, 'logprob')
      for (const p of pack.placements) {
        for (let i = 0; i < p.length; i++) {
          const row = rowIndex(pack.shape, p.row, p.start + i)
          total += rowLoss[row]!
          logprobs[p.item]![i + 1] = rowLogprob[row]!
          if (data[p.item]!.mask[i + 1] === 1) entropy += rowEntropy[row]!
        }
      }
    }
    signal.throwIfAborted()
    if (this.#gradients) addInto(this.#gradients, gradients)
    else if (packed.length > 0) this.#gradients = gradients
    this.meter.add({ trainedTokens: data.reduce((s, d) => s + d.tokens.length, 0) })
    return { loss: total, logprobs, entropy: plan.tokens ? entropy / plan.tokens : 0, tokens: plan.tokens }
  }

  /** Applies the collected gradients and forgets them. Gradients that are not finite are refused, nothing changes. */
  optimStep(adam: AdamParams): StepReport {
    const gradients = this.#gradients
    if (!gradients) throw new EngineError('optimStep without gradients; call forwardBackward first')
    this.#gradients = undefined
    const gradNorm = gradientNorm(gradients)
    const applied = Number.isFinite(gradNorm)
    if (applied) {
      const scale = adam.gradClip !== undefined && gradNorm > adam.gradClip ? adam.gradClip / gradNorm : 1
      adamStep(this.weights, gradients, this.adam, adam, scale)
    }
    return { version: this.version(), gradNorm, applied }
  }

  version(): WeightsVersion {
    return versionOf(this.config, this.weights)
  }

  #collect(into: Map<string, Float32Array>, out: Tensors, tokens: Int32Array): void {
    const wte = floats(out, 'd.wte')
    addRows(wte, floats(out, 'd.embedded'), tokens, this.config.dModel)
    const fresh = new Map(parameterSpecs(this.config).map((s) => [s.name, floats(out, `d.${s.name}`)]))
    if (into.size > 0) addInto(into, fresh)
    else for (const [name, g] of fresh) into.set(name, g)
  }
}

function lossFeeds(pack: Pack, data: readonly Datum[], plan: LossPlan): Tensors {
  const n = pack.shape.batch * pack.shape.length
  const feeds: Record<string, Tensors[string]> = {
    targets: tensor(targetRows(pack, data), [n, 1]),
    clipLow: tensor(Float32Array.of(plan.clip[0]), []),
    clipHigh: tensor(Float32Array.of(plan.clip[1]), []),
  }
  for (const [name, values] of Object.entries(lossRows(pack, data, plan))) feeds[name] = tensor(values, [n, 1])
  return feeds
}

/** Adds row i of `rows` to the row of `table` that token i names, in order. */
function addRows(table: Float32Array, rows: Float32Array, tokens: Int32Array, width: number): void {
  for (let i = 0; i < tokens.length; i++) {
    const to = tokens[i]! * width
    const from = i * width
    for (let j = 0; j < width; j++) table[to + j]! += rows[from + j]!
  }
}

function addInto(sum: Weights, more: Weights): void {
  for (const [name, a] of sum) {
    const b = more.get(name)!
    for (let i = 0; i < a.length; i++) a[i]! += b[i]!
  }
}
