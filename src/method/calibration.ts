import { pav } from './pav.ts'

/** What was predicted (x) and what an execution then gave (y), both in [0,1]. */
export interface Pair {
  readonly x: number
  readonly y: number
}

/**
 * A monotone map on [0,1] as a polyline: linear between knots, constant outside, clamped to [0,1]. `version` 0 is the
 * identity, which has no knots.
 */
export interface CalibrationMap {
  readonly version: number
  readonly knots: readonly number[]
  readonly values: readonly number[]
  readonly weights: readonly number[]
}

export const IDENTITY: CalibrationMap = { version: 0, knots: [], values: [], weights: [] }

export type Binning = 'equal_width' | 'equal_mass' | 'distinct'

export interface FitOptions {
  readonly kind: 'isotonic' | 'centered_isotonic' | 'affine'
  readonly bins: number
  readonly binning: Binning
  /** Pseudo-pairs a bin on the identity; 0 for the paper. */
  readonly prior: number
}

interface Bin {
  x: number
  y: number
  weight: number
}

/** Same x to within this is one point: near-duplicates would make slopes without bound. */
const SAME_X = 1e-12

/**
 * Fits a map to pairs. Fewer than two distinct x give the identity. The result depends on neither the order of the pairs
 * nor on splitting a pair in halves.
 */
export function fitMap(pairs: readonly Pair[], opts: FitOptions, version: number): CalibrationMap {
  const points = merge(pairs)
  if (points.length < 2) return { ...IDENTITY, version: 0 }
  if (opts.kind === 'affine') return affine(points, version)
  const bins = binned(points, opts)
  if (bins.length < 2) return { ...IDENTITY, version: 0 }
  const y = bins.map((b) => (b.y * b.weight + opts.prior * b.x) / (b.weight + opts.prior))
  const w = bins.map((b) => b.weight + opts.prior)
  const fitted = pav(y, w)
  const knots = bins.map((b) => b.x)
  return opts.kind === 'centered_isotonic'
    ? centred(knots, fitted, w, version)
    : { version, knots, values: fitted, weights: w }
}

/** Equal x become one point with summed weight, sorted. */
function merge(pairs: readonly Pair[]): Bin[] {
  const sorted = pairs
    .map((p) => {
      if (!(p.x >= 0 && p.x <= 1 && p.y >= 0 && p.y <= 1))
        throw new RangeError(`pair (${p.x}, ${p.y}) is outside [0,1]`)
      return p
    })
    .sort((a, b) => a.x - b.x || a.y - b.y)
  const out: Bin[] = []
  for (const p of sorted) {
    const last = out[out.length - 1]
    if (last && p.x - last.x <= SAME_X) {
      last.y = (last.y * last.weight + p.y) / (last.weight + 1)
      last.weight++
    } else out.push({ x: p.x, y: p.y, weight: 1 })
  }
  return out
}

function binned(points: readonly Bin[], opts: FitOptions): Bin[] {
  if (opts.binning === 'distinct' || (opts.binning === 'equal_mass' && points.length <= opts.bins)) return [...points]
  const total = points.reduce((s, p) => s + p.weight, 0)
  let seen = 0
  const index = (p: Bin): number => {
    if (opts.binning === 'equal_width') {
      // Edges are i * (1/bins) in floating point, as the release's: .6 lies below 6 * .1 and shares a bin with .525.
      let k = 0
      while (k + 1 < opts.bins && (k + 1) * (1 / opts.bins) <= p.x) k++
      return k
    }
    // Equal mass: a point belongs to the bin of its middle, so equal x are never split.
    const k = Math.min(opts.bins - 1, Math.floor(((seen + p.weight / 2) / total) * opts.bins))
    seen += p.weight
    return k
  }
  const out = new Map<number, Bin>()
  for (const p of points) {
    const k = index(p)
    const b = out.get(k)
    if (!b) out.set(k, { ...p })
    else {
      b.x = (b.x * b.weight + p.x * p.weight) / (b.weight + p.weight)
      b.y = (b.y * b.weight + p.y * p.weight) / (b.weight + p.weight)
      b.weight += p.weight
    }
  }
  return [...out.values()]
}

/** Centered isotonic regression (Oron and Flournoy): a pool becomes one point at its mean x, so no plateau is left inside. */
function centred(x: readonly number[], y: readonly number[], w: readonly number[], version: number): CalibrationMap {
  const out: Bin[] = []
  for (let i = 0; i < x.length; i++) {
    const last = out[out.length - 1]
    if (last && Math.abs(last.y - y[i]!) < SAME_X) {
      last.x = (last.x * last.weight + x[i]! * w[i]!) / (last.weight + w[i]!)
      last.weight += w[i]!
    } else out.push({ x: x[i]!, y: y[i]!, weight: w[i]! })
  }
  return { version, knots: out.map((b) => b.x), values: out.map((b) => b.y), weights: out.map((b) => b.weight) }
}

/** Least squares with a slope of at least 0, as two knots at 0 and 1. */
function affine(points: readonly Bin[], version: number): CalibrationMap {
  const n = points.reduce((s, p) => s + p.weight, 0)
  const mx = points.reduce((s, p) => s + p.weight * p.x, 0) / n
  const my = points.reduce((s, p) => s + p.weight * p.y, 0) / n
  const sxx = points.reduce((s, p) => s + p.weight * (p.x - mx) ** 2, 0)
  const sxy = points.reduce((s, p) => s + p.weight * (p.x - mx) * (p.y - my), 0)
  const b = Math.max(0, sxy / sxx)
  return { version, knots: [0, 1], values: [my - b * mx, my + b * (1 - mx)], weights: [n, n] }
}

/** Linear inside, clamped outside; finite for every x in [0,1]. */
export function applyMap(map: CalibrationMap, x: number): number {
  const { knots, values } = map
  if (knots.length === 0) return x
  const clamp = (v: number): number => Math.min(1, Math.max(0, v))
  if (x <= knots[0]!) return clamp(values[0]!)
  const last = knots.length - 1
  if (x >= knots[last]!) return clamp(values[last]!)
  let lo = 0
  let hi = last
  while (hi - lo > 1) {
    const mid = (lo + hi) >> 1
    if (knots[mid]! <= x) lo = mid
    else hi = mid
  }
  const span = knots[hi]! - knots[lo]!
  const t = span <= SAME_X ? 0 : (x - knots[lo]!) / span
  return clamp(values[lo]! + t * (values[hi]! - values[lo]!))
}
