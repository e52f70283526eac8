import type { Program, TaskRef, Unscorable, Verdict, WeightsVersion } from '../core/index.ts'

/** One turn: the sampled action and what judges said. On anchors both: a calibration pair is (shadow, verdict). */
export interface Turn {
  readonly action: Program
  readonly verdict: Verdict
  readonly shadow?: Verdict
}

/** Why a trajectory has no further turn. */
export type TrajectoryEnd = 'turns' | 'context' | 'unscorable' | 'failed'

/**
 * Tokens are the record (invariant 2): a trajectory is the concatenation of what was sent and what was sampled; nothing
 * that is trained on is ever encoded again. `mask` is 1 on sampled tokens, `logprobs` 0 elsewhere.
 */
export interface Trajectory {
  readonly task: TaskRef
  readonly group: number
  readonly index: number
  readonly tokens: readonly number[]
  readonly mask: readonly number[]
  readonly logprobs: readonly number[]
  readonly turns: readonly Turn[]
  readonly ended: TrajectoryEnd
  /** Weights that sampled it. */
  readonly version: WeightsVersion
  /** Set where a turn stayed unscorable or the roll-out itself failed: the trajectory leaves its group. */
  readonly unscorable?: Unscorable
}

/** Reward of a trajectory by one kind of judgement: the maximum over its turns; null where a turn has no such score. */
export function rewardBy(t: Trajectory, source: 'verdict' | 'shadow'): number | null {
  if (t.unscorable || t.turns.length === 0) return null
  let best = 0
  for (const turn of t.turns) {
    const v = turn[source]
    if (!v || 'unscorable' in v) return null
    best = Math.max(best, v.score)
  }
  return best
}
