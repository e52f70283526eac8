import { keyed, ladder, percentileBin, render } from '../../core/index.ts'
import type { NanoCodec } from '../../engine/text/index.ts'
import { overview, slotNames, type TaskCard } from '../../tasks/index.ts'
import type { CorpusRow, Ended } from './collect.ts'

/** A training sequence: tokens with one weight each (0: read, not learnt). */
export interface Example {
  readonly tokens: readonly number[]
  readonly weights: readonly number[]
}

/** Outcome tokens weigh more than code: there are few of them, and the world model lives on them. */
export const OUTCOME_WEIGHT = 2

/** Percentile on a board, by the suite's rule (ties share the best place). */
export function boardRank(score: number, board: readonly number[], higher: boolean): number {
  let better = 0
  for (const b of board) if (higher ? b > score : b < score) better++
  return (board.length - better) / board.length
}

export interface Labelled {
  readonly text: string
  readonly reward: number
}

export function label(end: Ended, percentile: (score: number) => number): Labelled {
  if ('score' in end) {
    const p = percentile(end.score)
    return { text: render({ kind: 'graded', bin: percentileBin(p) }).text, reward: ladder('graded', p) }
  }
  const kind = end.text.startsWith('syntax error')
    ? 'syntax-error'
    : end.text.startsWith('invalid')
      ? 'invalid-submission'
      : 'crashed'
  return { text: end.text, reward: ladder(kind) }
}

/** Brief overview and slot names of a card, as the nano agent gets them. */
export function brief(card: TaskCard): { text: string; names: string[] } {
  return {
    text: overview(card, { style: 'brief', budget: Number.MAX_SAFE_INTEGER, count: (t) => t.length }),
    names: slotNames(card),
  }
}

/**
 * <|task|>brief<|code|>program<|end|><|obs|>outcome<|end|><|code|>second<|end|><|obs|>outcome<|end|>. The better of the
 * two programs usually stands second, so that a second turn improves. A policy's own program is read for its outcome only.
 */
export function example(
  codec: NanoCodec,
  card: TaskCard,
  row: CorpusRow,
  percentile: (score: number) => number,
  seed: number,
): Example {
  const { text, names } = brief(card)
  const r = keyed('example', seed, row.key)
  let a = { code: row.first.code, ...label(row.first.end, percentile) }
  let b = row.second ? { code: row.second.code, ...label(row.second.end, percentile) } : undefined
  if (b && b.reward < a.reward && r.next() < (b.reward >= 0.5 ? 0.85 : 0.95)) [a, b] = [b, a]
  const tokens: number[] = []
  const weights: number[] = []
  const add = (ids: readonly number[], w: number): void => {
    tokens.push(...ids)
    for (let i = 0; i < ids.length; i++) weights.push(w)
  }
  add(codec.prompt(text, names), 0)
  add(codec.program(a.code, names), b ? 1 : 0)
  add([codec.ids.obs], 0)
  add([...codec.outcome(a.text, names), codec.ids.end], OUTCOME_WEIGHT)
  if (b) {
    add([codec.ids.code], 0)
    add(codec.program(b.code, names), 1)
    add([codec.ids.obs], 0)
    add([...codec.outcome(b.text, names), codec.ids.end], OUTCOME_WEIGHT)
  }
  return { tokens, weights }
}
