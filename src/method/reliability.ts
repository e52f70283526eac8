/** Within-group centred sums over anchor groups, as EMAs; plain data. */
export interface ReliabilityState {
  readonly sff: number
  readonly srr: number
  readonly sfr: number
  readonly groups: number
}
/** What the sums keep of themselves an anchor group: a memory of about 20 groups. */
export const RELIABILITY_BETA = 0.95
export const NO_RELIABILITY: ReliabilityState = { sff: 0, srr: 0, sfr: 0, groups: 0 }

/** Centred sums of one group over members with both scores. */
export function centredSums(
  f: readonly (number | null)[],
  r: readonly (number | null)[],
): { sff: number; srr: number; sfr: number; n: number } {
  const both = f.flatMap((v, i) => (v !== null && r[i] !== null && r[i] !== undefined ? [[v, r[i]!] as const] : []))
  const n = both.length
  const mf = both.reduce((s, [a]) => s + a, 0) / Math.max(1, n)
  const mr = both.reduce((s, [, b]) => s + b, 0) / Math.max(1, n)
  let sff = 0
  let srr = 0
  let sfr = 0
  for (const [a, b] of both) {
    sff += (a - mf) ** 2
    srr += (b - mr) ** 2
    sfr += (a - mf) * (b - mr)
  }
  return { sff, srr, sfr, n }
}

/** `f` must be calibrated by the map from before these pairs were pushed (prequential), else the figure flatters itself. */
export function pushReliability(
  s: ReliabilityState,
  f: readonly (number | null)[],
  r: readonly (number | null)[],
  beta = RELIABILITY_BETA,
): ReliabilityState {
  const g = centredSums(f, r)
  if (g.n < 2) return s
  const mix = (a: number, b: number): number => (s.groups === 0 ? b : beta * a + (1 - beta) * b)
  return { sff: mix(s.sff, g.sff), srr: mix(s.srr, g.srr), sfr: mix(s.sfr, g.sfr), groups: s.groups + 1 }
}

/** sign(S_fr) S_fr^2 / (S_ff S_rr), in [-1,1]; 0 when the prediction does not vary. Negative for an inverted world model (golden G22). */
export function signedR2(s: { sff: number; srr: number; sfr: number }): number {
  if (s.sff < 1e-9 || s.srr < 1e-9) return 0
  return (Math.sign(s.sfr) * s.sfr ** 2) / (s.sff * s.srr)
}
