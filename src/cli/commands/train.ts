import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { stringify } from 'yaml'
import { ConfigError, messageOf, type VerdictStore } from '../../core/index.ts'
import { storedJudge } from '../../judge/index.ts'
import { RunLedger } from '../../ledger/index.ts'
import { summarise } from '../../report/index.ts'
import {
  evaluate,
  type LoopReport,
  methodOf,
  type RunConfig,
  type StepMetrics,
  type Totals,
  trainLoop,
} from '../../train/index.ts'
import { type CommandContext, Interrupted, type Out, run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { expectedCost } from '../expected-cost.ts'
import { onServer, openEngine } from '../open-engine.ts'
import { runsDir } from '../paths.ts'
import { runRecord } from '../run-record.ts'
import { makeRunDir, openRuntime, type Runtime } from '../runtime.ts'
import { makeJudges, type OpenEngine } from '../session.ts'
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
        if (flags.dryRun) return dryRun(ctx.out, config, dir)
        const report = await runTraining(ctx, config, dir, {})
        finish(ctx.out, report)
      }),
    )
}

/** A resumed run keeps its own configuration; keys set now go over it. */
function resolveConfig(dir: string, file: string | undefined, flags: TrainFlags): RunConfig {
  const saved = join(dir, 'config.yaml')
  if (existsSync(join(dir, 'run.db')) && !flags.resume)
    throw new ConfigError(
      '--run',
      `${dir} already holds a run`,
      'add --resume to go on with it, or choose another folder',
    )
  if (flags.resume && !existsSync(saved))
    throw new ConfigError('--resume', `${dir} holds no run`, 'give the folder of an earlier run with --run')
  return loadConfig({ file: file ?? (flags.resume ? saved : undefined), set: flags.set, env: process.env })
}

export interface TrainingReport extends LoopReport {
  readonly run: string
  readonly dev: { before: number | null; after: number | null }
  readonly cpuS: { engine: number; sandbox: number }
}

export interface TrainingOptions {
  /** An open runtime and engine of the caller, else the training's own. */
  readonly runtime?: Runtime
  readonly nano?: OpenEngine
  readonly onStep?: (m: StepMetrics, t: Totals) => void
  readonly evaluateDevAround?: boolean
  readonly keyWithRung?: boolean
}

/** Runs the loop in a run directory, new or resumed. */
export async function runTraining(
  ctx: CommandContext,
  config: RunConfig,
  dir: string,
  o: TrainingOptions,
): Promise<TrainingReport> {
  makeRunDir(dir)
  writeFileSync(join(dir, 'config.yaml'), stringify(config))
  const ledger = RunLedger.open(join(dir, 'run.db'))
  try {
    if (o.runtime && o.nano) return await trainWith(ctx, config, dir, ledger, o.runtime, o.nano, o)
    await using rt = await openRuntime({ cache: config.executor.cache, workers: config.executor.workers })
    await using nano = await openEngine(ctx.out, config, join(dir, 'checkpoints'), ctx.signal)
    return await trainWith(ctx, config, dir, ledger, rt, nano, o)
  } finally {
    ledger.close()
  }
}

