/** A group's rewards; null is unscorable. */
export type Rewards = readonly (number | null)[]
/** Null where the reward is null. */
export type Advantages = readonly (number | null)[]

export type AdvantageKind = 'std' | 'center' | 'leave_one_out'

/** A group whose rewards span less than this has no differences to learn from. */
export const TIE = 1e-9
/** Added to the standard deviation (GRPO). */
export const STD_EPSILON = 1e-4

export interface GroupStats {
  readonly n: number
  readonly mean: number
  /** Population standard deviation. */
  readonly std: number
  readonly tied: boolean
}

export function groupStats(r: Rewards): GroupStats {
  const x = r.filter((v): v is number => v !== null)
  if (x.length === 0) return { n: 0, mean: 0, std: 0, tied: true }
  const mean = x.reduce((a, b) => a + b, 0) / x.length
  const std = Math.sqrt(x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length)
  return { n: x.length, mean, std, tied: Math.max(...x) - Math.min(...x) < TIE }
}

/**
 * Advantages within a group: (x - mean)/(std + 1e-4) as GRPO, x - mean, or x - mean of the others. A tied group gives
 * zeros; fewer than two scored members give undefined: the group is skipped.
 */
export function groupAdvantages(r: Rewards, kind: AdvantageKind): Advantages | undefined {
  const s = groupStats(r)
  if (s.n < 2) return undefined
  const scale = kind === 'std' ? 1 / (s.std + STD_EPSILON) : kind === 'leave_one_out' ? s.n / (s.n - 1) : 1
  return r.map((v) => (v === null ? null : s.tied ? 0 : (v - s.mean) * scale))
}
