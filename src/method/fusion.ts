/** EMA weight with half-life h: 1 - .5^(1/h) (golden G10). */
export const emaAlpha = (halfLife: number): number => 1 - 0.5 ** (1 / halfLife)

/**
 * Residual disagreement of a calibrated anchor group: mean of (f_c - r_c)^2 over var(r), centred within the group,
 * population variance; null where var(r) < 1e-9 (nothing to compare), which is then not pushed. Members without both
 * scores are left out.
 */
export function disagreement(f: readonly (number | null)[], r: readonly (number | null)[]): number | null {
  const both = f.flatMap((v, i) => (v !== null && r[i] !== null && r[i] !== undefined ? [[v, r[i]!] as const] : []))
  const n = both.length
  if (n < 2) return null
  const mf = both.reduce((s, [a]) => s + a, 0) / n
  const mr = both.reduce((s, [, b]) => s + b, 0) / n
  const v = both.reduce((s, [, b]) => s + (b - mr) ** 2, 0) / n
  if (v < 1e-9) return null
  return both.reduce((s, [a, b]) => s + (a - mf - (b - mr)) ** 2, 0) / n / v
}

/** State of Inverse-Variance Denoising; plain data. */
export interface DenoiserState {
  readonly groups: number
  readonly s2: number | null
  /** 1/s2 at the end of the warm-up. */
  readonly c: number | null
}
export const NO_DENOISER: DenoiserState = { groups: 0, s2: null, c: null }

export function pushDisagreement(
  s: DenoiserState,
  s2: number | null,
  opts: { halfLife: number; warmup: number },
): DenoiserState {
  if (s2 === null) return s
  const a = emaAlpha(opts.halfLife)
  const ema = s.s2 === null ? s2 : s.s2 + a * (s2 - s.s2)
  const groups = s.groups + 1
  return { groups, s2: ema, c: s.c ?? (groups >= opts.warmup && ema > 0 ? 1 / ema : null) }
}

/** rho = clip(1 + c s2, 1, max); 1 before the warm-up is over (golden G11). */
export function anchorWeight(s: DenoiserState, max = 4): number {
  return s.c === null || s.s2 === null ? 1 : Math.min(max, Math.max(1, 1 + s.c * s.s2))
}

/** Factors on the advantages of anchor and predicted groups that realise g = (rho sum_E + sum_W)/(rho|E|+|W|) in a mean over B. */
export function fusionFactors(rho: number, anchors: number, predicted: number): { anchor: number; predicted: number } {
  const b = anchors + predicted
  if (b === 0) return { anchor: 0, predicted: 0 }
  const d = rho * anchors + predicted
  return { anchor: (rho * b) / d, predicted: b / d }
}

/** The fused gradient itself, of per-group gradients (golden G12). An empty side never divides by zero. */
export function fuseGradients(
  e: readonly (readonly number[])[],
  w: readonly (readonly number[])[],
  rho: number,
): number[] {
  const f = fusionFactors(rho, e.length, w.length)
  const b = e.length + w.length
  const dims = (e[0] ?? w[0] ?? []).length
  return Array.from(
    { length: dims },
    (_, k) => (f.anchor * e.reduce((s, g) => s + g[k]!, 0) + f.predicted * w.reduce((s, g) => s + g[k]!, 0)) / b,
  )
}

/** Variance of the fusion of independent groups with per-group variances vE and vW (golden G13). */
export function fusionVariance(o: { anchors: number; predicted: number; vE: number; vW: number; rho: number }): number {
  return (o.rho ** 2 * o.anchors * o.vE + o.predicted * o.vW) / (o.rho * o.anchors + o.predicted) ** 2
}

/** Weight that minimises mean squared error over a horizon of H steps: bias adds up, variance averages out (golden G14). */
export function mseWeight(o: {
  anchors: number
  predicted: number
  vE: number
  vW: number
  bias2: number
  horizon: number
}): { rho: number; anchorShare: number } {
  const rho = (o.vW + o.predicted * o.horizon * o.bias2) / o.vE
  return { rho, anchorShare: (rho * o.anchors) / (rho * o.anchors + o.predicted) }
}
