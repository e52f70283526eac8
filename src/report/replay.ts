import { type Belief, rewardOf, type Verdict } from '../core/index.ts'
import type { AttemptRow, RunLedger } from '../ledger/index.ts'
import { correct, type GroupEvidence, INITIAL_STATE, type MethodConfig } from '../method/index.ts'

export interface ReplayOptions {
  /** Score of a belief about an attempt as the run's judge made it; undefined where it would make none. */
  readonly predictedScore: (belief: Belief, attempt: string) => Promise<number | undefined>
  /** First part of the attempts' ids. */
  readonly seed: number
}

export interface ReplayReport {
  readonly steps: number
  /** Numbers recomputed: scores, rewards, corrected rewards, advantages, coefficients; the map and the weight of a step. */
  readonly compared: number
  readonly differences: number
  readonly first: string | undefined
}

/**
 * Recomputes every number of a run from its ledger (invariant 5): scores from outcomes and beliefs, trajectory rewards from
 * scores, the map from pairs, corrected rewards, advantages and coefficients; each must equal the recorded one bit for bit, and
 * what was left out (null) must be left out on both sides.
 */
export async function replay(ledger: RunLedger, method: MethodConfig, o: ReplayOptions): Promise<ReplayReport> {
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
  for (const { step, record } of steps) {
    const groups = ledger.groups(step)
    const attempts = ledger.attempts(step)
    const coefficients = ledger.coefficients(step)
    for (const a of attempts) {
      for (const v of a.shadow ? [a.verdict, a.shadow] : [a.verdict])
        if (!('unscorable' in v)) {
          const id = `${a.group}/${a.trajectory}/${a.turn}`
          const again =
            v.source === 'executed'
              ? rewardOf(v.outcome)
              : await o.predictedScore(v.belief, `${o.seed}/step/${step}/${id}`)
          same(`step ${step} attempt ${id} score`, v.score, again)
        }
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
      sameRow(same, `step ${step} group ${k} executed`, g.executed, e.executed)
    }
    const r = correct(method, state, evidence)
    state = r.state
    for (const [k, g] of r.groups.entries()) {
      sameRow(same, `step ${step} group ${k} corrected`, groups[k]!.corrected, g.corrected)
      sameRow(same, `step ${step} group ${k} advantage`, groups[k]!.advantages, g.advantages)
      same(`step ${step} group ${k} skipped`, groups[k]!.skipped, g.skipped)
      const mine = coefficients.filter((c) => c.group === k)
      same(`step ${step} group ${k} trajectories`, mine.length, g.corrected.length)
      for (const c of mine) {
        const part = c.unscorable === undefined && c.sampled
        same(
          `step ${step} coefficient ${k}/${c.trajectory}`,
          c.coefficient,
          part ? g.advantages?.[c.trajectory] : undefined,
        )
      }
    }
    const was = record as { mapVersion?: unknown; rho?: unknown; signedR2?: unknown; method?: unknown }
    same(`step ${step} map version`, was.mapVersion, r.mapVersion)
    same(`step ${step} anchor weight`, was.rho, asJson(r.rho))
    same(`step ${step} signed R2`, was.signedR2, asJson(r.signedR2))
    same(`step ${step} map`, JSON.stringify(was.method), JSON.stringify(r.state.map))
  }
  return { steps: steps.length, compared, differences, first }
}

type Same = (where: string, recorded: unknown, recomputed: unknown) => void

function sameRow(
  same: Same,
  where: string,
  recorded: readonly (number | null)[] | undefined,
  recomputed: readonly (number | null)[] | undefined,
): void {
  const length = Math.max(recorded?.length ?? 0, recomputed?.length ?? 0)
  for (let t = 0; t < length; t++) same(`${where} ${t}`, recorded?.[t], recomputed?.[t])
}

/** Records are JSON: what is not finite is null there. */
const asJson = (v: number): number | null => (Number.isFinite(v) ? v : null)

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
