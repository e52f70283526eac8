import { EngineError } from '../../core/index.ts'
import type { Datum, Loss } from '../contract.ts'
import { undoReduction } from '../reduction.ts'
import { shifted } from './shift.ts'
import type { WireDatum } from './wire/messages.ts'

/** How the server reduces and under which name it takes the action mask. */
export interface LossServer {
  readonly reduction: 'sum' | 'sequence-mean'
  readonly maskInput: 'weights' | 'mask' | undefined
  readonly losses: Readonly<Record<string, boolean>>
}

export interface LossCall {
  readonly loss: string
  readonly data: readonly WireDatum[]
  readonly config?: Readonly<Record<string, number>>
}

const actionTokens = (d: Datum): number => d.mask.reduce((n, m) => n + m, 0)
const weightAt = (d: Datum, t: number): number => (d.mask[t] === 1 ? (d.weights?.[t] ?? 1) : 0)

/** The contract's normaliser: data for ratio losses, weights for cross-entropy, unless given. */
export function normaliserOf(data: readonly Datum[], loss: Loss): number {
  const usual =
    loss.kind === 'cross_entropy'
      ? data.reduce((s, d) => s + d.mask.reduce((w, _, t) => w + weightAt(d, t), 0), 0)
      : data.length
  const n = loss.normaliser ?? usual
  if (!(n > 0 && Number.isFinite(n))) throw new EngineError(`loss normaliser is ${n}`)
  return n
}

/** @throws EngineError naming the datum that breaks the contract. What a server must not be sent is checked again there. */
export function checkDatums(data: readonly Datum[], loss: Loss): void {
  data.forEach((d, i) => {
    const fail = (what: string): never => {
      throw new EngineError(`datum ${i}: ${what}`)
    }
    const n = d.tokens.length
    if (n < 2) fail('nothing predicts its only token')
    if (d.mask.length !== n) fail(`mask has ${d.mask.length} entries for ${n} tokens`)
    if (d.mask[0] !== 0) fail('mask of token 0 is not 0; nothing predicts it')
    if (actionTokens(d) === 0) fail('no action tokens')
    for (const [name, list] of [
      ['logprobs', d.logprobs],
      ['weights', d.weights],
      ['reference', d.reference],
    ] as const)
      if (list && list.length !== n) fail(`${name} has ${list.length} entries for ${n} tokens`)
    if (d.weights?.some((w) => !(w >= 0))) fail('a weight is negative or not a number')
    if (loss.kind !== 'cross_entropy') {
      if (!d.logprobs) fail(`${loss.kind} needs the log-probabilities of sampling`)
      if (!Number.isFinite(d.advantage)) fail(`advantage is ${d.advantage}`)
    }
    if (loss.kl && !d.reference) fail('kl needs the reference log-probabilities')
  })
}

/**
 * The loss as the server's own, in one call; undefined where the server cannot express it: a divergence term, or weights a
 * token on a server that divides by them.
 */
export function ownLoss(data: readonly Datum[], loss: Loss, server: LossServer): LossCall | undefined {
  if (loss.kl || loss.truncate !== undefined) return undefined
  const normaliser = normaliserOf(data, loss)
  if (loss.kind === 'cross_entropy') {
    if (server.reduction !== 'sum') return undefined
    return {
      loss: 'cross_entropy',
      data: data.map((d) => shifted(d.tokens, { weights: d.mask.map((_, t) => weightAt(d, t) / normaliser) })),
    }
  }
  if (!server.losses[loss.kind]) return undefined
  return {
    loss: loss.kind,
    data: ratioData(data, server, (d, t) => ({
      old: d.logprobs![t]!,
      advantage: (d.advantage * weightAt(d, t)) / normaliser,
    })),
    ...(loss.kind === 'ppo'
      ? {
          config: { clip_low_threshold: 1 - (loss.clipLow ?? 0.2), clip_high_threshold: 1 + (loss.clipHigh ?? 0.2) },
        }
      : {}),
  }
}

