import { rankCorrelation } from '../core/index.ts'

/** A mean with its 95 % interval; lo and hi are null where n < 2 (one value has no interval). */
export interface Interval {
  readonly mean: number | null
  readonly lo: number | null
  readonly hi: number | null
  readonly n: number
}

export const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length

/** Two-sided 95 % interval of the mean by Student's t; the values must be independent (seeds, or tasks). */
export function meanInterval(x: readonly number[]): Interval {
  const n = x.length
  if (n === 0) return { mean: null, lo: null, hi: null, n }
  const m = mean(x)
  if (n < 2) return { mean: m, lo: null, hi: null, n }
  const s = Math.sqrt(x.reduce((a, b) => a + (b - m) ** 2, 0) / (n - 1))
  const h = (tQuantile975(n - 1) * s) / Math.sqrt(n)
  return { mean: m, lo: m - h, hi: m + h, n }
}

const T975 = [
  12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281, 2.201, 2.1788, 2.1604, 2.1448, 2.1314,
  2.1199, 2.1098, 2.1009, 2.093, 2.086, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
]

/** .975 quantile of Student's t: tabled to 30 degrees of freedom, above by Cornish-Fisher (error below 1e-4). */
export function tQuantile975(df: number): number {
  if (df < 1) return Number.POSITIVE_INFINITY
  const tabled = T975[Math.floor(df) - 1]
  if (tabled !== undefined) return tabled
  const z = 1.959963985
  return z + (z ** 3 + z) / (4 * df) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df * df)
}

/** Spearman's correlation by mid-ranks; undefined where either side is constant (a constant predictor ranks nothing). */
export const spearman = (a: readonly number[], b: readonly number[]): number | undefined =>
  a.length < 3 ? undefined : rankCorrelation(a, b)

/** "gain" only where the whole interval lies on one side of 0. */
export function verdictOf(i: Interval): 'higher' | 'lower' | 'no difference' {
  if (i.lo === null || i.hi === null) return 'no difference'
  return i.lo > 0 ? 'higher' : i.hi < 0 ? 'lower' : 'no difference'
}

const fixed = (v: number | null, d: number): string => (v === null ? '-' : v.toFixed(d))
export function showInterval(i: Interval, digits = 3): string {
  return i.lo === null
    ? fixed(i.mean, digits)
    : `${fixed(i.mean, digits)} [${fixed(i.lo, digits)}, ${fixed(i.hi, digits)}]`
}
