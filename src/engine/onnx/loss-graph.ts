import type { Graph, Value } from './graph.ts'

/**
 * The loss of contract.ts for one packed batch, written as a sum over rows (a row predicts the next token) of
 *
 *   -ce * lp  -  min(r * A, clip(r, low, high) * A)  +  kl * (exp(d) - d - 1)  -  bonus * H
 *
 * with lp the target's log-probability, r = exp(ratio * (lp - old)), d = reference * (ref - lp) and H the exact
 * entropy. Every coefficient is an input a row and holds mask, weight and normaliser already, so one graph serves all
 * losses: cross-entropy sets `ce`, importance sampling opens the clip, padding is zero everywhere.
 */
export const rowInputs = ['ce', 'advantage', 'ratio', 'old', 'kl', 'reference', 'referenceLogprob', 'bonus'] as const
export type RowInput = (typeof rowInputs)[number]

export interface LossValues {
  /** [n, 1] each. */
  readonly logprob: Value
  readonly entropy: Value
  readonly rowLoss: Value
  /** Gradient of the loss to the logits [n, vocab]. */
  readonly dLogits: Value
}

/** `withBonus` leaves the entropy's gradient out when no step needs it: two passes over [n, vocab] less. */
export function lossGraph(g: Graph, logits: Value, rows: number, withBonus: boolean): LossValues {
  const targets = g.input('targets', 'int32', [rows, 1])
  const at = Object.fromEntries(rowInputs.map((name) => [name, g.input(name, 'float32', [rows, 1])])) as Record<
    RowInput,
    Value
  >
  const low = g.input('clipLow', 'float32', [])
  const high = g.input('clipHigh', 'float32', [])
  const mul = (x: Value, y: Value): Value => g.op('Mul', [x, y])
  const sub = (x: Value, y: Value): Value => g.op('Sub', [x, y])

  const lp = g.op('LogSoftmax', [logits], { axis: -1 })
  const p = g.op('Exp', [lp])
  const logprob = g.op('GatherElements', [lp, targets], { axis: 1 })
  const entropy = g.op('Neg', [g.op('ReduceSum', [mul(p, lp), g.ints(-1)], { keepdims: 1 })])

  const r = g.op('Exp', [mul(at.ratio, sub(logprob, at.old))])
  const open = mul(r, at.advantage)
  const clipped = mul(g.op('Clip', [r, low, high]), at.advantage)
  const surrogate = g.op('Min', [open, clipped])
  const delta = mul(at.reference, sub(at.referenceLogprob, logprob))
  const excess = sub(g.op('Exp', [delta]), g.scalar(1))
  const k3 = mul(at.kl, sub(excess, delta))
  const rowLoss = sub(sub(k3, mul(at.ce, logprob)), g.op('Add', [surrogate, mul(at.bonus, entropy)]))

  // d loss / d lp: the surrogate passes a gradient only where the open branch is the smaller one.
  const passes = g.op('Cast', [g.op('LessOrEqual', [open, clipped])], { to: 1 })
  const slope = g.op('Neg', [g.op('Add', [g.op('Add', [at.ce, mul(mul(passes, open), at.ratio)]), mul(at.kl, excess)])])

  // d loss / d logits = slope * (onehot - p) + bonus * p * (lp + H)
  const spread = withBonus
    ? mul(p, g.op('Add', [mul(lp, at.bonus), sub(mul(at.bonus, entropy), slope)]))
    : mul(p, g.op('Neg', [slope]))
  const dLogits = g.op('ScatterElements', [spread, targets, slope], { axis: 1, reduction: 'add' })
  return { logprob, entropy, rowLoss, dLogits }
}
