import { join } from 'node:path'
import type { Command } from 'commander'
import { type Attempt, attemptId, ConfigError, MissingError, type TaskRef } from '../../core/index.ts'
import { FIXED, fixedProgram } from '../../lab/fixed.ts'
import { type JudgedTurn, summarise } from '../../report/index.ts'
import { type BuiltSuite, prepareTasks } from '../../tasks/index.ts'
import type { RunConfig } from '../../train/index.ts'
import { type CommandContext, Failed, run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { demoDir, freshCache, keepRecording, type RecordedRow, recordedCopy, verifyRows } from '../demo-recording.ts'
import { attemptsOf, type Evaluated, type Fixed, present, type SeedResult } from '../demo-report.ts'
import { artefactDir, dataDir, runsDir, solutionsPython } from '../paths.ts'

import { openRuntime, type Runtime } from '../runtime.ts'
import { makeJudges, type NanoEngine, openNano } from '../session.ts'
import { littleIds } from '../wiring.ts'
import { evaluateOn, judged, withAgent } from './eval.ts'
import { fidelityOf } from './fidelity.ts'
import { devLine, runTraining, stepLine } from './train.ts'

/** What the demo trains with; `wmrl train --set …` changes any of it. How it was chosen: docs/LOG.md. */
export const DEMO: Record<string, unknown> = {
  train: {
    steps: 30,
    groups: 16,
    turns: 1,
    learningRate: 1e-3,
    decay: 'linear',
    adamEpsilon: 1e-3,
    kl: 0.05,
    evalEvery: 15,
    devSamples: 2,
    checkpointEvery: 15,
  },
  tasks: { little: 64 },
  method: { mode: 'recommended' },
}
const SAMPLES = 4

export function demoCommand(program: Command): void {
  program
    .command('demo')
    .description('trains the embedded agent on the built-in suite and proves it on held-out tasks by real execution')
    .option('--seeds <n>', 'independent runs; three also train the control', '1')
    .option('--no-cache', 'executes the recorded rows again too')
    .option('--record', 'executes the recorded rows again and ships them in assets/demo')
    .option('--steps <n>', 'optimiser steps a run')
    .option('--verify <share>', 'executes this share of the recorded rows again and fails on a difference')
    .option('--control', 'also train on the anchors alone at the same executions')
    .addHelpText('after', '\nExample:\n  npm run demo -- --seeds 3')
    .action(
      run(
        async (
          ctx,
          o: {
            seeds: string
            cache: boolean
            record?: boolean
            steps?: string
            control?: boolean
            verify?: string
          },
        ) => {
          const seeds = Number(o.seeds)
          if (!Number.isInteger(seeds) || seeds < 1 || seeds > 20)
            throw new ConfigError('--seeds', `${o.seeds} is not a number from 1 to 20`)
          const steps = o.steps === undefined ? undefined : Number(o.steps)
          if (steps !== undefined && (!Number.isInteger(steps) || steps < 1))
            throw new ConfigError('--steps', `${o.steps} is not a positive integer`)
          const verify = o.verify === undefined ? 0 : Number(o.verify)
          if (!(verify >= 0 && verify <= 1))
            throw new ConfigError('--verify', `${o.verify} is no share`, 'a number from 0 to 1')
          const report = await demo(ctx, {
            verify,
            seeds,
            steps,
            cache: o.cache,
            record: o.record === true,
            control: o.control === true || seeds >= 3,
          })
          ctx.out.result(report.json, () => report.text)
        },
      ),
    )
}

async function demo(
  ctx: CommandContext,
  o: { seeds: number; steps: number | undefined; cache: boolean; record: boolean; control: boolean; verify: number },
): Promise<{ json: object; text: string }> {
  const wall0 = Date.now()
  const cpu0 = process.cpuUsage()
  const sandbox = { cpuS: 0, executions: 0 }
  const count = (e: { cached: boolean; cpuS: number }): void => {
    if (e.cached) return
    sandbox.cpuS += e.cpuS
    sandbox.executions++
  }
  const { out, signal } = ctx
  const base = (seed: number, more: Record<string, unknown> = {}): RunConfig => {
    const c = loadConfig({ base: { ...DEMO, ...more, seed } })
    return o.steps === undefined ? c : { ...c, train: { ...c.train, steps: o.steps } }
  }
  const first = base(0)
  await prepareAll(ctx, first.tasks.little)
  // For evaluations: each training opens an engine of its own, which keeps its checkpoints in the run's folder.
  await using nano = await openNano({ threads: first.engine.threads, checkpointDir: demoDir() }, signal)
  // Rows that no training changes come from the recording; what the trained agent writes is always executed.
  using recording = o.record ? freshCache('recording') : undefined
  await using recorded = await openRuntime(
    recording
      ? { cache: true, cachePath: recording.path }
      : o.cache
        ? { cache: true, cachePath: recordedCopy() }
        : { cache: false },
  )
  using cache = freshCache('fresh')
  await using fresh = await openRuntime({ cache: true, cachePath: cache.path })
  out.log(`held-out tasks: ${(await fresh.pool.select('builtin', 'heldout')).map((t) => t.id).join(', ')}`)
  const fixed = await fixedRows(recorded, nano, first, count, signal)
  const fromRecording = sandbox.executions === 0
  for (const f of fixed)
    out.log(`fixed program ${f.name.padEnd(9)} score ${show(f.score)}${fromRecording ? ' (recorded)' : ''}`)
  const rows: RecordedRow[] = [...fixed.flatMap((f) => f.rows)]
  const results: SeedResult[] = []
  for (let seed = 0; seed < o.seeds; seed++)
    results.push(
      await oneSeed(ctx, seed, {
        nano,
        recorded,
        fresh,
        config: base(seed),
        control: o.control ? base(seed, CONTROL) : undefined,
        count,
        rows,
      }),
    )
  if (o.verify > 0) await verifyRows(ctx, rows, o.verify, nano, first)
  if (recording) out.log(`recorded ${rows.length} rows in ${keepRecording(recording.path)}`)
  const cpu = process.cpuUsage(cpu0)
  return present({
    results,
    fixed,
    sandbox,
    cpuS: (cpu.user + cpu.system) / 1e6 + sandbox.cpuS + results.reduce((a, r) => a + r.trainingCpuS, 0),
    wallS: (Date.now() - wall0) / 1000,
    first,
    workers: fresh.workers,
  })
}

/** The built-in tasks and the little ones that training takes, from their packages: at once where they are there already. */
async function prepareAll(ctx: CommandContext, little: number): Promise<void> {
  await prepare(ctx, 'builtin', [])
  if (little > 0) await prepare(ctx, 'small', littleIds(little))
}

async function prepare({ out, signal }: CommandContext, suite: BuiltSuite, ids: readonly string[]): Promise<void> {
  const results = await prepareTasks({
    suite,
    ids,
    dataDir: dataDir(),
    artefactDir: artefactDir(),
    python: solutionsPython(),
    signal,
    log: (l) => out.log(l),
    done: (r, left) =>
      r.status === 'prepared' && out.progress(`preparing tasks: ${r.id}, ${left} to go`, { last: left === 0 }),
  })
  const bad = results.filter((r) => r.status === 'failed' || r.status === 'missing')
  for (const r of bad) out.log(`task ${r.id}: ${r.detail}`)
  if (bad.length > (suite === 'builtin' ? results.length / 2 : 0))
    throw new MissingError(`${bad.length} of ${results.length} tasks could not be prepared`, bad[0]!.detail)
}

/** The anchors alone, at the same executions and learning rate; no dev evaluation, which changes nothing. */
const CONTROL = {
  method: { mode: 'anchors-only' },
  train: { ...(DEMO.train as Record<string, unknown>), evalEvery: 0 },
}

async function oneSeed(
  ctx: CommandContext,
  seed: number,
  o: {
    nano: NanoEngine
    recorded: Runtime
    fresh: Runtime
    config: RunConfig
    control: RunConfig | undefined
    count: (e: { cached: boolean; cpuS: number }) => void
    rows: RecordedRow[]
  },
): Promise<SeedResult> {
  const { out, signal } = ctx
  let executed = 0
  const heldout = (rt: Runtime, sampler: Parameters<typeof evaluateOn>[3], config: RunConfig) =>
    evaluateOn(
      rt,
      o.nano,
      config,
      sampler,
      {
        split: 'heldout',
        samples: SAMPLES,
        turns: attemptsOf(config.train.turns),
        seed,
        key: 'demo',
        keyWithRung: false,
        onExecution: (e) => {
          if (!e.cached) executed++
          o.count(e)
        },
      },
      signal,
    )
  out.progress(`seed ${seed}: held-out tasks before training`)
  const untrained = await heldout(o.recorded, o.nano.frozen, o.config)
  for (const t of untrained)
    if (t.code !== undefined && t.final) o.rows.push({ task: t.task, code: t.code, verdict: t.final })
  const before = evaluated(untrained, o.config.train.turns)
  out.log(`seed ${seed}: before  ${figures(before)}${executed === 0 ? ' (recorded)' : ''}`)
  const stamp = new Date().toISOString().replace(/[:.]/g, '-')
  const train = async (config: RunConfig, name: string) => {
    const dir = join(runsDir(), `demo-${stamp}-${name}-seed${seed}`)
    const report = await runTraining(ctx, config, dir, {
      runtime: o.fresh,
      onStep: (m, t) =>
        out.progress(`seed ${seed} ${name}: ${stepLine(m, t, config)}`, { last: m.step === config.train.steps }),
    })
    signal.throwIfAborted()
    if (report.alarm !== undefined) throw new Failed(report.alarm)
    if (config.train.evalEvery > 0) out.log(`seed ${seed} ${name}: ${devLine(report)}`)
    const turns = await withAgent(o.nano, dir, signal, (s) => heldout(o.fresh, s, config))
    return { dir, report, after: evaluated(turns, config.train.turns) }
  }
  const main = await train(o.config, 'recommended')
  out.log(`seed ${seed}: after   ${figures(main.after)}`)
  const other = o.control ? await train(o.control, 'anchors-only') : undefined
  const control = other?.after
  if (control) out.log(`seed ${seed}: anchors only, same executions: score ${show(control.score)}`)
  return {
    seed,
    run: main.dir,
    before,
    after: main.after,
    training: main.report,
    fidelity: fidelityOf(main.dir),
    control,
    trainingCpuS: [main, ...(other ? [other] : [])].reduce(
      (a, x) => a + x.report.totals.sandboxCpuS + x.report.totals.devSandboxCpuS,
      0,
    ),
  }
}

const show = (v: number | null, digits = 3): string => (v === null ? '-' : v.toFixed(digits))
const figures = (e: Evaluated): string =>
  `score ${show(e.score)}  valid ${show(e.valid, 2)}  percentile ${show(e.percentile)}`

function evaluated(turns: Awaited<ReturnType<typeof evaluateOn>>, trained: number): Evaluated {
  const all = turns.map(judged)
  const s = summarise(all.filter((t) => t.turn < trained))
  return {
    score: s.score.mean,
    valid: s.valid,
    percentile: s.percentile,
    byTask: s.byTask,
    furtherScore: summarise(all).score.mean,
  }
}

/** The fixed programs on the held-out tasks, one attempt a task, judged at both scopes from one execution. */
async function fixedRows(
  rt: Runtime,
  nano: NanoEngine,
  config: RunConfig,
  count: (e: { cached: boolean; cpuS: number }) => void,
  signal: AbortSignal,
): Promise<Fixed[]> {
  const refs = await rt.pool.select('builtin', 'heldout')
  const { pool, executor, grader } = rt
  const { executed } = makeJudges({ config, pool, executor, grader, nano, keyWithRung: false, onExecution: count })
  const rows = []
  for (const f of FIXED) {
    const attempts = await Promise.all(
      refs.map(
        async (task: TaskRef): Promise<Attempt> => ({
          id: attemptId(`fixed/${f.name}/${task.id}`),
          task,
          action: { code: fixedProgram((await rt.pool.task(task)).card, f.portable) },
          history: [],
          scope: 'final',
        }),
      ),
    )
    const final = await Promise.all(executed.judge(attempts, signal))
    const feedback = await Promise.all(
      executed.judge(
        attempts.map((a) => ({ ...a, scope: 'feedback' as const })),
        signal,
      ),
    )
    const turns = final.map(
      (v, i): JudgedTurn => ({
        task: `${refs[i]!.suite}/${refs[i]!.id}`,
        sample: 0,
        turn: 0,
        feedback: feedback[i]!,
        final: v,
      }),
    )
    const s = summarise(turns)
    rows.push({
      name: f.name,
      score: s.score.mean,
      percentile: s.percentile,
      byTask: s.byTask,
      turns,
      rows: attempts.map((a, i) => ({ task: a.task, code: a.action.code!, verdict: final[i]! })),
    })
  }
  return rows
}
