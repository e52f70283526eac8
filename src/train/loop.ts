import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { appendFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { AgentFormat, Trajectory } from '../agent/index.ts'
import { EngineError, messageOf, overdueLine, type TaskRef, waits } from '../core/index.ts'
import type { Checkpoint, Engine, Model, Sampler } from '../engine/index.ts'
import type { Judge } from '../judge/index.ts'
import { INITIAL_STATE, type MethodState } from '../method/index.ts'
import { methodOf, type RunConfig } from './config.ts'
import { LoopLag } from './loop-lag.ts'
import { countReasons, metricsOf, type StepMetrics } from './metrics.ts'
import type { RunRecord, SavedRun } from './record.ts'
import { RollAhead } from './roll-ahead.ts'
import { gather, type RolledStep, roll, type StepInputs, type StepOutcome, settle, update } from './step.ts'
import { add, addDev, type DevResult, NOTHING, overBudget, type Totals, timed } from './totals.ts'

/** What a checkpoint restores beside weights and optimiser: everything else that the next step depends on. */
export interface RunState {
  readonly step: number
  readonly method: MethodState
  readonly totals: Totals
  /** Wanted and realised anchors of the last steps, newest last. */
  readonly anchorHistory: readonly (readonly [number, number])[]
  /** Executed dev score of the frozen backbone, measured once a run; null where nothing could be scored. */
  readonly devBefore?: number | null
}

export type StoppedBy = 'steps' | 'executions' | 'sandboxS' | 'wallS' | 'interrupted' | 'unscorable' | 'anchors'

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
  /** Where the configuration asks for it. `step` names the weights: those that this step would update, 0 the frozen ones. */
  readonly evaluateDev?: (sampler: Sampler, step: number, signal: AbortSignal) => Promise<DevResult>
  readonly onStep?: (m: StepMetrics, t: Totals) => void
  readonly log?: (line: string) => void
  /** Called at the end, while the model is still open. */
  readonly beforeClose?: (r: LoopReport) => Promise<void>
}

export interface LoopReport {
  readonly steps: number
  readonly stoppedBy: StoppedBy
  /** In words, where an alarm stopped the run: executions fail, or predictions do. */
  readonly alarm?: string
  readonly totals: Totals
  readonly anchorShare: number
  readonly dev: { readonly before: number | null; readonly after: number | null }
  readonly checkpoint: Checkpoint | undefined
}

/** Trains from the newest checkpoint that opens, or from the frozen backbone, until steps, budget, alarm or signal end it. */
export async function trainLoop(d: LoopDeps, signal: AbortSignal): Promise<LoopReport> {
  const { config } = d
  const opened = await openNewest(d.engine, d.record.checkpoints(), d.log, signal)
  const { model } = opened
  await using _open = givenBack(model, d.log)
  let state: RunState = opened.from
    ? // Checkpoints of earlier versions lack the newer totals.
      { ...opened.from.state, totals: { ...NOTHING, ...opened.from.state.totals } }
    : { step: 0, method: INITIAL_STATE, totals: NOTHING, anchorHistory: [] }
  d.record.resumeAt(state.step)
  cutMetrics(d.runDir, state.step)
  let checkpoint = opened.from?.checkpoint
  let saved = opened.from ? state.step : -1
  /** The step whose update the model's weights hold; ahead of the state's between update and commit. */
  const weights = { step: state.step }
  const spent = expenses(d, model, state.totals)
  using lag = new LoopLag()
  using _watchdog = waits.watch((overdue, pending) => d.log?.(`watchdog: ${overdueLine(overdue, pending)}`))
  let stoppedBy: StoppedBy = 'steps'
  let alarm: string | undefined
  const over = new AbortController()
  const ahead = new RollAhead(
    async (step, s) => {
      await using sampler = await model.snapshot(s)
      return await waits.during(`roll-outs of step ${step}`, undefined, () => roll(inputsOf(d, step), sampler, s))
    },
    config.train.maxStaleness,
    AbortSignal.any([signal, over.signal]),
  )
  let after: number | null = null
  try {
    if (d.evaluateDev && state.devBefore === undefined) {
      const dev = await timed(d.now, d.evaluateDev(d.frozen, 0, signal))
      state = { ...state, devBefore: dev.score, totals: addDev(state.totals, dev) }
    }
    while (state.step < config.train.steps) {
      const limit = overBudget(config, { ...state.totals, ...spent() })
      if (limit) {
        stoppedBy = limit
        break
      }
      if (signal.aborted) {
        stoppedBy = 'interrupted'
        break
      }
      const step = state.step + 1
      const next = await oneStep(d, model, state, step, { ahead, weights, spent, lag }, signal)
      state = next.state
      const due = step % config.train.checkpointEvery === 0 || step === config.train.steps
      if (due) {
        checkpoint = await save(d, model, state, signal)
        saved = step
      }
      if (next.stop) {
        stoppedBy = next.stop.by
        alarm = next.stop.why
        break
      }
    }
  } catch (e) {
    // Weights of a step whose record failed belong to no state: the run goes on from the checkpoint before them.
    if (!signal.aborted || weights.step !== state.step) throw e
    stoppedBy = 'interrupted'
  } finally {
    over.abort()
    await ahead.idle()
  }
  if (state.step !== saved && state.step > 0) checkpoint = await save(d, model, state, AbortSignal.timeout(60_000))
  if (d.evaluateDev && alarm === undefined && stoppedBy !== 'interrupted') {
    try {
      await using sampler = await model.snapshot(signal)
      const dev = await timed(d.now, d.evaluateDev(sampler, state.step + 1, signal))
      after = dev.score
      state = { ...state, totals: { ...addDev(state.totals, dev), ...spent() } }
      if (checkpoint) d.record.commitCheckpoint(checkpoint, state)
    } catch (e) {
      if (!signal.aborted) throw e
      stoppedBy = 'interrupted'
    }
  }
  const totals = { ...state.totals, ...spent() }
  const report: LoopReport = {
    steps: state.step,
    stoppedBy,
    ...(alarm === undefined ? {} : { alarm }),
    totals,
    anchorShare: totals.anchorsRealised / Math.max(1, config.train.groups * state.step),
    dev: { before: state.devBefore ?? null, after },
    checkpoint,
  }
  await d.beforeClose?.(report)
  return report
}

