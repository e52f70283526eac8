import type { Trajectory } from '../agent/index.ts'
import { averageRanks } from '../core/index.ts'

/** Fewer on one side say nothing. */
const LEAST = 4

/**
 * Whether being unscorable depends on a program's length: standard score of the rank sum of unscorable trajectories' sampled
 * tokens (Mann-Whitney, variance corrected for ties); positive where they are longer. An agent whose long programs are left
 * out rather than judged learns to write them, or to avoid what it is never taught. Undefined where one side has fewer than
 * four, or all are of one length. Trajectories without a token (trouble before sampling) have no length.
 */
export function lengthDependence(
  ts: readonly Trajectory[],
): { z: number; unscorable: number; scored: number } | undefined {
  const all = ts
    .map((t) => ({ bad: t.unscorable !== undefined, tokens: t.mask.reduce((a, b) => a + b, 0) }))
    .filter((t) => t.tokens > 0)
  const of = (bad: boolean): number[] => all.filter((t) => t.bad === bad).map((t) => t.tokens)
  const [bad, good] = [of(true), of(false)]
  if (bad.length < LEAST || good.length < LEAST) return undefined
  const n = all.length
  const ranks = averageRanks([...bad, ...good])
  const sum = ranks.slice(0, bad.length).reduce((a, b) => a + b, 0)
  const times = new Map<number, number>()
  for (const r of ranks) times.set(r, (times.get(r) ?? 0) + 1)
  const ties = [...times.values()].reduce((s, t) => s + t ** 3 - t, 0)
  const variance = ((bad.length * good.length) / 12) * (n + 1 - ties / (n * (n - 1)))
  if (variance <= 0) return undefined
  const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length
  return { z: (sum - (bad.length * (n + 1)) / 2) / Math.sqrt(variance), unscorable: mean(bad), scored: mean(good) }
}

/** The alarm of a step's line, or nothing. */
export function lengthAlarm(ts: readonly Trajectory[], limit: number): string[] {
  const d = lengthDependence(ts)
  if (!d || Math.abs(d.z) < limit) return []
  return [
    `unscorable trajectories are ${d.z > 0 ? 'longer' : 'shorter'} than scored ones: ${d.unscorable.toFixed(0)} tokens on average, ${d.scored.toFixed(0)} (standard score ${d.z.toFixed(1)}, alarm.lengthScore ${limit})`,
  ]
}
