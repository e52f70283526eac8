import { type AgentFormat, type GroupPlan, rewardBy, rollout, type Trajectory } from '../agent/index.ts'
import { EngineError, keyed, type TaskRef } from '../core/index.ts'
import type { Datum, Loss, LossReport, Model, Sampler, StepReport } from '../engine/index.ts'
import type { Judge } from '../judge/index.ts'
import {
  anchorCount,
  chooseUniform,
  correct,
  type GroupEvidence,
  type MethodConfig,
  type MethodState,
  type StepResult,
  usesPredictions,
} from '../method/index.ts'

export interface StepInputs {
  readonly seed: number
  readonly step: number
  readonly tasks: readonly TaskRef[]
  readonly groups: number
  readonly groupSize: number
  readonly turns: number
  readonly method: MethodConfig
  readonly state: MethodState
  readonly executed: Judge
  readonly predicted: Judge
  readonly format: AgentFormat
}

/** What a step is about to roll out: tasks by an even cursor, anchors by a keyed draw. */
export function planStep(
  i: Pick<StepInputs, 'seed' | 'step' | 'tasks' | 'groups' | 'groupSize' | 'method' | 'executed' | 'predicted'>,
): { plans: GroupPlan[]; anchors: boolean[] } {
  const { mode } = i.method
  // Every task once a round, in a new order each round: no task is starved by chance.
  const chosen = Array.from({ length: i.groups }, (_, k) => {
    const at = (i.step - 1) * i.groups + k
    const order = keyed(i.seed, 'tasks', Math.floor(at / i.tasks.length)).shuffle(i.tasks)
    return order[at % i.tasks.length]!
  })
  const wanted =
    mode === 'executed-only' ? i.groups : mode === 'predicted-only' ? 0 : anchorCount(i.method.anchors.share, i.groups)
  const picked = new Set(chooseUniform(i.groups, wanted, keyed(i.seed, 'step', i.step, 'anchors')))
  const anchors = chosen.map((_, k) => picked.has(k))
  const plans = chosen.map((task, k): GroupPlan => {
    const anchor = anchors[k]!
    if (!anchor) return { task, size: i.groupSize, judge: i.predicted }
    return usesPredictions(mode)
      ? { task, size: i.groupSize, judge: i.executed, shadow: i.predicted }
      : { task, size: i.groupSize, judge: i.executed }
  })
  // Anchors only: the other groups are not sampled at all.
  if (mode === 'anchors-only')
    return { plans: plans.filter((_, k) => anchors[k]), anchors: plans.filter((_, k) => anchors[k]).map(() => true) }
  return { plans, anchors }
}

export interface StepOutcome {
  readonly step: number
  readonly plans: readonly GroupPlan[]
  readonly anchors: readonly boolean[]
  readonly trajectories: readonly Trajectory[]
  readonly evidence: readonly GroupEvidence[]
  readonly result: StepResult
  readonly data: readonly { readonly trajectory: Trajectory; readonly datum: Datum }[]
}

/** What a step rolled out, before its rewards are corrected. */
export interface RolledStep {
  readonly plans: readonly GroupPlan[]
  readonly anchors: readonly boolean[]
  readonly trajectories: readonly Trajectory[]
}

/** Choose, roll out, judge, correct: everything of a step before the update. */
export async function gather(i: StepInputs, sampler: Sampler, signal: AbortSignal): Promise<StepOutcome> {
  return settle(i, await roll(i, sampler, signal))
}

/** Choose, roll out and judge: the part that depends on the sampler alone and may run ahead. */
export async function roll(i: Omit<StepInputs, 'state'>, sampler: Sampler, signal: AbortSignal): Promise<RolledStep> {
  const { plans, anchors } = planStep(i)
  const trajectories = await rollout(
    plans,
    sampler,
    { format: i.format, turns: i.turns, key: [i.seed, 'step', i.step] },
    signal,
  )
  return { plans, anchors, trajectories }
}

