import { appendFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { AgentFormat, Trajectory } from '../agent/index.ts'
import { type Cost, EngineError, type TaskRef, type Verdict, WmrlError } from '../core/index.ts'
import type { Checkpoint, Engine, Model, Sampler } from '../engine/index.ts'
import type { Judge } from '../judge/index.ts'
import { INITIAL_STATE, type MethodState } from '../method/index.ts'
import { methodOf, type RunConfig } from './config.ts'
import type { RunRecord } from './record.ts'
import { RollAhead } from './roll-ahead.ts'
import {
  gather,
  type RolledStep,
  roll,
  type StepInputs,
  type StepOutcome,
  settle,
  type UpdateReport,
  update,
} from './step.ts'

/** What a checkpoint restores beside weights and optimiser: everything else that the next step depends on. */
export interface RunState {
  readonly step: number
  readonly method: MethodState
  readonly totals: Totals
  /** Wanted and realised anchors of the last steps, newest last. */
  readonly anchorHistory: readonly (readonly [number, number])[]
}

/** Itemised costs of training so far (invariant 12). */
export interface Totals {
  readonly executions: number
  readonly attemptsExecuted: number
  readonly predictions: number
  readonly sandboxCpuS: number
  readonly sandboxWallS: number
  readonly sampledTokens: number
  readonly predictedTokens: number
  readonly trainedTokens: number
  readonly optimiserSteps: number
}
const NOTHING: Totals = {
  executions: 0,
  attemptsExecuted: 0,
  predictions: 0,
  sandboxCpuS: 0,
  sandboxWallS: 0,
  sampledTokens: 0,
  predictedTokens: 0,
  trainedTokens: 0,
  optimiserSteps: 0,
}

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
  readonly mapVersion: number
  readonly rho: number
  readonly signedR2: number
  readonly entropy: number | null
  readonly loss: number | null
  readonly gradNorm: number | null
  readonly noUpdate: string | null
  readonly klSampleTrain: number | null
  readonly alarms: readonly string[]
  /** Updates between the weights that sampled this step and those that it updates; only where sampling runs ahead. */
  readonly staleness?: number
  readonly seconds: Readonly<Record<'rollout' | 'update' | 'commit', number>>
  readonly devReward?: number
}

export type StoppedBy = 'steps' | 'executions' | 'sandboxS' | 'wallS' | 'interrupted' | 'unscorable' | 'anchors'

/** A run that must not go on: executions fail, or predictions do. */
export class TrainingStopped extends WmrlError {
  constructor(
    readonly stoppedBy: StoppedBy,
    message: string,
  ) {
    super(message)
  }
}

export interface LoopDeps {
  readonly config: RunConfig
  readonly runDir: string
  readonly engine: Engine
  readonly frozen: Sampler
  readonly tasks: readonly TaskRef[]
  readonly executed: Judge
  readonly predicted: Judge
  readonly format: AgentFormat
  readonly record: RunRecord
  readonly now: () => number
  /** Executed score of dev tasks, where the configuration asks for it. */
  readonly evaluateDev?: (sampler: Sampler, step: number, signal: AbortSignal) => Promise<number>
  readonly onStep?: (m: StepMetrics, t: Totals) => void
}

export interface LoopReport {
  readonly steps: number
  readonly stoppedBy: StoppedBy
  readonly totals: Totals
  readonly anchorShare: number
  readonly checkpoint: Checkpoint | undefined
}

/** Trains from the newest complete checkpoint, or from the frozen backbone, until steps, budget or signal end it. */
export async function trainLoop(d: LoopDeps, signal: AbortSignal): Promise<LoopReport> {
  const { config } = d
  const newest = d.record.newestCheckpoint()
  let state: RunState = newest?.state ?? { step: 0, method: INITIAL_STATE, totals: NOTHING, anchorHistory: [] }
  const model = await d.engine.open(newest?.checkpoint ?? 'frozen', signal)
  let checkpoint = newest?.checkpoint
  let saved = newest ? state.step : -1
  const started = d.now()
  let wanted = 0
  let realised = 0
  let stoppedBy: StoppedBy = 'steps'
  const over = new AbortController()
  const ahead = new RollAhead(
    async (step, s) => {
      await using sampler = await model.snapshot(s)
      return await roll(inputsOf(d, step), sampler, s)
    },
    config.train.maxStaleness,
    AbortSignal.any([signal, over.signal]),
  )
  try {
    while (state.step < config.train.steps) {
      const limit = overBudget(config, state.totals, (d.now() - started) / 1000)
      if (limit) {
        stoppedBy = limit
        break
      }
      if (signal.aborted) {
        stoppedBy = 'interrupted'
        break
      }
      const step = state.step + 1
      const next = await oneStep(d, model, state, step, ahead, signal)
      wanted += next.wanted
      realised += next.realised
      state = next.state
      const due = step % config.train.checkpointEvery === 0 || step === config.train.steps
      if (due) {
        checkpoint = await save(d, model, state, signal)
        saved = step
      }
    }
  } catch (e) {
    if (e instanceof TrainingStopped) {
      await save(d, model, state, AbortSignal.timeout(60_000)).catch(() => undefined)
      throw e
    }
    if (!signal.aborted) throw e
    stoppedBy = 'interrupted'
  } finally {
    over.abort()
    await ahead.idle()
  }
  if (state.step !== saved && state.step > 0) checkpoint = await save(d, model, state, AbortSignal.timeout(60_000))
  return {
    steps: state.step,
    stoppedBy,
    totals: state.totals,
    anchorShare: wanted === 0 ? 0 : realised / Math.max(1, config.train.groups * state.step),
    checkpoint,
  }
}