/**
 * Opens the newest checkpoint that the engine can read, the frozen backbone where there is none.
 * @throws EngineError where there are checkpoints but none opens: training anew would look like going on.
 */
export async function openNewest(
  engine: Engine,
  saved: readonly SavedRun[],
  log: ((line: string) => void) | undefined,
  signal: AbortSignal,
): Promise<{ readonly model: Model; readonly from: SavedRun | undefined }> {
  if (saved.length === 0) return { model: await engine.open('frozen', signal), from: undefined }
  const failed: string[] = []
  for (const from of saved) {
    try {
      const model = await engine.open(from.checkpoint, signal)
      for (const f of failed) log?.(`checkpoint ${f}`)
      if (failed.length > 0) log?.(`going on from step ${from.state.step} instead`)
      return { model, from }
    } catch (e) {
      if (!(e instanceof EngineError) || e.retryable || signal.aborted) throw e
      failed.push(`of step ${from.state.step}: ${messageOf(e)}`)
    }
  }
  throw new EngineError(
    `none of ${saved.length} checkpoints opens (${failed[0]}); put its file back into the run's checkpoints/, or start again with another --run`,
  )
}

/** Disposes of a model at the end of a block. That it fails is said; it must not stand before what ended the block. */
export const givenBack = (model: Model, log: ((line: string) => void) | undefined): AsyncDisposable => ({
  async [Symbol.asyncDispose]() {
    try {
      await model[Symbol.asyncDispose]()
    } catch (e) {
      log?.(`the model was not given back (${messageOf(e)})`)
    }
  },
})

/** What the run has spent by now, with what earlier processes spent on it. */
function expenses(d: LoopDeps, model: Model, base: Totals): () => Pick<Totals, 'policyCpuS' | 'frozenCpuS' | 'wallS'> {
  const started = d.now()
  const frozen = d.frozen.usage?.cpuS ?? 0
  return () => ({
    policyCpuS: base.policyCpuS + model.usage.cpuS,
    frozenCpuS: base.frozenCpuS + (d.frozen.usage?.cpuS ?? 0) - frozen,
    wallS: base.wallS + (d.now() - started) / 1000,
  })
}

/** A step that is computed again after a resume has one line, too. */
function cutMetrics(runDir: string, step: number): void {
  const path = metricsPath(runDir)
  if (!existsSync(path)) return
  const lines = readFileSync(path, 'utf8').split('\n')
  const kept = lines.filter((l) => {
    try {
      return (JSON.parse(l) as StepMetrics).step <= step
    } catch {
      // Empty, or cut when the process was killed.
      return false
    }
  })
  writeFileSync(`${path}.tmp`, kept.map((l) => `${l}\n`).join(''))
  renameSync(`${path}.tmp`, path)
}
const metricsPath = (runDir: string): string => join(runDir, 'metrics.jsonl')

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

interface Stop {
  readonly by: StoppedBy
  readonly why: string
}

/** Learning rate of a step, the first being 1; linear decay reaches 0 one step after the last. */
export function learningRateAt(t: Pick<RunConfig['train'], 'learningRate' | 'decay' | 'steps'>, step: number): number {
  return t.decay === 'none' ? t.learningRate : (t.learningRate * (t.steps + 1 - step)) / t.steps
}

