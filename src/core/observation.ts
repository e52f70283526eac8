import type { Observation } from './attempt.ts'
import type { Belief, Outcome } from './outcome.ts'

/** Percentile bins that both judges can speak of; a bin of .05 is what the world model resolves. */
export const PERCENTILE_BINS = 20

export function percentileBin(percentile: number): number {
  return Math.min(PERCENTILE_BINS - 1, Math.max(0, Math.floor(percentile * PERCENTILE_BINS)))
}

/** Middle of a bin, the value that a belief over bins puts its weight on. */
export function binCentre(bin: number): number {
  return (bin + 0.5) / PERCENTILE_BINS
}

/** What an observation says, before it is text: the least that both an execution and a belief can supply. */
export type Shown =
  | { readonly kind: 'graded'; readonly bin: number }
  | { readonly kind: Exclude<Outcome['kind'], 'graded'>; readonly detail?: string }

export function shownOf(outcome: Outcome): Shown {
  switch (outcome.kind) {
    case 'graded':
      return { kind: 'graded', bin: percentileBin(outcome.percentile) }
    case 'invalid-submission':
      return { kind: outcome.kind, detail: outcome.message }
    case 'crashed':
    case 'syntax-error':
      return { kind: outcome.kind, detail: `${outcome.error.type}: ${outcome.error.message}` }
    default:
      return { kind: outcome.kind }
  }
}

export function shownDraw(belief: Belief): Shown {
  const a = belief.alternatives[belief.shown]
  if (!a) throw new RangeError(`belief.shown = ${belief.shown} names no alternative`)
  if (a.kind === 'graded') return { kind: 'graded', bin: percentileBin(a.percentile ?? 0) }
  return a.detail === undefined ? { kind: a.kind } : { kind: a.kind, detail: a.detail }
}

/** Longest detail kept, in characters; longer ones keep head and tail, since Python names the fault at either end. */
export const DETAIL_LIMIT = 160

/** Replaces control characters, so that no program output can steer a terminal or a prompt; then cuts the middle. */
export function cleanDetail(text: string, limit = DETAIL_LIMIT): string {
  const flat = text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]+/g, ' ').trim()
  if (flat.length <= limit) return flat
  const head = Math.ceil((limit - 3) / 2)
  return `${flat.slice(0, head)}...${flat.slice(flat.length - (limit - 3 - head))}`
}

/**
 * The one renderer (invariant 11): executed outcomes and the belief's shown draw become text here and nowhere else.
 * The raw competition score is left out, because a belief has none.
 */
export function render(shown: Shown): Observation {
  switch (shown.kind) {
    case 'graded': {
      const lo = shown.bin / PERCENTILE_BINS
      return { text: `valid: better than ${lo.toFixed(2)} of the board` }
    }
    case 'invalid-submission':
      return { text: `invalid submission${tail(shown.detail)}` }
    case 'crashed':
      return { text: `error${tail(shown.detail)}` }
    case 'syntax-error':
      return { text: `syntax error${tail(shown.detail)}` }
    case 'timed-out':
      return { text: 'timed out' }
    case 'out-of-memory':
      return { text: 'out of memory' }
    case 'malformed':
      return { text: 'no program found' }
  }
}

function tail(detail: string | undefined): string {
  const d = detail === undefined ? '' : cleanDetail(detail)
  return d === '' ? '' : `: ${d}`
}
