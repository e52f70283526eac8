import type { Belief, Outcome, OutcomeKind } from './outcome.ts'
import { type Score, score } from './score.ts'

/**
 * The reward ladder (method.md section 1): malformed or syntax error 0; crashed, timed out or out of memory .1; ran
 * without a valid submission .2; valid .5 + .5 x percentile. `percentile` is read for `graded` only.
 */
export function ladder(kind: OutcomeKind, percentile = 0): Score {
  switch (kind) {
    case 'malformed':
    case 'syntax-error':
      return score(0)
    case 'crashed':
    case 'timed-out':
    case 'out-of-memory':
      return score(0.1)
    case 'invalid-submission':
      return score(0.2)
    case 'graded':
      return score(0.5 + 0.5 * percentile)
  }
}

/**
 * The ladder as the release has it (upstream.md): a valid submission at the last place, or below it, counts as an invalid one,
 * and one without a place as nothing. For comparing published numbers; no judge uses it, since it rewards a valid program
 * like one that wrote nothing, and our missing board like a fault of the agent.
 */
export function releaseLadder(kind: OutcomeKind, percentile: number | undefined): Score {
  if (kind !== 'graded') return ladder(kind)
  if (percentile === undefined || Number.isNaN(percentile)) return score(0)
  return percentile > 0 ? ladder(kind, percentile) : score(0.2)
}

export function rewardOf(outcome: Outcome): Score {
  return ladder(outcome.kind, outcome.kind === 'graded' ? outcome.percentile : 0)
}

/** Expectation of the ladder under a belief, and its standard deviation. */
export function expectedReward(belief: Belief): { mean: Score; spread: number } {
  let mean = 0
  let square = 0
  let total = 0
  for (const a of belief.alternatives) {
    const r = ladder(a.kind, a.percentile ?? 0)
    mean += a.p * r
    square += a.p * r * r
    total += a.p
  }
  if (!(Math.abs(total - 1) < 1e-6)) throw new RangeError(`a belief's probabilities must sum to 1, got ${total}`)
  const m = Math.min(1, Math.max(0, mean))
  return { mean: score(m), spread: Math.sqrt(Math.max(0, square - mean * mean)) }
}
