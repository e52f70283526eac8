/** A group's rewards; null is unscorable. */
export type Rewards = readonly (number | null)[]
/** Null where the reward is null. */
export type Advantages = readonly (number | null)[]

export type AdvantageKind = 'std' | 'center' | 'leave_one_out'

/** Constants of a group's arithmetic. */
export interface GroupConstants {
  /** A group whose rewards span less than this has no differences to learn from. */
  readonly tie: number
  /** Added to the standard deviation (GRPO). */
  readonly stdEpsilon: number
}
export const GROUP_CONSTANTS: GroupConstants = { tie: 1e-9, stdEpsilon: 1e-4 }

export interface GroupStats {
  readonly n: number
  readonly mean: number
  /** Population standard deviation. */
  readonly std: number
  readonly tied: boolean
}

export function groupStats(r: Rewards, c: Pick<GroupConstants, 'tie'> = GROUP_CONSTANTS): GroupStats {
  const x = r.filter((v): v is number => v !== null)
  if (x.length === 0) return { n: 0, mean: 0, std: 0, tied: true }
  const mean = x.reduce((a, b) => a + b, 0) / x.length
  const std = Math.sqrt(x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length)
  return { n: x.length, mean, std, tied: Math.max(...x) - Math.min(...x) < c.tie }
}

/**
 * Advantages within a group: (x - mean)/(std + epsilon) as GRPO, x - mean, or x - mean of the others. A tied group gives
 * zeros; fewer than two scored members give undefined: the group is skipped.
 */
export function groupAdvantages(
  r: Rewards,
  kind: AdvantageKind,
  c: GroupConstants = GROUP_CONSTANTS,
): Advantages | undefined {
  const s = groupStats(r, c)
  if (s.n < 2) return undefined
  const scale = kind === 'std' ? 1 / (s.std + c.stdEpsilon) : kind === 'leave_one_out' ? s.n / (s.n - 1) : 1
  return r.map((v) => (v === null ? null : s.tied ? 0 : (v - s.mean) * scale))
}
