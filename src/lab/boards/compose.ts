import { averageRanks } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import type { Recipe } from './recipes.ts'

/** A recipe that ran and was graded on both scopes, with its error on every test row. */
export interface Scored {
  readonly recipe: Recipe
  readonly feedback: number
  readonly final: number
  /** Prediction minus target a row; for labels and lists 1 where the (first) label is wrong. */
  readonly errors: Float64Array
}

export interface Composition {
  readonly kept: readonly Scored[]
  readonly left: readonly { recipe: string; why: string }[]
  /** Errors of no two kept recipes correlate above this. */
  readonly correlation: number
}

export const MOST_CORRELATED = 0.98
export const LEAST_ENTRIES = 70
export const CRIPPLED_SHARE = 0.2
/** Strong entries of a board, and the families that they come from. */
export const LEAST_STRONG = 25
export const LEAST_STRONG_FAMILIES = 5

/**
 * Composes a leaderboard: recipes compete in listed order, a recipe whose errors correlate above .98 with one already
 * there is left out, crippled ones fill at most a fifth. Where noise dominates, good models all err alike; if fewer than
 * 70 entries are left the bound rises by .002 at a time until 70 are reached or every recipe is in, and the bound is recorded.
 */
export function composeBoard(scored: readonly Scored[]): Composition {
  for (let bound = MOST_CORRELATED; ; bound += 0.002) {
    const c = compose(scored, bound)
    if (c.kept.length >= LEAST_ENTRIES || bound > 1) return { ...c, correlation: Math.min(1, Number(bound.toFixed(4))) }
  }
}

function compose(scored: readonly Scored[], bound: number): Omit<Composition, 'correlation'> {
  const kept: Scored[] = []
  const left: { recipe: string; why: string }[] = []
  for (const s of scored) {
    if (s.recipe.strength === 'crippled') {
      const crippled = kept.filter((k) => k.recipe.strength === 'crippled').length
      if (crippled + 1 > CRIPPLED_SHARE * (kept.length + 1)) {
        left.push({ recipe: s.recipe.name, why: 'a fifth of the board is crippled already' })
        continue
      }
    }
    const twin = kept.find((k) => correlation(k.errors, s.errors) > bound)
    if (twin) left.push({ recipe: s.recipe.name, why: `its errors are those of ${twin.recipe.name}` })
    else kept.push(s)
  }
  return { kept, left }
}

/** Pearson; 1 for two equal vectors without variance, 0 where only one has none. */
export function correlation(a: Float64Array, b: Float64Array): number {
  const n = a.length
  let ma = 0
  let mb = 0
  for (let i = 0; i < n; i++) {
    ma += a[i]! / n
    mb += b[i]! / n
  }
  let sab = 0
  let saa = 0
  let sbb = 0
  for (let i = 0; i < n; i++) {
    sab += (a[i]! - ma) * (b[i]! - mb)
    saa += (a[i]! - ma) ** 2
    sbb += (b[i]! - mb) ** 2
  }
  if (saa < 1e-18 || sbb < 1e-18) return saa < 1e-18 && sbb < 1e-18 ? 1 : 0
  return sab / Math.sqrt(saa * sbb)
}

/** Metrics that read the order of predictions only, so that their scale is arbitrary. */
const BY_ORDER = new Set(['spearman', 'cindex', 'auc', 'average_precision', 'capture_at_20'])

/**
 * Errors of checked cells against the truth, columns one after another; values are scaled by the truth's spread. Where only
 * the order counts, predictions (and for Spearman and the concordance index truths) are ranks in [0,1].
 */
export function errorVector(
  card: TaskCard,
  predicted: readonly (readonly string[])[],
  truth: readonly (readonly string[])[],
): Float64Array {
  const kind = card.submission.kind
  const n = truth[0]!.length
  if (kind === 'label' || kind === 'topk') {
    return Float64Array.from({ length: n }, (_, i) => (predicted[0]![i]!.split(/\s+/)[0] === truth[0]![i] ? 0 : 1))
  }
  if (kind === 'proba') {
    const classes = card.submission.columns
    return Float64Array.from({ length: n }, (_, i) => 1 - Number(predicted[classes.indexOf(truth[0]![i]!)]![i]))
  }
  if (BY_ORDER.has(card.metric.name)) {
    const p = averageRanks(predicted[0]!.map(Number)).map((r) => r / n)
    const y = truth[0]!.map(Number)
    const sign = card.metric.name === 'cindex' ? -1 : 1
    const t = kind === 'prob' ? y : averageRanks(y.map((v) => sign * v)).map((r) => r / n)
    return Float64Array.from({ length: n }, (_, i) => p[i]! - t[i]!)
  }
  const out = new Float64Array(n * truth.length)
  truth.forEach((column, c) => {
    const y = column.map(Number)
    const mean = y.reduce((a, b) => a + b, 0) / n
    const spread = Math.sqrt(y.reduce((a, b) => a + (b - mean) ** 2, 0) / n) || 1
    y.forEach((t, i) => {
      out[c * n + i] = (Number(predicted[c]![i]) - t) / spread
    })
  })
  return out
}
