import { type Advantages, groupAdvantages, groupStats, type Rewards } from './advantages.ts'
import { applyMap, type CalibrationMap, fitMap, IDENTITY, type Pair } from './calibration.ts'
import type { MethodConfig } from './config.ts'
import { correctedAdvantages } from './correction.ts'
import {
  anchorWeight,
  type DenoiserState,
  disagreement,
  fusionFactors,
  NO_DENOISER,
  pushDisagreement,
} from './fusion.ts'
import { NO_RELIABILITY, pushReliability, type ReliabilityState, signedR2 } from './reliability.ts'

/** One group's evidence: trajectories' rewards by source; null is unscorable. A group that was not executed has no `executed`. */
export interface GroupEvidence {
  readonly anchor: boolean
  /** World-model rewards; null throughout where the mode does not predict. */
  readonly predicted: Rewards
  readonly executed?: Rewards
}

/** Everything the correction remembers between steps; plain data, saved with the checkpoint. */
export interface MethodState {
  readonly pairs: readonly Pair[]
  readonly map: CalibrationMap
  readonly newPairs: number
  readonly denoiser: DenoiserState
  readonly reliability: ReliabilityState
  readonly lowReliabilitySteps: number
  readonly stepsWithoutAnchor: number
}

export const INITIAL_STATE: MethodState = {
  pairs: [],
  map: IDENTITY,
  newPairs: 0,
  denoiser: NO_DENOISER,
  reliability: NO_RELIABILITY,
  lowReliabilitySteps: 0,
  stepsWithoutAnchor: 0,
}

export interface GroupResult {
  /** Calibrated predictions by this step's map. */
  readonly corrected: Rewards
  /** Coefficients for the engine; null where a trajectory takes no part. Undefined: the whole group is skipped. */
  readonly advantages: Advantages | undefined
  readonly skipped?: 'fewer-than-two-scored'
  readonly tied: boolean
  /** Tied only because the map's plateau made it so. */
  readonly plateau: boolean
}

export interface StepResult {
  readonly groups: readonly GroupResult[]
  readonly state: MethodState
  readonly mapVersion: number
  readonly rho: number
  readonly anchors: number
  /** Groups left in the divisor B. */
  readonly divisor: number
  readonly signedR2: number
  readonly pairsAdded: number
  readonly alarms: readonly string[]
}

/**
 * One step of the correction (method.md section 3). Pure: the same evidence and state give the same result bit for bit.
 * @throws RangeError when a reward is outside [0,1].
 */
export function correct(config: MethodConfig, state: MethodState, groups: readonly GroupEvidence[]): StepResult {
  for (const g of groups) for (const r of [...g.predicted, ...(g.executed ?? [])]) checkReward(r)
  const fresh = groups.flatMap((g) => (g.anchor && g.executed ? pairsOf(g.predicted, g.executed) : []))
  const before = state.map
  const pushed = push(config, state, fresh)
  const map = config.calibration.order === 'push-first' ? pushed.map : before
  const f = (r: Rewards): Rewards => r.map((v) => (v === null ? null : applyMap(map, v)))

  const usable = groups.map((g) => scoredMembers(config, g) >= 2)
  const anchors = groups.filter((g, i) => usable[i] && realised(config, g)).length
  const divisor = usable.filter(Boolean).length
  const sums = observe(config, pushed, groups, before)
  const rho = config.weights.kind === 'none' ? 1 : anchorWeight(sums.denoiser, config.weights.max)
  const results = groups.map((g, i) => {
    const corrected = f(g.predicted)
    if (!usable[i])
      return {
        corrected,
        advantages: undefined,
        skipped: 'fewer-than-two-scored' as const,
        tied: false,
        plateau: false,
      }
    const advantages = advantagesOf(config, g, corrected, { groups: divisor, anchors, rho })
    const source = g.anchor && g.executed && !usesLambda(config) ? g.executed : corrected
    const tied = groupStats(source, config).tied
    return {
      corrected,
      advantages,
      tied,
      plateau: tied && source === corrected && !groupStats(g.predicted, config).tied,
    }
  })
  return {
    groups: results,
    state: sums,
    mapVersion: map.version,
    rho,
    anchors,
    divisor,
    signedR2: signedR2(sums.reliability),
    pairsAdded: fresh.length,
    alarms: alarmsOf(config, sums, results),
  }
}

const usesLambda = (c: MethodConfig): boolean => c.mode === 'recommended' || c.mode === 'anchors-only'

function checkReward(r: number | null): void {
  if (r !== null && !(Number.isFinite(r) && r >= 0 && r <= 1))
    throw new RangeError(`a reward must be null or in [0,1], got ${r}`)
}

function pairsOf(w: Rewards, r: Rewards): Pair[] {
  return w.flatMap((x, i) => {
    const y = r[i]
    return x === null || y === null || y === undefined ? [] : [{ x, y }]
  })
}

/** Members that can carry an advantage: predicted ones where the mode predicts, executed ones otherwise. */
function scoredMembers(config: MethodConfig, g: GroupEvidence): number {
  const real = g.anchor && g.executed
  const rewards = config.mode === 'recommended' ? g.predicted : real ? g.executed! : g.predicted
  return rewards.filter((v) => v !== null).length
}