async function trainWith(
  { out, signal }: CommandContext,
  config: RunConfig,
  dir: string,
  ledger: RunLedger,
  rt: Runtime,
  nano: OpenEngine,
  o: TrainingOptions,
): Promise<TrainingReport> {
  const { suite, split, only, little } = config.tasks
  const tasks = [
    ...(await rt.pool.select(suite, split, only)),
    ...(little > 0 ? await rt.pool.select('small', 'train', littleIds(little)) : []),
  ]
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
  const devTasks = config.train.evalEvery > 0 || o.evaluateDevAround ? await rt.pool.select('builtin', 'dev') : []
  const devScore = async (sampler: Parameters<typeof evaluate>[0], step: number, s: AbortSignal): Promise<number> => {
    const turns = await evaluate(
      sampler,
      {
        tasks: devTasks,
        samples: config.train.devSamples,
        turns: config.train.turns,
        seed: config.seed,
        format,
        executed: judges.executed,
        final: false,
        key: `dev-${step}`,
      },
      s,
    )
    return devMean(turns)
  }
  const before = devTasks.length > 0 ? await devScore(nano.frozen, 0, signal) : null
  let after: number | null = null
  const started = Date.now()
  const report = await trainLoop(
    {
      config,
      runDir: dir,
      engine: nano.engine,
      frozen: nano.frozen,
      tasks,
      executed,
      predicted: judges.predicted,
      format,
      record: runRecord(ledger, (path) => onServer(path) || existsSync(path)),
      now: () => performance.now(),
      ...(devTasks.length > 0
        ? { evaluateDev: async (sampler, step, s) => (after = await devScore(sampler, step, s)) }
        : {}),
      onStep: (m, t) => {
        o.onStep?.(m, t)
        if (!o.onStep) out.progress(stepLine(m, t, config, started), { last: m.step === config.train.steps })
        for (const a of m.alarms) out.log(`step ${m.step}: alarm: ${a}`)
      },
    },
    signal,
  )
  if (nano.exportTo && !signal.aborted) {
    const to = join(dir, 'adapter')
    const facts = { steps: report.steps, executions: report.totals.executions, predictions: report.totals.predictions }
    // The run is done and saved: an adapter that cannot be fetched is no reason to fail it.
    await nano.exportTo(to, facts, signal).then(
      (done) => done && out.log(`adapter, tokenizer and card: ${to}`),
      (e: unknown) => out.log(`the adapter was not exported (${messageOf(e)})`),
    )
  }
  return {
    ...report,
    run: dir,
    dev: { before, after },
    cpuS: { engine: nano.frozen.usage?.cpuS ?? 0, sandbox: report.totals.sandboxCpuS },
  }
}

/** Mean over dev tasks of the feedback-chosen turn's feedback score. */
function devMean(turns: Awaited<ReturnType<typeof evaluate>>): number {
  return (
    summarise(
      turns.map((t) => ({
        task: `${t.task.suite}/${t.task.id}`,
        sample: t.sample,
        turn: t.turn,
        feedback: t.feedback,
        final: t.feedback,
      })),
    ).score.mean ?? 0
  )
}

const show = (v: number | null): string => (v === null ? '   -' : v.toFixed(3))

export function stepLine(m: StepMetrics, t: Totals, config: RunConfig, started: number): string {
  const perStep = (Date.now() - started) / 1000 / m.step
  const left = perStep * (config.train.steps - m.step)
  return `step ${m.step}/${config.train.steps}  executed ${m.executedGroups} predicted ${m.predictedGroups}  score real ${show(m.executedReward)} predicted ${show(m.predictedReward)}  executions ${t.executions}${m.devReward === undefined ? '' : `  dev ${show(m.devReward)}`}  ${perStep.toFixed(1)} s/step, ${left.toFixed(0)} s left`
}

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
      totals: r.totals,
    },
    () =>
      [
        `${r.steps} steps, stopped by ${r.stoppedBy}`,
        `executions ${r.totals.executions} (attempts judged by execution ${r.totals.attemptsExecuted}), predictions ${r.totals.predictions}, realised anchor share ${r.anchorShare.toFixed(3)}`,
        `sandbox ${r.totals.sandboxCpuS.toFixed(1)} CPU s, engine ${r.cpuS.engine.toFixed(1)} CPU s`,
        `run directory ${r.run}`,
      ].join('\n'),
  )
  if (r.stoppedBy === 'interrupted')
    throw new Interrupted(`stopped at step ${r.steps}, state saved; go on with: wmrl train --resume --run ${r.run}`)
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

/** Resolved configuration of a run directory. */
export function configOf(dir: string): RunConfig {
  return loadConfig({ file: join(dir, 'config.yaml') })
}