/** The forward call of the two-call form. */
export function forwardData(data: readonly Datum[]): readonly WireDatum[] {
  return data.map((d) => shifted(d.tokens, { weights: d.mask }))
}

/**
 * Any loss of the tokens' log-probabilities, from those log-probabilities: importance sampling at ratio 1 whose advantage a
 * token is minus the loss's slope. Unlike cross-entropy with weights it also holds where a server divides by the weights.
 */
export function slopeLoss(
  data: readonly Datum[],
  loss: Loss,
  server: LossServer,
  logprobs: readonly Float32Array[],
): LossCall {
  const normaliser = normaliserOf(data, loss)
  return {
    loss: 'importance_sampling',
    data: ratioData(data, server, (d, t, i) => {
      const lp = logprobs[i]![t]!
      return { old: lp, advantage: -slope(d, t, lp, loss) / normaliser }
    }),
  }
}

/** Probability now over probability at sampling. A truncated ratio is a weight: it has no slope of its own. */
function ratioOf(d: Datum, t: number, lp: number, loss: Loss): number {
  return Math.min(Math.exp(lp - d.logprobs![t]!), loss.truncate ?? Number.POSITIVE_INFINITY)
}

/** d loss / d log p of one token, without the normaliser. */
function slope(d: Datum, t: number, lp: number, loss: Loss): number {
  if (d.mask[t] !== 1) return 0
  const w = weightAt(d, t)
  const kl = loss.kl ? loss.kl * (1 - Math.exp(d.reference![t]! - lp)) : 0
  if (loss.kind === 'cross_entropy') return -w + kl
  const ratio = ratioOf(d, t, lp, loss)
  const a = d.advantage * w
  if (loss.kind === 'importance_sampling') return -ratio * a + kl
  const clipped = Math.min(1 + (loss.clipHigh ?? 0.2), Math.max(1 - (loss.clipLow ?? 0.2), ratio)) * a
  return (ratio * a <= clipped ? -ratio * a : 0) + kl
}

/** The loss's value from the log-probabilities: what a server reports as its loss differs from one to the next. */
export function lossValue(data: readonly Datum[], loss: Loss, logprobs: readonly Float32Array[]): number {
  const normaliser = normaliserOf(data, loss)
  let sum = 0
  data.forEach((d, i) => {
    for (let t = 1; t < d.tokens.length; t++) {
      if (d.mask[t] !== 1) continue
      const lp = logprobs[i]![t]!
      const w = weightAt(d, t)
      if (loss.kind === 'cross_entropy') sum -= w * lp
      else {
        const ratio = ratioOf(d, t, lp, loss)
        const a = d.advantage * w
        const clipped = Math.min(1 + (loss.clipHigh ?? 0.2), Math.max(1 - (loss.clipLow ?? 0.2), ratio)) * a
        sum -= loss.kind === 'ppo' ? Math.min(ratio * a, clipped) : ratio * a
      }
      if (loss.kl) {
        const delta = d.reference![t]! - lp
        sum += loss.kl * (Math.exp(delta) - delta - 1)
      }
    }
  })
  return sum / normaliser
}

/**
 * Data of a ratio loss with an advantage a token. The mask is always sent: without it some servers count prompt tokens. A
 * server that takes the mean over action tokens and then over data gets that mean undone first (reduction.ts).
 */
function ratioData(
  data: readonly Datum[],
  server: LossServer,
  of: (d: Datum, t: number, i: number) => { old: number; advantage: number },
): WireDatum[] {
  return data.map((d, i) => {
    const undo = undoReduction(server.reduction, actionTokens(d), data.length)
    const values = d.mask.map((m, t) => (m === 1 ? of(d, t, i) : { old: 0, advantage: 0 }))
    return shifted(d.tokens, {
      logprobs: values.map((v) => v.old),
      advantages: values.map((v) => v.advantage * undo),
      ...(server.maskInput ? { [server.maskInput]: d.mask } : {}),
    })
  })
}