const inputsOf = (d: LoopDeps, step: number): Omit<StepInputs, 'state'> => ({
  seed: d.config.seed,
  step,
  tasks: d.tasks,
  groups: d.config.train.groups,
  groupSize: d.config.train.groupSize,
  turns: d.config.train.turns,
  method: methodOf(d.config),
  executed: d.executed,
  predicted: d.predicted,
  format: d.format,
})

async function oneStep(
  d: LoopDeps,
  model: Model,
  state: RunState,
  step: number,
  ahead: RollAhead<RolledStep>,
  signal: AbortSignal,
) {
  const { config } = d
  const t0 = d.now()
  const overlap = config.train.maxStaleness > 0
  const evaluate = config.train.evalEvery > 0 && step % config.train.evalEvery === 0 ? d.evaluateDev : undefined
  await using sampler = overlap && !evaluate ? undefined : await model.snapshot(signal)
  const inputs = { ...inputsOf(d, step), state: state.method }
  const rolled = overlap ? await ahead.take(step, config.train.steps) : undefined
  const o = rolled ? settle(inputs, rolled.value) : await gather(inputs, sampler!, signal)
  // Before the update: some servers cannot sample a snapshot once its model was trained on.
  const dev = evaluate ? await evaluate(sampler!, step, signal) : undefined
  const t1 = d.now()
  const u = await update(
    o,
    model,
    d.frozen,
    {
      // Recommended mode's correction is linear in the advantages only at ratio 1: one on-policy step, unclipped.
      loss:
        config.method.mode === 'recommended'
          ? {
              kind: 'importance_sampling',
              entropyBonus: config.train.entropy,
              kl: config.train.kl,
              ...(overlap ? { truncate: config.train.truncateRatio } : {}),
            }
          : {
              kind: 'ppo',
              clipLow: config.train.clipLow,
              clipHigh: config.train.clipHigh,
              entropyBonus: config.train.entropy,
              kl: config.train.kl,
            },
      learningRate: config.train.learningRate,
      epsilon: config.train.adamEpsilon,
      gradClip: config.train.gradClip,
      groupSize: config.train.groupSize,
    },
    signal,
  )
  const t2 = d.now()
  if (u.step && !u.step.applied)
    throw new EngineError(`step ${step}: a gradient was not finite, the weights are unchanged`)
  const totals = add(state.totals, o, u)
  const wanted = o.anchors.filter(Boolean).length
  const realised = o.evidence.filter((e) => e.anchor && (e.executed ?? []).filter((r) => r !== null).length >= 2).length
  const next: RunState = {
    step,
    method: o.result.state,
    totals,
    anchorHistory: [...state.anchorHistory, [wanted, realised] as const].slice(-10),
  }
  const metrics = {
    ...metricsOf(o, u, step, { rollout: (t1 - t0) / 1000, update: (t2 - t1) / 1000, commit: 0 }, dev),
    ...(rolled ? { staleness: rolled.staleness } : {}),
  }
  d.record.commitStep(metrics, o)
  const done: StepMetrics = { ...metrics, seconds: { ...metrics.seconds, commit: (d.now() - t2) / 1000 } }
  await appendFile(join(d.runDir, 'metrics.jsonl'), `${JSON.stringify({ ...done, totals })}\n`)
  d.onStep?.(done, totals)
  guard(config, o, next)
  return { state: next, wanted, realised }
}

/** Alarms that end a run rather than train on what cannot be trusted. */
function guard(config: RunConfig, o: StepOutcome, s: RunState): void {
  const bad = o.trajectories.filter((t) => t.unscorable).length / Math.max(1, o.trajectories.length)
  if (bad > config.alarm.unscorableShare) {
    throw new TrainingStopped(
      'unscorable',
      `step ${s.step}: ${(100 * bad).toFixed(0)} % of trajectories are unscorable (${reasons(o.trajectories)}); limit alarm.unscorableShare = ${config.alarm.unscorableShare}`,
    )
  }
  const w = s.anchorHistory.reduce((a, [x]) => a + x, 0)
  const r = s.anchorHistory.reduce((a, [, x]) => a + x, 0)
  if (w >= 5 && r / w < config.alarm.anchorFloor) {
    throw new TrainingStopped(
      'anchors',
      `step ${s.step}: ${r} of ${w} wanted anchors were really executed; limit alarm.anchorFloor = ${config.alarm.anchorFloor}`,
    )
  }
}

