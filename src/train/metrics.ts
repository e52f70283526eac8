import type { Trajectory } from '../agent/index.ts'
import { lengthAlarm } from './length-dependence.ts'
import type { StepOutcome, UpdateReport } from './step.ts'

/** One line of a run's progress: what is shown live, kept in the ledger and in metrics.jsonl. */
export interface StepMetrics {
  readonly step: number
  readonly executedGroups: number
  readonly predictedGroups: number
  /** Mean rewards over scored members; null where nothing was scored. */
  readonly executedReward: number | null
  readonly predictedReward: number | null
  readonly correctedReward: number | null
  readonly rewardStdWithin: number | null
  readonly rewardStdAcross: number | null
  readonly unscorable: Readonly<Record<string, number>>
  readonly skippedGroups: number
  readonly tiedGroups: number
  readonly plateauGroups: number
  readonly distinctPrograms: number
  /** Distinct corrected predictions a group, of those with two or more: the map's plateaus make fewer. */
  readonly distinctCorrected: number | null
  readonly mapVersion: number
  readonly rho: number
  readonly signedR2: number
  readonly entropy: number | null
  readonly loss: number | null
  /** The divergence's part of `loss`, and the divergence itself in nats a token (k3); null where train.kl is 0. */
  readonly klTerm: number | null
  readonly klFrozen: number | null
  readonly gradNorm: number | null
  readonly noUpdate: string | null
  readonly klSampleTrain: number | null
  readonly alarms: readonly string[]
  /** Updates between the weights that sampled this step and those that it updates; only where sampling runs ahead. */
  readonly staleness?: number
  /** Longest block of the event loop since the step before, in milliseconds; what the time-outs of a step are worth. */
  readonly loopLagMs: number
  readonly seconds: Readonly<Record<'rollout' | 'update' | 'commit', number>>
  readonly devReward?: number | null
}

export function countReasons(ts: readonly Trajectory[]): Record<string, number> {
  const out: Record<string, number> = {}
  for (const t of ts) if (t.unscorable) out[t.unscorable.cause] = (out[t.unscorable.cause] ?? 0) + 1
  return out
}

const mean = (x: readonly number[]): number | null => (x.length === 0 ? null : x.reduce((a, b) => a + b, 0) / x.length)
const std = (x: readonly number[]): number => {
  const m = mean(x) ?? 0
  return Math.sqrt(x.reduce((s, v) => s + (v - m) ** 2, 0) / Math.max(1, x.length))
}
const known = (r: readonly (number | null)[]): number[] => r.filter((v): v is number => v !== null)

export function metricsOf(
  o: StepOutcome,
  u: UpdateReport,
  m: Pick<StepMetrics, 'step' | 'seconds' | 'loopLagMs'> & {
    readonly dev: number | null | undefined
    /** Gap between sampler and trainer above which their distributions are not the same. */
    readonly divergence: number
    /** Standard score above which being unscorable depends on length. */
    readonly lengthScore: number
  },
): StepMetrics {
  const used = o.evidence.map((e, g) => known(e.executed ?? o.result.groups[g]!.corrected))
  const full = used.filter((r) => r.length > 0)
  const gaps = klSampleTrain(o, u)
  return {
    step: m.step,
    executedGroups: o.anchors.filter(Boolean).length,
    predictedGroups: o.anchors.filter((a) => !a).length,
    executedReward: mean(o.evidence.flatMap((e) => known(e.executed ?? []))),
    predictedReward: mean(o.evidence.flatMap((e) => known(e.predicted))),
    correctedReward: mean(o.result.groups.flatMap((g) => known(g.corrected))),
    rewardStdWithin: mean(full.map(std)),
    rewardStdAcross: full.length === 0 ? null : std(full.map((r) => mean(r)!)),
    unscorable: countReasons(o.trajectories),
    skippedGroups: o.result.groups.filter((g) => g.skipped).length,
    tiedGroups: o.result.groups.filter((g) => g.tied).length,
    plateauGroups: o.result.groups.filter((g) => g.plateau).length,
    distinctPrograms:
      mean(
        o.plans.map(
          (_, g) => new Set(o.trajectories.filter((t) => t.group === g).map((t) => t.turns[0]?.action.code)).size,
        ),
      ) ?? 0,
    distinctCorrected: mean(
      o.result.groups
        .map((g) => known(g.corrected))
        .filter((x) => x.length > 1)
        .map((x) => new Set(x).size),
    ),
    mapVersion: o.result.mapVersion,
    rho: o.result.rho,
    signedR2: o.result.signedR2,
    entropy: u.loss?.entropy ?? null,
    loss: u.loss?.loss ?? null,
    klTerm: u.kl?.term ?? null,
    klFrozen: u.kl?.perToken ?? null,
    gradNorm: u.step?.gradNorm ?? null,
    noUpdate: u.none ?? null,
    klSampleTrain: gaps,
    alarms: [
      ...o.result.alarms,
      ...lengthAlarm(o.trajectories, m.lengthScore),
      ...(gaps !== null && Math.abs(gaps) > m.divergence
        ? [`sampler and trainer differ by ${gaps.toFixed(3)} nats a token`]
        : []),
    ],
    loopLagMs: m.loopLagMs,
    seconds: m.seconds,
    ...(m.dev === undefined ? {} : { devReward: m.dev }),
  }
}

/** Mean of (logprob at sampling - logprob in training) over sampled tokens, before the update: 0 where the two agree. */
function klSampleTrain(o: StepOutcome, u: UpdateReport): number | null {
  if (!u.loss) return null
  let sum = 0
  let n = 0
  const data = o.data.map((x) => x.datum)
  // With all-zero advantages left out, the report's rows follow the data that were sent.
  const sent = data.length === u.loss.logprobs.length ? data : data.filter((x) => x.advantage !== 0)
  sent.forEach((x, k) => {
    const row = u.loss!.logprobs[k]
    if (!row) return
    x.mask.forEach((m, i) => {
      if (m === 1) {
        sum += x.logprobs![i]! - row[i]!
        n++
      }
    })
  })
  return n === 0 ? null : sum / n
}