/** Correct: the part that needs the method's state as it is at the step's turn. */
export function settle(i: Pick<StepInputs, 'step' | 'method' | 'state'>, rolled: RolledStep): StepOutcome {
  const { plans, anchors, trajectories } = rolled
  const evidence = plans.map((_, g): GroupEvidence => {
    const members = trajectories.filter((t) => t.group === g)
    const anchor = anchors[g]!
    if (!anchor) return { anchor, predicted: members.map((t) => rewardBy(t, 'verdict')) }
    return {
      anchor,
      predicted: members.map((t) => (t.turns.some((x) => x.shadow) ? rewardBy(t, 'shadow') : null)),
      executed: members.map((t) => rewardBy(t, 'verdict')),
    }
  })
  const result = correct(i.method, i.state, evidence)
  const data = trajectories.flatMap((t) => {
    const a = result.groups[t.group]!.advantages?.[t.index] ?? null
    return a === null || t.unscorable || !t.mask.includes(1) ? [] : [{ trajectory: t, datum: datumOf(t, a) }]
  })
  return { step: i.step, plans, anchors, trajectories, evidence, result, data }
}

/** Tokens after the last sampled one carry no gradient and are left out. */
function datumOf(t: Trajectory, advantage: number): Datum {
  const end = t.mask.lastIndexOf(1) + 1
  return { tokens: t.tokens.slice(0, end), mask: t.mask.slice(0, end), logprobs: t.logprobs.slice(0, end), advantage }
}

export interface UpdateOptions {
  readonly loss: Pick<Loss, 'kind' | 'clipLow' | 'clipHigh' | 'entropyBonus' | 'kl' | 'truncate'>
  readonly learningRate: number
  /** Of AdamW; 1e-8 unless given. */
  readonly epsilon?: number
  readonly gradClip: number
  readonly groupSize: number
}

export interface UpdateReport {
  readonly loss: LossReport | undefined
  readonly step: StepReport | undefined
  /** Divergence from the frozen backbone over sampled tokens, before the update; only where the loss holds it. */
  readonly kl?: { readonly term: number; readonly perToken: number }
  /** Why no optimiser step was taken. */
  readonly none: 'no-usable-group' | 'no-differences' | undefined
}

/**
 * One on-policy update. A step without any usable group, or whose advantages are all 0 with nothing else to learn from,
 * takes no optimiser step and says so.
 * @throws EngineError when a coefficient or the loss is not finite; the model then holds gradients that are worth nothing.
 */
export async function update(
  o: StepOutcome,
  model: Model,
  frozen: Sampler,
  u: UpdateOptions,
  signal: AbortSignal,
): Promise<UpdateReport> {
  if (o.data.length === 0) return { loss: undefined, step: undefined, none: 'no-usable-group' }
  const regularised = (u.loss.kl ?? 0) > 0 || (u.loss.entropyBonus ?? 0) > 0
  const data = o.data.map((d) => d.datum).filter((d) => regularised || d.advantage !== 0)
  if (data.length === 0) return { loss: undefined, step: undefined, none: 'no-differences' }
  for (const d of data)
    if (!Number.isFinite(d.advantage)) throw new EngineError(`step ${o.step}: a coefficient is ${d.advantage}`)
  const withReference: readonly Datum[] =
    (u.loss.kl ?? 0) > 0
      ? await frozen
          .logprobs(
            data.map((d) => d.tokens),
            signal,
          )
          .then((r) => data.map((d, i) => ({ ...d, reference: Array.from(r[i]!, (v) => (Number.isNaN(v) ? 0 : v)) })))
      : data
  const normaliser = Math.max(1, o.result.divisor) * u.groupSize
  const loss = await model.forwardBackward(withReference, { ...u.loss, normaliser }, signal)
  if (!Number.isFinite(loss.loss))
    throw new EngineError(`step ${o.step}: the loss is ${loss.loss}, no optimiser step was taken on it`)
  const step = await model.optimStep(
    {
      learningRate: u.learningRate,
      gradClip: u.gradClip,
      weightDecay: 0,
      ...(u.epsilon === undefined ? {} : { epsilon: u.epsilon }),
    },
    signal,
  )
  const kl = u.loss.kl ? divergence(withReference, loss, u.loss.kl / normaliser) : undefined
  return { loss, step, ...(kl ? { kl } : {}), none: undefined }
}

/** k3 = exp(d) - d - 1 with d = log p_frozen - log p, as the loss has it; `weight` is what a token's counts there. */
function divergence(
  data: readonly Datum[],
  loss: LossReport,
  weight: number,
): { readonly term: number; readonly perToken: number } {
  let sum = 0
  let n = 0
  data.forEach((x, k) => {
    x.mask.forEach((m, i) => {
      if (m !== 1) return
      const d = x.reference![i]! - loss.logprobs[k]![i]!
      sum += Math.exp(d) - d - 1
      n++
    })
  })
  return { term: weight * sum, perToken: n === 0 ? 0 : sum / n }
}