async function oneStep(
  d: LoopDeps,
  model: Model,
  state: RunState,
  step: number,
  run: {
    readonly ahead: RollAhead<RolledStep>
    readonly weights: { step: number }
    readonly spent: ReturnType<typeof expenses>
    readonly lag: LoopLag
  },
  signal: AbortSignal,
): Promise<{ readonly state: RunState; readonly stop: Stop | undefined }> {
  const { config } = d
  const t0 = d.now()
  const overlap = config.train.maxStaleness > 0
  // After the last step the final weights are evaluated.
  const due = config.train.evalEvery > 0 && step % config.train.evalEvery === 0 && step < config.train.steps
  const evaluate = due ? d.evaluateDev : undefined
  await using sampler = overlap && !evaluate ? undefined : await model.snapshot(signal)
  const inputs = { ...inputsOf(d, step), state: state.method }
  const rolled = overlap ? await run.ahead.take(step, config.train.steps) : undefined
  const o = rolled
    ? settle(inputs, rolled.value)
    : await waits.during(`roll-outs of step ${step}`, undefined, () => gather(inputs, sampler!, signal))
  // Before the update: some servers cannot sample a snapshot once its model was trained on.
  const dev = evaluate ? await timed(d.now, evaluate(sampler!, step, signal)) : undefined
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
      learningRate: learningRateAt(config.train, step),
      epsilon: config.train.adamEpsilon,
      gradClip: config.train.gradClip,
      groupSize: config.train.groupSize,
    },
    signal,
  )
  run.weights.step = step
  const t2 = d.now()
  if (u.step && !u.step.applied)
    throw new EngineError(`step ${step}: a gradient was not finite, the weights are unchanged`)
  const wanted = o.anchors.filter(Boolean).length
  const realised = o.evidence.filter((e) => e.anchor && (e.executed ?? []).filter((r) => r !== null).length >= 2).length
  const totals: Totals = {
    ...add(dev ? addDev(state.totals, dev) : state.totals, o, u),
    anchorsWanted: state.totals.anchorsWanted + wanted,
    anchorsRealised: state.totals.anchorsRealised + realised,
    ...run.spent(),
  }
  const next: RunState = {
    ...state,
    step,
    method: o.result.state,
    totals,
    anchorHistory: [...state.anchorHistory, [wanted, realised] as const].slice(-config.alarm.anchorSteps),
  }
  const metrics = {
    ...metricsOf(o, u, {
      step,
      seconds: { rollout: (t1 - t0) / 1000, update: (t2 - t1) / 1000, commit: 0 },
      loopLagMs: run.lag.take(),
      dev: dev?.score,
      divergence: config.alarm.divergence,
      lengthScore: config.alarm.lengthScore,
    }),
    ...(rolled ? { staleness: rolled.staleness } : {}),
  }
  d.record.commitStep(metrics, o)
  const done: StepMetrics = { ...metrics, seconds: { ...metrics.seconds, commit: (d.now() - t2) / 1000 } }
  await appendFile(metricsPath(d.runDir), `${JSON.stringify({ ...done, totals })}\n`)
  d.onStep?.(done, totals)
  return { state: next, stop: guard(config, o, next) }
}

/** Alarms that end a run rather than train on what cannot be trusted. */
function guard(config: RunConfig, o: StepOutcome, s: RunState): Stop | undefined {
  const bad = o.trajectories.filter((t) => t.unscorable).length / Math.max(1, o.trajectories.length)
  if (bad > config.alarm.unscorableShare) {
    return {
      by: 'unscorable',
      why: `step ${s.step}: ${(100 * bad).toFixed(0)} % of trajectories are unscorable (${reasons(o.trajectories)}); limit alarm.unscorableShare = ${config.alarm.unscorableShare}`,
    }
  }
  const w = s.anchorHistory.reduce((a, [x]) => a + x, 0)
  const r = s.anchorHistory.reduce((a, [, x]) => a + x, 0)
  if (w >= 5 && r / w < config.alarm.anchorFloor) {
    return {
      by: 'anchors',
      why: `step ${s.step}: ${r} of ${w} wanted anchors were really executed; limit alarm.anchorFloor = ${config.alarm.anchorFloor}`,
    }
  }
  return undefined
}

function reasons(ts: readonly Trajectory[]): string {
  const counts = countReasons(ts)
  const first = ts.find((t) => t.unscorable)?.unscorable?.detail ?? ''
  return `${Object.entries(counts)
    .map(([k, n]) => `${k} ${n}`)
    .join(', ')}; first: ${first.slice(0, 400)}`
}

async function save(d: LoopDeps, model: Model, state: RunState, signal: AbortSignal): Promise<Checkpoint> {
  const checkpoint = await model.save(`step-${state.step}`, signal)
  for (const gone of d.record.commitCheckpoint(checkpoint, state)) await rm(gone, { force: true, recursive: true })
  return checkpoint
}
