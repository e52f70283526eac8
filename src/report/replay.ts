import { expectedReward, rewardOf, type Verdict } from '../core/index.ts'
import type { AttemptRow, RunLedger } from '../ledger/index.ts'
import { correct, type GroupEvidence, INITIAL_STATE, type MethodConfig } from '../method/index.ts'

export interface ReplayReport {
  readonly steps: number
  /** Numbers recomputed: scores, rewards, corrected rewards, advantages, coefficients. */
  readonly compared: number
  readonly differences: number
  readonly first: string | undefined
}

/**
 * Recomputes every number of a run from its ledger (invariant 5): scores from outcomes and beliefs, trajectory rewards from
 * scores, the map from pairs, corrected rewards, advantages and coefficients; each must equal the recorded one bit for bit.
 */
export function replay(ledger: RunLedger, method: MethodConfig, o: { expectedScores: boolean }): ReplayReport {
  let state = INITIAL_STATE
  let compared = 0
  let differences = 0
  let first: string | undefined
  const same = (where: string, a: unknown, b: unknown): void => {
    compared++
    if (Object.is(a, b) || (a ?? null) === (b ?? null)) return
    differences++
    first ??= `${where}: recorded ${String(a)}, recomputed ${String(b)}`
  }
  const steps = ledger.steps()
  for (const { step } of steps) {
    const groups = ledger.groups(step)
    const attempts = ledger.attempts(step)
    const coefficients = ledger.coefficients(step)
    for (const a of attempts) {
      for (const v of a.shadow ? [a.verdict, a.shadow] : [a.verdict])
        scoreOf(v, o.expectedScores, (x, y) =>
          same(`step ${step} attempt ${a.group}/${a.trajectory}/${a.turn} score`, x, y),
        )
    }
    const evidence = groups.map((g): GroupEvidence => {
      const size = g.predicted.length
      const lost = new Set(
        coefficients.filter((c) => c.group === g.group && c.unscorable !== undefined).map((c) => c.trajectory),
      )
      const reward = (pick: (a: AttemptRow) => Verdict | undefined): (number | null)[] =>
        Array.from({ length: size }, (_, t) =>
          lost.has(t)
            ? null
            : best(
                attempts.filter((a) => a.group === g.group && a.trajectory === t),
                pick,
              ),
        )
      const main = reward((a) => a.verdict)
      if (!g.anchor) return { anchor: false, predicted: main }
      return { anchor: true, predicted: reward((a) => a.shadow), executed: main }
    })
    for (const [k, e] of evidence.entries()) {
      const g = groups[k]!
      sameRow(same, `step ${step} group ${k} predicted`, g.predicted, e.predicted)
      if (e.executed) sameRow(same, `step ${step} group ${k} executed`, g.executed, e.executed)
    }
    const r = correct(method, state, evidence)
    state = r.state
    for (const [k, g] of r.groups.entries()) {
      sameRow(same, `step ${step} group ${k} corrected`, groups[k]!.corrected, g.corrected)
      if (g.advantages) sameRow(same, `step ${step} group ${k} advantage`, groups[k]!.advantages, g.advantages)
      for (const c of coefficients) {
        if (c.group === k && c.coefficient !== null)
          same(`step ${step} coefficient ${k}/${c.trajectory}`, c.coefficient, g.advantages?.[c.trajectory] ?? null)
      }
    }
  }
  return { steps: steps.length, compared, differences, first }
}

type Same = (where: string, recorded: unknown, recomputed: unknown) => void

function sameRow(
  same: Same,
  where: string,
  recorded: readonly (number | null)[] | undefined,
  recomputed: readonly (number | null)[],
): void {
  for (const [t, v] of recomputed.entries()) same(`${where} ${t}`, recorded?.[t], v)
}

function best(turns: readonly AttemptRow[], pick: (a: AttemptRow) => Verdict | undefined): number | null {
  if (turns.length === 0) return null
  let top = 0
  for (const t of turns) {
    const v = pick(t)
    if (!v || 'unscorable' in v) return null
    top = Math.max(top, v.score)
  }
  return top
}

function scoreOf(v: Verdict, expected: boolean, same: (recorded: number, recomputed: number) => void): void {
  if ('unscorable' in v) return
  if (v.source === 'executed') same(v.score, rewardOf(v.outcome))
  else if (expected) same(v.score, expectedReward(v.belief).mean)
}