function reasons(ts: readonly Trajectory[]): string {
  const counts = countReasons(ts)
  const first = ts.find((t) => t.unscorable)?.unscorable?.detail ?? ''
  return `${Object.entries(counts)
    .map(([k, n]) => `${k} ${n}`)
    .join(', ')}; first: ${first.slice(0, 120)}`
}

export function countReasons(ts: readonly Trajectory[]): Record<string, number> {
  const out: Record<string, number> = {}
  for (const t of ts) if (t.unscorable) out[t.unscorable.cause] = (out[t.unscorable.cause] ?? 0) + 1
  return out
}

function overBudget(c: RunConfig, t: Totals, wallS: number): StoppedBy | undefined {
  if (c.budget.executions !== undefined && t.executions >= c.budget.executions) return 'executions'
  if (c.budget.sandboxS !== undefined && t.sandboxCpuS >= c.budget.sandboxS) return 'sandboxS'
  if (c.budget.wallS !== undefined && wallS >= c.budget.wallS) return 'wallS'
  return undefined
}

async function save(d: LoopDeps, model: Model, state: RunState, signal: AbortSignal): Promise<Checkpoint> {
  const checkpoint = await model.save(`step-${state.step}`, signal)
  for (const gone of d.record.commitCheckpoint(checkpoint, state)) await rm(gone, { force: true, recursive: true })
  return checkpoint
}

const verdictsOf = (o: StepOutcome): Verdict[] =>
  o.trajectories.flatMap((t) => t.turns.flatMap((x) => (x.shadow ? [x.verdict, x.shadow] : [x.verdict])))

function add(t: Totals, o: StepOutcome, u: UpdateReport): Totals {
  const verdicts = verdictsOf(o)
  const sum = (f: (c: Cost) => number): number => verdicts.reduce((s, v) => s + f(v.cost), 0)
  return {
    executions: t.executions + sum((c) => c.executions),
    attemptsExecuted: t.attemptsExecuted + verdicts.filter((v) => v.source === 'executed').length,
    predictions: t.predictions + verdicts.filter((v) => v.source === 'predicted').length,
    sandboxCpuS: t.sandboxCpuS + sum((c) => c.sandboxCpuS),
    sandboxWallS: t.sandboxWallS + sum((c) => c.sandboxWallS),
    sampledTokens: t.sampledTokens + o.trajectories.reduce((s, x) => s + x.mask.reduce((a, b) => a + b, 0), 0),
    predictedTokens: t.predictedTokens + sum((c) => c.predictedTokens),
    trainedTokens: t.trainedTokens + (u.step ? o.data.reduce((s, x) => s + x.datum.tokens.length, 0) : 0),
    optimiserSteps: t.optimiserSteps + (u.step?.applied ? 1 : 0),
  }
}

const mean = (x: readonly number[]): number | null => (x.length === 0 ? null : x.reduce((a, b) => a + b, 0) / x.length)
const std = (x: readonly number[]): number => {
  const m = mean(x) ?? 0
  return Math.sqrt(x.reduce((s, v) => s + (v - m) ** 2, 0) / Math.max(1, x.length))
}
const known = (r: readonly (number | null)[]): number[] => r.filter((v): v is number => v !== null)

/** Mean gap between sampler and trainer at which a step says so: above it their distributions are not the same. */
const DIVERGENCE = 0.02

function metricsOf(
  o: StepOutcome,
  u: UpdateReport,
  step: number,
  seconds: StepMetrics['seconds'],
  dev: number | undefined,
): StepMetrics {
  const used = o.evidence.map((e, g) => known(e.executed ?? o.result.groups[g]!.corrected))
  const full = used.filter((r) => r.length > 0)
  const gaps = klSampleTrain(o, u)
  return {
    step,
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
    mapVersion: o.result.mapVersion,
    rho: o.result.rho,
    signedR2: o.result.signedR2,
    entropy: u.loss?.entropy ?? null,
    loss: u.loss?.loss ?? null,
    gradNorm: u.step?.gradNorm ?? null,
    noUpdate: u.none ?? null,
    klSampleTrain: gaps,
    alarms: [
      ...o.result.alarms,
      ...(gaps !== null && Math.abs(gaps) > DIVERGENCE
        ? [`sampler and trainer differ by ${gaps.toFixed(3)} nats a token`]
        : []),
    ],
    seconds,
    ...(dev === undefined ? {} : { devReward: dev }),
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