/**
 * Whether an anchor was really executed: two members have what the correction compares. One whose executions all failed
 * shrinks n and is no sign of life for the alarm.
 */
function realised(config: MethodConfig, g: GroupEvidence): boolean {
  if (!g.anchor || !g.executed) return false
  return (
    g.executed.filter((r, i) => r !== null && (config.mode !== 'recommended' || g.predicted[i] !== null)).length >= 2
  )
}

function push(config: MethodConfig, s: MethodState, fresh: readonly Pair[]): MethodState {
  if (fresh.length === 0) return s
  const c = config.calibration
  const pairs = [...s.pairs, ...fresh].slice(-c.window)
  const newPairs = s.newPairs + fresh.length
  if (c.kind === 'identity') return { ...s, pairs, newPairs }
  const due = pairs.length >= c.from && (s.map.version === 0 || newPairs >= c.every)
  if (!due) return { ...s, pairs, newPairs }
  const map = fitMap(pairs, { kind: c.kind, bins: c.bins, binning: c.binning, prior: c.prior }, s.map.version + 1)
  return { ...s, pairs, newPairs: 0, map }
}

/** Disagreement after the push (paper), reliability by the map before it (prequential). */
function observe(
  config: MethodConfig,
  s: MethodState,
  groups: readonly GroupEvidence[],
  before: CalibrationMap,
): MethodState {
  let { denoiser, reliability } = s
  let seen = 0
  for (const g of groups) {
    if (!g.anchor || !g.executed || !realised(config, g)) continue
    seen++
    const after = g.predicted.map((v) => (v === null ? null : applyMap(s.map, v)))
    denoiser = pushDisagreement(denoiser, disagreement(after, g.executed), config.weights)
    reliability = pushReliability(
      reliability,
      g.predicted.map((v) => (v === null ? null : applyMap(before, v))),
      g.executed,
      config.alarms.reliabilityBeta,
    )
  }
  const low = reliability.groups > 0 && signedR2(reliability) < config.alarms.reliability
  return {
    ...s,
    denoiser,
    reliability,
    lowReliabilitySteps: low ? s.lowReliabilitySteps + 1 : 0,
    stepsWithoutAnchor: seen > 0 ? 0 : s.stepsWithoutAnchor + 1,
  }
}

function advantagesOf(
  config: MethodConfig,
  g: GroupEvidence,
  corrected: Rewards,
  n: { groups: number; anchors: number; rho: number },
): Advantages | undefined {
  const real = g.anchor && g.executed ? g.executed : undefined
  switch (config.mode) {
    case 'recommended': {
      const bulk = groupAdvantages(corrected, config.advantage, config)
      if (!bulk || !real) return bulk
      const members = real.map((r, i) => r !== null && corrected[i] !== null)
      const e = groupAdvantages(
        real.map((r, i) => (members[i] ? r : null)),
        config.advantage,
        config,
      )
      const w = groupAdvantages(
        corrected.map((r, i) => (members[i] ? r : null)),
        config.advantage,
        config,
      )
      return e && w ? correctedAdvantages(bulk, w, e, config.lambda, n.groups, n.anchors) : bulk
    }
    case 'anchors-only':
      // The map is 0, so A_W = 0; each anchor carries B/n, which cancels against the divisor of sampled groups.
      return real
        ? scaled(groupAdvantages(real, config.advantage, config), (config.lambda * n.groups) / Math.max(1, n.anchors))
        : undefined
    case 'paper': {
      const factors = fusionFactors(n.rho, n.anchors, n.groups - n.anchors)
      const own = config.weights.kind === 'release' ? { anchor: n.rho, predicted: 1 } : factors
      return scaled(groupAdvantages(real ?? corrected, config.advantage, config), real ? own.anchor : own.predicted)
    }
    default:
      return groupAdvantages(real ?? corrected, config.advantage, config)
  }
}

function scaled(a: Advantages | undefined, k: number): Advantages | undefined {
  return a?.map((v) => (v === null ? null : v * k))
}

function alarmsOf(config: MethodConfig, s: MethodState, results: readonly GroupResult[]): string[] {
  const out: string[] = []
  const a = config.alarms
  const predicts = config.mode === 'recommended' || config.mode === 'paper'
  if (predicts && s.lowReliabilitySteps >= a.reliabilitySteps) {
    out.push(
      `the world model ranks anchors badly: signed R2 ${signedR2(s.reliability).toFixed(3)} < ${a.reliability} for ${s.lowReliabilitySteps} steps`,
    )
  }
  // Without predictions nothing at all is learnt in such steps.
  if (config.mode !== 'predicted-only' && s.stepsWithoutAnchor >= a.noAnchorSteps)
    out.push(`no executed anchor for ${s.stepsWithoutAnchor} steps`)
  const ties = results.filter((r) => r.tied).length / Math.max(1, results.length)
  // One group (anchors alone) is tied or not: a share of it says nothing.
  if (results.length >= 4 && ties > a.tieShare) out.push(`${(100 * ties).toFixed(0)} % of groups are tied`)
  return out
}
