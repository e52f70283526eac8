import { keyed } from '../../core/index.ts'
import type { Datum, Model, Sampler } from '../../engine/index.ts'
import type { Example } from '../corpus/examples.ts'

export interface PretrainOptions {
  /** Tokens an optimiser step. */
  readonly batchTokens: number
  readonly steps: number
  readonly peak: number
  readonly floor: number
  readonly warmup: number
  readonly weightDecay: number
  readonly seed: number
  readonly onStep?: (s: { step: number; loss: number; tokens: number; lr: number }) => void
}

/** Linear warm-up, then a cosine from peak to floor. */
export function learningRate(o: Pick<PretrainOptions, 'peak' | 'floor' | 'warmup' | 'steps'>, step: number): number {
  if (step <= o.warmup) return (o.peak * step) / o.warmup
  const t = (step - o.warmup) / Math.max(1, o.steps - o.warmup)
  return o.floor + 0.5 * (o.peak - o.floor) * (1 + Math.cos(Math.PI * t))
}

/** Cross-entropy on weighted tokens, epoch by epoch in keyed order. */
export async function pretrain(
  model: Model,
  examples: readonly Example[],
  o: PretrainOptions,
  signal: AbortSignal,
): Promise<number> {
  let order: Example[] = []
  let epoch = 0
  let tokens = 0
  for (let step = 1; step <= o.steps; step++) {
    const batch: Datum[] = []
    for (let n = 0; n < o.batchTokens; ) {
      if (order.length === 0) order = keyed('pretrain', o.seed, epoch++).shuffle(examples)
      const e = order.pop()!
      batch.push({ tokens: e.tokens, mask: e.weights.map((w) => (w > 0 ? 1 : 0)), weights: e.weights, advantage: 0 })
      n += e.tokens.length
    }
    const lr = learningRate(o, step)
    const report = await model.forwardBackward(batch, { kind: 'cross_entropy' }, signal)
    await model.optimStep({ learningRate: lr, beta2: 0.95, weightDecay: o.weightDecay, gradClip: 1 }, signal)
    tokens += batch.reduce((s, d) => s + d.tokens.length, 0)
    o.onStep?.({ step, loss: report.loss, tokens, lr })
  }
  return tokens
}

/** Mean negative log-probability a token, of code (weight 1) and outcome (heavier) tokens apart. */
export async function validationLoss(
  sampler: Sampler,
  examples: readonly Example[],
  outcomeWeight: number,
  signal: AbortSignal,
): Promise<{ code: number; outcome: number }> {
  const rows = await sampler.logprobs(
    examples.map((e) => e.tokens),
    signal,
  )
  const sums = { code: [0, 0], outcome: [0, 0] } as Record<'code' | 'outcome', [number, number]>
  examples.forEach((e, k) => {
    e.weights.forEach((w, i) => {
      if (w <= 0 || i === 0) return
      const s = sums[w === outcomeWeight ? 'outcome' : 'code']
      s[0] -= rows[k]![i]!
      s[1]++
    })
  })
  return { code: sums.code[0] / sums.code[1], outcome: sums.outcome[0] / sums.outcome[1] }
}
