import { EngineError } from '../../core/index.ts'
import type { Datum, Loss } from '../contract.ts'
import { type RowInput, rowInputs } from './loss-graph.ts'
import { type Pack, rowIndex } from './packing.ts'

export interface LossPlan {
  readonly loss: Loss
  readonly normaliser: number
  readonly clip: readonly [number, number]
  /** Tokens with mask 1 over all data. */
  readonly tokens: number
}

/** Checks data against the contract; an error names the datum and what is wrong with it. */
export function planLoss(data: readonly Datum[], loss: Loss, limits: { context: number; vocab: number }): LossPlan {
  let weight = 0
  let tokens = 0
  data.forEach((d, i) => {
    checkDatum(d, i, loss, limits)
    for (let t = 1; t < d.tokens.length; t++) {
      if (d.mask[t] === 0) continue
      tokens++
      weight += d.weights?.[t] ?? 1
    }
  })
  const usual = loss.kind === 'cross_entropy' ? weight : data.length
  const normaliser = loss.normaliser ?? usual
  if (!(normaliser > 0 && Number.isFinite(normaliser))) {
    throw new EngineError(`loss normaliser is ${normaliser}; data without a weighted token cannot be trained on`)
  }
  const clip: [number, number] =
    loss.kind === 'ppo' ? [1 - (loss.clipLow ?? 0.2), 1 + (loss.clipHigh ?? 0.2)] : [0, 3.4e38]
  return { loss, normaliser, clip, tokens }
}

function checkDatum(d: Datum, i: number, loss: Loss, limits: { context: number; vocab: number }): void {
  const n = d.tokens.length
  const fail = (what: string): never => {
    throw new EngineError(`datum ${i}: ${what}`)
  }
  if (n < 1 || n > limits.context) fail(`${n} tokens, the model holds 1..${limits.context}`)
  if (d.mask.length !== n) fail(`mask has ${d.mask.length} entries for ${n} tokens`)
  if (d.mask.some((m) => m !== 0 && m !== 1)) fail('mask entries are 0 or 1')
  if (d.mask[0] !== 0) fail('mask of token 0 is not 0; nothing predicts it')
  for (const t of d.tokens) {
    if (!Number.isInteger(t) || t < 0 || t >= limits.vocab) fail(`token ${t} is outside the vocabulary`)
  }
  for (const [name, list] of [
    ['logprobs', d.logprobs],
    ['weights', d.weights],
    ['reference', d.reference],
  ] as const) {
    if (list && list.length !== n) fail(`${name} has ${list.length} entries for ${n} tokens`)
  }
  if (d.weights?.some((w) => !(w >= 0))) fail('a weight is negative or not a number')
  if (loss.kind !== 'cross_entropy' && !d.logprobs) fail(`${loss.kind} needs the log-probabilities of sampling`)
  if (loss.kl && !d.reference) fail('kl needs the reference log-probabilities')
  const needed = [loss.kind === 'cross_entropy' ? undefined : d.logprobs, loss.kl ? d.reference : undefined]
  const missing = d.mask.findIndex((m, t) => m === 1 && needed.some((list) => list && !Number.isFinite(list[t])))
  if (missing >= 0) fail(`a log-probability at token ${missing} is not finite`)
  if (loss.kind !== 'cross_entropy' && !Number.isFinite(d.advantage)) fail(`advantage is ${d.advantage}`)
}

/** The token that each row predicts; 0 where it predicts none. */
export function targetRows(pack: Pack, data: readonly Datum[]): Int32Array {
  const out = new Int32Array(pack.shape.batch * pack.shape.length)
  for (const p of pack.placements) {
    for (let i = 0; i < p.length; i++) {
      out[rowIndex(pack.shape, p.row, p.start + i)] = data[p.item]!.tokens[i + 1]!
    }
  }
  return out
}

/** The row inputs of loss-graph.ts: row t of a sequence predicts token t + 1. */
export function lossRows(pack: Pack, data: readonly Datum[], plan: LossPlan): Record<RowInput, Float32Array> {
  const { loss, normaliser } = plan
  const n = pack.shape.batch * pack.shape.length
  const out = Object.fromEntries(rowInputs.map((name) => [name, new Float32Array(n)])) as Record<RowInput, Float32Array>
  for (const p of pack.placements) {
    const d = data[p.item]!
    for (let i = 0; i < p.length; i++) {
      if (d.mask[i + 1] === 0) continue
      const row = rowIndex(pack.shape, p.row, p.start + i)
      const weight = d.weights?.[i + 1] ?? 1
      if (loss.kind === 'cross_entropy') {
        out.ce[row] = weight / normaliser
      } else {
        out.ratio[row] = 1
        out.old[row] = d.logprobs![i + 1]!
        out.advantage[row] = (weight * d.advantage) / normaliser
      }
      if (loss.kl) {
        out.kl[row] = loss.kl / normaliser
        out.reference[row] = 1
        out.referenceLogprob[row] = d.reference![i + 1]!
      }
      if (loss.entropyBonus) out.bonus[row] = loss.entropyBonus / normaliser
    }
  }
  return out
}
