import { closeSync, existsSync, fsyncSync, openSync, renameSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { stringify } from 'yaml'
import { ConfigError, type Cost, messageOf, type TaskRef, type VerdictStore } from '../../core/index.ts'
import type { Sampler } from '../../engine/index.ts'
import { storedJudge } from '../../judge/index.ts'
import { RunLedger } from '../../ledger/index.ts'
import { type Bills, bills, showBills, summarise } from '../../report/index.ts'
import {
  type DevResult,
  evaluate,
  type LoopReport,
  methodOf,
  type RunConfig,
  type StepMetrics,
  type Totals,
  trainLoop,
} from '../../train/index.ts'
import { checkCapacity } from '../capacity.ts'
import { type CommandContext, Failed, Interrupted, type Out, run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { expectedCost } from '../expected-cost.ts'
import { withoutEffect } from '../no-effect.ts'
import { checkEngine, openEngine } from '../open-engine.ts'
import { keepOrigin } from '../origin.ts'
import { dataDir, runsDir } from '../paths.ts'
import { configFile, configOf, keepConfig, recordedConfig } from '../run-config.ts'
import { checkpointDir, hasBegun, runRecord, sweepCheckpoints } from '../run-record.ts'
import { lockRun, makeRunDir, openRuntime, type Runtime } from '../runtime.ts'
import { makeJudges, TaskPool } from '../session.ts'
import { littleIds } from '../wiring.ts'

interface TrainFlags {
  set: string[]
  run?: string
  resume?: boolean
  dryRun?: boolean
}

const collect = (v: string, all: string[]): string[] => [...all, v]

export function trainCommand(program: Command): void {
  program
    .command('train')
    .description('the main job: trains an agent on predicted and really executed outcomes')
    .argument('[config]', 'YAML or TOML file')
    .option('--set <key=value>', 'sets one key, may be given again', collect, [])
    .option('--run <dir>', 'run directory; default a new one')
    .option('--resume', 'goes on from the newest checkpoint of --run')
    .option('--dry-run', 'prints the resolved configuration and what the run is expected to cost')
    .addHelpText('after', '\nExample:\n  wmrl train --set train.steps=20 --set method.mode=paper --run runs/first')
    .action(
      run(async (ctx, file: string | undefined, flags: TrainFlags) => {
        const dir = flags.run ?? join(runsDir(), new Date().toISOString().replace(/[:.]/g, '-'))
        const config = resolveConfig(dir, file, flags)
        for (const line of withoutEffect(config)) ctx.out.log(line)
        if (flags.dryRun) return dryRun(ctx.out, config, dir)
        const report = await runTraining(ctx, config, dir, {})
        finish(ctx.out, report)
      }),
    )
}

/**
 * A resumed run keeps its own configuration; a file and keys given now go over it. A folder whose run never began (it could not
 * start, say) is no run: the corrected command begins in it.
 */
function resolveConfig(dir: string, file: string | undefined, flags: TrainFlags): RunConfig {
  const db = join(dir, 'run.db')
  if (!flags.resume) {
    if (existsSync(db) && inLedger(db, hasBegun))
      throw new ConfigError(
        '--run',
        `${dir} already holds a run`,
        'add --resume to go on with it, or choose another folder',
      )
    return loadConfig({ file, set: flags.set, env: process.env })
  }
  const recorded = existsSync(db) ? inLedger(db, recordedConfig) : undefined
  if (!recorded && !existsSync(configFile(dir)))
    throw new ConfigError('--resume', `${dir} holds no run`, 'give the folder of an earlier run with --run')
  const base = existsSync(configFile(dir)) ? configOf(dir) : recorded!
  const config = loadConfig({ base: { ...base }, file, set: flags.set, env: process.env })
  sameMethod(recorded ?? base, config)
  return config
}

function inLedger<T>(db: string, f: (l: RunLedger) => T): T {
  const ledger = RunLedger.openReadOnly(db)
  try {
    return f(ledger)
  } finally {
    ledger.close()
  }
}

/** What the steps that a run holds already were computed with: changed, they could no longer be replayed. */
const fixedPart = (c: RunConfig): Record<string, unknown> => ({
  seed: c.seed,
  method: methodOf(c),
  train: { groups: c.train.groups, groupSize: c.train.groupSize, turns: c.train.turns },
  prediction: { score: c.prediction.score, draws: c.prediction.draws },
})

/** @throws ConfigError naming the first key that differs */
function sameMethod(was: RunConfig, now: RunConfig): void {
  const compare = (a: unknown, b: unknown, path: string): void => {
    if (a && b && typeof a === 'object' && typeof b === 'object') {
      for (const k of Object.keys(a))
        compare((a as Record<string, unknown>)[k], (b as Record<string, unknown>)[k], path ? `${path}.${k}` : k)
    } else if (a !== b)
      throw new ConfigError(
        path,
        `cannot become ${JSON.stringify(b)}: the steps of this run were computed with ${JSON.stringify(a)}`,
        'leave it as it is, or start a new run',
      )
  }
  compare(fixedPart(was), fixedPart(now), '')
}

export interface TrainingReport extends LoopReport {
  readonly run: string
  readonly cpuS: { engine: number; sandbox: number }
  /** Against a run that executes every attempt; absent where nothing was executed, or on a server, whose seconds nobody tells. */
  readonly bills?: Bills
}

export interface TrainingOptions {
  /** An open runtime of the caller, else the training's own. */
  readonly runtime?: Runtime
  readonly onStep?: (m: StepMetrics, t: Totals) => void
  readonly keyWithRung?: boolean
}

/** Runs the loop in a run directory, new or resumed. */
export async function runTraining(
  ctx: CommandContext,
  config: RunConfig,
  dir: string,
  o: TrainingOptions,
): Promise<TrainingReport> {
  const { cache, workers, limits } = config.executor
  // Before anything is made: a run that cannot start leaves no folder.
  for (const warning of checkCapacity(o.runtime?.workers ?? workers ?? availableParallelism(), limits))
    ctx.out.log(warning)
  checkEngine(config)
  const tasks = await tasksOf(o.runtime?.pool ?? new TaskPool(dataDir()), config)
  await using own = o.runtime ? undefined : await openRuntime({ cache, workers, limits })
  makeRunDir(dir)
  using _lock = lockRun(dir)
  // Constants that the mode decides are written out: they may change between versions, a run's may not.
  const resolved: RunConfig = { ...config, method: methodOf(config) }
  const ledger = RunLedger.open(join(dir, 'run.db'))
  try {
    // A run that goes on keeps its own until it is known that it can.
    if (!existsSync(configFile(dir))) writeWhole(configFile(dir), stringify(resolved))
    sweepCheckpoints(ledger, dir)
    return await trainWith(ctx, resolved, dir, ledger, (o.runtime ?? own)!, tasks, o)
  } finally {
    ledger.close()
  }
}

interface RunTasks {
  readonly train: readonly TaskRef[]
  /** Those of the evaluations inside training; none where there are none. */
  readonly dev: readonly TaskRef[]
}

/** What a run trains on and looks at. @throws ConfigError naming the key */
async function tasksOf(pool: TaskPool, { tasks, train }: RunConfig): Promise<RunTasks> {
  const { suite, split, only, little } = tasks
  return {
    train: [
      ...(await pool.select(suite, split, only)),
      ...(little > 0 ? await pool.select('small', 'train', littleIds(little), 'tasks.little') : []),
    ],
    dev: train.evalEvery > 0 ? await pool.select('builtin', 'dev') : [],
  }
}

/** The file is there with all of its text, or as it was. */
function writeWhole(path: string, text: string): void {
  const temporary = `${path}.tmp`
  const file = openSync(temporary, 'w')
  try {
    writeFileSync(file, text)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(temporary, path)
}

async function trainWith(
  { out, signal }: CommandContext,
  config: RunConfig,
  dir: string,
  ledger: RunLedger,
  rt: Runtime,
  tasks: RunTasks,
  o: TrainingOptions,
): Promise<TrainingReport> {
  await using nano = await openEngine(out, config, checkpointDir(dir), signal)
  keepOrigin(ledger, dir, nano.origin, (line) => out.log(line))
  keepConfig(ledger, config)
  writeWhole(configFile(dir), stringify(config))
  const judges = makeJudges({
    config,
    pool: rt.pool,
    executor: rt.executor,
    grader: rt.grader,
    nano,
    ...(o.keyWithRung === undefined ? {} : { keyWithRung: o.keyWithRung }),
  })
  const executed = storedJudge(judges.executed, ledger satisfies VerdictStore)
  const format = nano.format(rt.pool)
  const evaluateDev = async (sampler: Sampler, step: number, s: AbortSignal): Promise<DevResult> => {
    const turns = await evaluate(
      sampler,
      {
        tasks: tasks.dev,
        samples: config.train.devSamples,
        turns: config.train.turns,
        seed: config.seed,
        format,
        executed,
        final: false,
        key: `dev-${step}`,
      },
      s,
    )
    const sum = (f: (c: Cost) => number): number => turns.reduce((n, t) => n + f(t.feedback.cost), 0)
    return { score: devMean(turns), executions: sum((c) => c.executions), sandboxCpuS: sum((c) => c.sandboxCpuS) }
  }
  const report = await trainLoop(
    {
      config,
      runDir: dir,
      engine: nano.engine,
      frozen: nano.frozen,
      tasks: tasks.train,
      executed,
      predicted: judges.predicted,
      format,
      record: runRecord(ledger, dir, config),
      now: () => performance.now(),
      log: (line) => out.log(line),
      ...(tasks.dev.length > 0 ? { evaluateDev } : {}),
      onStep: (m, t) => {
        o.onStep?.(m, t)
        if (!o.onStep) out.progress(stepLine(m, t, config), { last: m.step === config.train.steps })
        for (const a of m.alarms) out.log(`step ${m.step}: alarm: ${a}`)
      },
      async beforeClose({ steps, totals }) {
        if (!nano.exportTo || signal.aborted) return
        const to = join(dir, 'adapter')
        const facts = { steps, executions: totals.executions, predictions: totals.predictions }
        // The run is done and saved: an adapter that cannot be fetched is no reason to fail it.
        await nano.exportTo(to, facts, signal).then(
          (done) => done && out.log(`adapter, tokenizer and card: ${to}`),
          (e: unknown) => out.log(`the adapter was not exported (${messageOf(e)})`),
        )
      },
    },
    signal,
  )
  const { policyCpuS, frozenCpuS, sandboxCpuS } = report.totals
  const { attemptsExecuted, predictions, wallS, devWallS } = report.totals
  const told = attemptsExecuted > 0 && policyCpuS > 0
  const used = { ...report.totals, wallS: wallS - devWallS }
  return {
    ...report,
    run: dir,
    cpuS: { engine: policyCpuS + frozenCpuS, sandbox: sandboxCpuS },
    // Anchors are predicted too, so the predictions are all attempts, where there are any.
    ...(told ? { bills: bills(used, Math.max(predictions, attemptsExecuted), rt.workers) } : {}),
  }
}

/** Mean over dev tasks of the feedback-chosen turn's feedback score. */
function devMean(turns: Awaited<ReturnType<typeof evaluate>>): number | null {
  return summarise(
    turns.map((t) => ({
      task: `${t.task.suite}/${t.task.id}`,
      sample: t.sample,
      turn: t.turn,
      feedback: t.feedback,
      final: t.feedback,
    })),
  ).score.mean
}

const show = (v: number | null): string => (v === null ? '   -' : v.toFixed(3))

export function stepLine(m: StepMetrics, t: Totals, config: RunConfig): string {
  const perStep = (t.wallS - t.devWallS) / m.step
  const left = perStep * (config.train.steps - m.step)
  return `step ${m.step}/${config.train.steps}  executed ${m.executedGroups} predicted ${m.predictedGroups}  score real ${show(m.executedReward)} predicted ${show(m.predictedReward)}  executions ${t.executions}${m.devReward === undefined ? '' : `  dev ${show(m.devReward)}`}  ${perStep.toFixed(1)} s/step, ${left.toFixed(0)} s left`
}

export const devLine = (r: LoopReport): string =>
  `dev score ${show(r.dev.before).trim()} before, ${show(r.dev.after).trim()} after (${r.totals.devExecutions} executions, ${r.totals.devSandboxCpuS.toFixed(1)} CPU s beside training's)`

function finish(out: Out, r: TrainingReport): void {
  out.result(
    {
      run: r.run,
      steps: r.steps,
      executions: r.totals.executions,
      predictions: r.totals.predictions,
      anchorShare: r.anchorShare,
      dev: r.dev,
      stoppedBy: r.stoppedBy,
      ...(r.alarm === undefined ? {} : { alarm: r.alarm }),
      totals: r.totals,
      ...(r.bills ? { bills: r.bills } : {}),
    },
    () =>
      [
        `${r.steps} steps, stopped by ${r.stoppedBy}`,
        `executions ${r.totals.executions} (attempts judged by execution ${r.totals.attemptsExecuted}), predictions ${r.totals.predictions}, realised anchor share ${r.anchorShare.toFixed(3)}`,
        `sandbox ${r.totals.sandboxCpuS.toFixed(1)} CPU s; engine ${r.totals.policyCpuS.toFixed(1)} CPU s for the policy, ${r.totals.frozenCpuS.toFixed(1)} for the frozen backbone`,
        ...(r.bills && r.totals.predictions > 0 ? [`against executing every attempt: ${showBills(r.bills)}`] : []),
        ...(r.dev.before === null && r.dev.after === null ? [] : [devLine(r)]),
        `run directory ${r.run}`,
      ].join('\n'),
  )
  if (r.stoppedBy === 'interrupted')
    throw new Interrupted(`stopped at step ${r.steps}, state saved; go on with: wmrl train --resume --run ${r.run}`)
  if (r.alarm !== undefined) throw new Failed(r.alarm)
}

function dryRun(out: Out, config: RunConfig, dir: string): void {
  const method = methodOf(config)
  const expected = expectedCost(config)
  out.result({ run: dir, config, method, expected }, () =>
    [
      stringify({ ...config, method }).trimEnd(),
      `# expected: ${expected.executions} executions at most (equal programs run once), ${expected.predictions} predictions`,
      `# tokens at most: ${expected.sampledTokens} sampled, ${expected.predictedTokens} of the world model, ${expected.trainedTokens} trained`,
      `# about ${expected.hours} hours (${expected.assumes})`,
      `# all-executed training would start ${expected.allExecutedEquivalent} programs`,
    ].join('\n'),
  )
}
