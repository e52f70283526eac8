import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import {
  type Attempt,
  attemptId,
  ConfigError,
  contentHash,
  keyed,
  MissingError,
  packageRoot,
  type TaskRef,
  type Verdict,
} from '../../core/index.ts'
import { FIXED, fixedProgram } from '../../lab/fixed.ts'
import { anchorCount } from '../../method/index.ts'
import {
  type Fidelity,
  type Interval,
  type JudgedTurn,
  mean,
  meanInterval,
  showInterval,
  summarise,
  verdictOf,
} from '../../report/index.ts'
import { type BuiltSuite, prepareTasks } from '../../tasks/index.ts'
import { methodOf, type RunConfig } from '../../train/index.ts'
import { type CommandContext, Failed, run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { artefactDir, dataDir, home, runsDir, solutionsPython } from '../paths.ts'

import { openRuntime, type Runtime } from '../runtime.ts'
import { backboneCard, makeJudges, type NanoEngine, openNano } from '../session.ts'
import { littleIds } from '../wiring.ts'
import { evaluateOn, judged, withAgent } from './eval.ts'
import { fidelityOf } from './fidelity.ts'
import { devLine, runTraining, stepLine, type TrainingReport } from './train.ts'

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
/** Attempts of a held-out sample: those that training had, and one more that reads the result of the one before. */
const ATTEMPTS = (trained: number): number => trained + 1

/** A row that no training changes, with the verdict that the recording gave. */
interface RecordedRow {
  readonly task: TaskRef
  readonly code: string
  readonly verdict: Verdict
}

/** Executes a keyed share of the recorded rows again, without any cache. @throws Failed naming the first that differs. */
async function verifyRows(
  { out, signal }: CommandContext,
  rows: readonly RecordedRow[],
  share: number,
  nano: NanoEngine,
  config: RunConfig,
): Promise<void> {
  const chosen = rows.filter((r) => keyed('verify', r.task.id, contentHash(r.code)).next() < share)
  await using rt = await openRuntime({ cache: false })
  const { executed } = makeJudges({
    config,
    pool: rt.pool,
    executor: rt.executor,
    grader: rt.grader,
    nano,
    keyWithRung: false,
  })
  const again = await Promise.all(
    executed.judge(
      chosen.map(
        (r, i): Attempt => ({
          id: attemptId(`verify/${i}`),
          task: r.task,
          action: { code: r.code },
          history: [],
          scope: 'final',
        }),
      ),
      signal,
    ),
  )
  // A limit in CPU seconds falls at another place on another processor: such rows show nothing.
  const limited = chosen.filter((r, i) => endedByLimit(r.verdict) || endedByLimit(again[i]!)).length
  const differ = chosen.filter(
    (r, i) => !endedByLimit(r.verdict) && !endedByLimit(again[i]!) && !sameVerdict(r.verdict, again[i]!),
  )
  out.log(
    `verified ${chosen.length} of ${rows.length} recorded rows by execution: ${differ.length} differences, ${limited} ended by a limit`,
  )
  if (differ.length > 0)
    throw new Failed(
      `the recording differs from an execution on ${differ[0]!.task.id}; run: npm run demo -- --no-cache`,
    )
}

const endedByLimit = (v: Verdict): boolean =>
  !('unscorable' in v) && v.source === 'executed' && ['timed-out', 'out-of-memory'].includes(v.outcome.kind)

/** Equal ends and, for graded ones, scores to 1e-6: other processors sum in another order. */
function sameVerdict(a: Verdict, b: Verdict): boolean {
  if ('unscorable' in a || 'unscorable' in b || a.source !== 'executed' || b.source !== 'executed') return false
  if (a.outcome.kind !== b.outcome.kind) return false
  return (
    a.outcome.kind !== 'graded' ||
    b.outcome.kind !== 'graded' ||
    Math.abs(a.outcome.score - b.outcome.score) <= 1e-6 * Math.max(1, Math.abs(a.outcome.score))
  )
}

interface Evaluated {
  readonly score: number
  readonly valid: number
  readonly percentile: number
  readonly byTask: readonly { task: string; score: number | null }[]
  /** With one attempt more than training had; feedback chooses. */
  readonly furtherScore: number
}
interface SeedResult {
  readonly seed: number
  readonly run: string
  readonly before: Evaluated
  readonly after: Evaluated
  readonly training: TrainingReport
  readonly fidelity: Fidelity
  readonly control: Evaluated | undefined
  /** Of the programs that training and its dev evaluations executed, the control's too. */
  readonly trainingCpuS: number
}

export function demoCommand(program: Command): void {
  program
    .command('demo')
    .description('trains the embedded agent on the built-in suite and proves it on held-out tasks by real execution')
    .option('--seeds <n>', 'independent runs; three also train the control', '1')
    .option('--no-cache', 'executes the recorded rows again too')
    .option('--steps <n>', 'optimiser steps a run')
    .option('--verify <share>', 'executes this share of the recorded rows again and fails on a difference')
    .option('--control', 'also train on the anchors alone at the same executions')
    .addHelpText('after', '\nExample:\n  npm run demo -- --seeds 3')
    .action(
      run(async (ctx, o: { seeds: string; cache: boolean; steps?: string; control?: boolean; verify?: string }) => {
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
          control: o.control === true || seeds >= 3,
        })
        ctx.out.result(report.json, () => report.text)
      }),
    )
}

async function demo(
  ctx: CommandContext,
  o: { seeds: number; steps: number | undefined; cache: boolean; control: boolean; verify: number },
): Promise<{ json: object; text: string }> {
  const wall0 = Date.now()
  const cpu0 = process.cpuUsage()
  const sandbox = { cpuS: 0, executions: 0, recorded: 0 }
  const count = (e: { cached: boolean; cpuS: number }): void => {
    if (e.cached) {
      sandbox.recorded++
      return
    }
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
  await using recorded = await openRuntime(o.cache ? { cache: true, cachePath: recordedCopy() } : { cache: false })
  using cache = freshCache()
  await using fresh = await openRuntime({ cache: true, cachePath: cache.path })
  out.log(`held-out tasks: ${(await fresh.pool.select('builtin', 'heldout')).map((t) => t.id).join(', ')}`)
  const fixed = await fixedRows(recorded, nano, first, count, signal)
  const fromRecording = sandbox.recorded > 0
  for (const f of fixed)
    out.log(`fixed program ${f.name.padEnd(9)} score ${f.score.toFixed(3)}${fromRecording ? ' (recorded)' : ''}`)
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
        cache: fromRecording,
        count,
        rows,
      }),
    )
  if (o.verify > 0) await verifyRows(ctx, rows, o.verify, nano, first)
  const cpu = process.cpuUsage(cpu0)
  return present({
    results,
    fixed,
    sandbox,
    cpuS: (cpu.user + cpu.system) / 1e6 + sandbox.cpuS + results.reduce((a, r) => a + r.trainingCpuS, 0),
    wallS: (Date.now() - wall0) / 1000,
    first,
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

function demoDir(): string {
  const dir = join(home(), 'demo')
  mkdirSync(dir, { recursive: true })
  return dir
}

/** SQLite writes beside its file; what is shipped stays as it is. A copy is of one recording: another one has another name. */
function recordedCopy(): string {
  const shipped = join(packageRoot(), 'assets', 'demo', 'executions.db')
  const digest = existsSync(shipped) ? contentHash(readFileSync(shipped)).slice(0, 16) : 'none'
  const copy = join(demoDir(), `recorded-${digest}.db`)
  if (existsSync(shipped) && !existsSync(copy)) {
    const part = `${copy}.${process.pid}`
    copyFileSync(shipped, part)
    renameSync(part, copy)
  }
  for (const f of readdirSync(demoDir()))
    if (/^recorded\b/.test(f) && !f.startsWith(`recorded-${digest}.db`)) rmSync(join(demoDir(), f), { force: true })
  return copy
}

/** Executions of one demo, so that each pays for its own; removed at its end, or by a later demo if it was killed. */
function freshCache(): Disposable & { readonly path: string } {
  for (const f of readdirSync(demoDir())) {
    const pid = /^fresh-(\d+)-/.exec(f)?.[1]
    if (pid && !existsSync(`/proc/${pid}`)) rmSync(join(demoDir(), f), { force: true })
  }
  const path = join(demoDir(), `fresh-${process.pid}-${Date.now()}.db`)
  return {
    path,
    [Symbol.dispose]() {
      for (const end of ['', '-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
    },
  }
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
    cache: boolean
    count: (e: { cached: boolean; cpuS: number }) => void
    rows: RecordedRow[]
  },
): Promise<SeedResult> {
  const { out, signal } = ctx
  const heldout = (rt: Runtime, sampler: Parameters<typeof evaluateOn>[3], config: RunConfig) =>
    evaluateOn(
      rt,
      o.nano,
      config,
      sampler,
      {
        split: 'heldout',
        samples: SAMPLES,
        turns: ATTEMPTS(config.train.turns),
        seed,
        key: 'demo',
        keyWithRung: false,
        onExecution: o.count,
      },
      signal,
    )
  out.progress(`seed ${seed}: held-out tasks before training`)
  const untrained = await heldout(o.recorded, o.nano.frozen, o.config)
  for (const t of untrained)
    if (t.code !== undefined && t.final) o.rows.push({ task: t.task, code: t.code, verdict: t.final })
  const before = evaluated(untrained, o.config.train.turns)
  out.log(
    `seed ${seed}: before  score ${before.score.toFixed(3)}  valid ${before.valid.toFixed(2)}  percentile ${before.percentile.toFixed(3)}${o.cache ? ' (recorded)' : ''}`,
  )
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
  out.log(
    `seed ${seed}: after   score ${main.after.score.toFixed(3)}  valid ${main.after.valid.toFixed(2)}  percentile ${main.after.percentile.toFixed(3)}`,
  )
  const other = o.control ? await train(o.control, 'anchors-only') : undefined
  const control = other?.after
  if (control) out.log(`seed ${seed}: anchors only, same executions: score ${control.score.toFixed(3)}`)
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

function evaluated(turns: Awaited<ReturnType<typeof evaluateOn>>, trained: number): Evaluated {
  const all = turns.map(judged)
  const s = summarise(all.filter((t) => t.turn < trained))
  return {
    score: s.score.mean ?? 0,
    valid: s.valid ?? 0,
    percentile: s.percentile ?? 0,
    byTask: s.byTask,
    furtherScore: summarise(all).score.mean ?? 0,
  }
}

interface Fixed {
  readonly name: string
  readonly score: number
  readonly percentile: number
  readonly byTask: readonly { readonly task: string; readonly score: number | null }[]
  readonly turns: readonly JudgedTurn[]
  readonly rows: readonly RecordedRow[]
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
      (v, i): JudgedTurn => ({ task: refs[i]!.id, sample: 0, turn: 0, feedback: feedback[i]!, final: v }),
    )
    const s = summarise(turns)
    rows.push({
      name: f.name,
      score: s.score.mean ?? 0,
      percentile: s.percentile ?? 0,
      byTask: s.byTask,
      turns,
      rows: attempts.map((a, i) => ({ task: a.task, code: a.action.code!, verdict: final[i]! })),
    })
  }
  return rows
}

/**
 * An agent with several attempts keeps the program that feedback favours; a single fixed program has no such choice. Beside
 * it stand so many of the fixed ones, the best on these very tasks, with the same choice by feedback.
 */
function fixedTogether(fixed: readonly Fixed[], attempts: number): { names: string[]; score: number } {
  const best = [...fixed].sort((a, b) => b.score - a.score).slice(0, attempts)
  const all = best.flatMap((f, turn) => f.turns.map((t) => ({ ...t, turn })))
  return { names: best.map((f) => f.name), score: summarise(all).score.mean ?? 0 }
}

function present(o: {
  results: readonly SeedResult[]
  fixed: readonly Fixed[]
  sandbox: { cpuS: number; executions: number }
  cpuS: number
  wallS: number
  first: RunConfig
}): { json: object; text: string } {
  const { results: r, fixed } = o
  const over = (f: (s: SeedResult) => number): Interval => meanInterval(r.map(f))
  // One seed: the interval is over tasks; several: over seeds, paired.
  const single = r.length === 1
  const paired = (s: SeedResult): number[] =>
    s.after.byTask.flatMap((t) => {
      const b = s.before.byTask.find((x) => x.task === t.task)
      return t.score === null || !b || b.score === null ? [] : [t.score - b.score]
    })
  const gain = single ? meanInterval(paired(r[0]!)) : over((s) => s.after.score - s.before.score)
  const sum = (f: (s: SeedResult) => number): number => r.reduce((a, s) => a + f(s), 0)
  const { train } = o.first
  const method = methodOf(o.first)
  const perSeedAll = train.steps * train.groups * train.groupSize * train.turns
  const attemptsExecuted = sum((s) => s.training.totals.attemptsExecuted)
  const executions = sum((s) => s.training.totals.executions)
  const used = sum((s) => s.training.totals.sandboxCpuS)
  const allExecutedEquivalent = perSeedAll * r.length
  const saved = executions > 0 ? (used / Math.max(1, attemptsExecuted)) * allExecutedEquivalent - used : 0
  const pretrainingExecutions = Number((backboneCard()?.executions as { total?: number } | undefined)?.total ?? 0)
  const some = (x: readonly (number | null)[]): number | null => {
    const k = x.filter((v): v is number => v !== null)
    return k.length ? mean(k) : null
  }
  const fidelity = {
    spearmanWithinTask: some(r.map((s) => s.fidelity.spearmanWithinTask)),
    spearmanAmongValid: some(r.map((s) => s.fidelity.spearmanAmongValid)),
    outcomeAccuracy: some(r.map((s) => s.fidelity.outcomeAccuracy)),
  }
  const further = {
    attempts: ATTEMPTS(train.turns),
    before: over((s) => s.before.furtherScore),
    after: over((s) => s.after.furtherScore),
    gain: over((s) => s.after.furtherScore - s.before.furtherScore),
    fixed: fixedTogether(fixed, ATTEMPTS(train.turns)),
  }
  const controls = r.filter((s) => s.control)
  const difference = meanInterval(controls.map((s) => s.after.score - s.control!.score))
  const before = over((s) => s.before.score)
  const after = over((s) => s.after.score)
  const bestFixed = [...fixed].sort((a, b) => b.score - a.score)[0]!
  // Over tasks, since a fixed program has no seeds.
  const toFixed = meanInterval(
    bestFixed.byTask.flatMap(({ task, score }) => {
      const mine = r.flatMap((s) => s.after.byTask.find((t) => t.task === task)?.score ?? [])
      return score === null || mine.length === 0 ? [] : [mean(mine) - score]
    }),
  )
  const json = {
    seeds: r.map((s) => s.seed),
    run: r[0]!.run,
    runs: r.map((s) => s.run),
    heldOut: { before, after, gain },
    further,
    valid: { before: mean(r.map((s) => s.before.valid)), after: mean(r.map((s) => s.after.valid)) },
    percentile: { before: mean(r.map((s) => s.before.percentile)), after: mean(r.map((s) => s.after.percentile)) },
    fixed: fixed.map(({ name, score, percentile }) => ({ name, score, percentile })),
    toBestFixed: { name: bestFixed.name, difference: toFixed, verdict: verdictOf(toFixed) },
    executions,
    attemptsExecuted,
    predictions: sum((s) => s.training.totals.predictions),
    allExecutedEquivalent,
    sandboxSeconds: { used, saved },
    pretrainingExecutions,
    fidelity,
    ...(controls.length
      ? {
          anchorsOnly: {
            score: meanInterval(controls.map((s) => s.control!.score)),
            difference,
            verdict: verdictOf(difference),
            furtherDifference: meanInterval(controls.map((s) => s.after.furtherScore - s.control!.furtherScore)),
          },
        }
      : {}),
    cpuS: o.cpuS,
    wallS: o.wallS,
  }
  const n = (v: number | null): string => (v === null ? '-' : v.toFixed(3))
  const text = [
    '',
    `held-out score before ${showInterval(before)}, after ${showInterval(after)}`,
    `gain ${showInterval(gain)} (95 %, ${single ? 'over tasks, one seed' : `paired over ${r.length} seeds`}): ${verdictOf(gain)}`,
    `valid ${n(json.valid.before)} -> ${n(json.valid.after)}, percentile of valid ${n(json.percentile.before)} -> ${n(json.percentile.after)}`,
    ...fixed.map(
      (f) => `  fixed ${f.name.padEnd(9)} score ${f.score.toFixed(3)}  percentile ${f.percentile.toFixed(3)}`,
    ),
    `the agent minus the best fixed program (${bestFixed.name}) ${showInterval(toFixed)} (over tasks): ${verdictOf(toFixed)}`,
    ...(controls.length
      ? [
          `anchors alone at the same executions ${showInterval(json.anchorsOnly!.score)}; difference ${showInterval(difference)}: ${verdictOf(difference)}; with ${further.attempts} attempts ${showInterval(json.anchorsOnly!.furtherDifference)}`,
        ]
      : []),
    `with ${further.attempts} attempts, the last reading the result before it, feedback chooses: before ${showInterval(further.before)}, after ${showInterval(further.after)}, gain ${showInterval(further.gain)}; ${further.fixed.names.join(' and ')}, feedback chooses: ${further.fixed.score.toFixed(3)}`,
    `training executions ${executions} (attempts judged by execution ${attemptsExecuted}), predictions ${json.predictions}; training on executions alone would have judged ${allExecutedEquivalent}`,
    `sandbox ${used.toFixed(0)} CPU s used in training, about ${saved.toFixed(0)} saved; pre-training of the shipped backbone used ${pretrainingExecutions} executions`,
    `world model on the executed groups: rank correlation within a task ${n(fidelity.spearmanWithinTask)}, among valid ${n(fidelity.spearmanAmongValid)}, outcome accuracy ${n(fidelity.outcomeAccuracy)}`,
    `${o.cpuS.toFixed(0)} CPU s, ${o.wallS.toFixed(0)} s of wall time; ${anchorCount(method.anchors.share, train.groups)} of ${train.groups} groups a step executed`,
    '',
    `run directory ${json.run}`,
    'go on with:',
    `  wmrl fidelity ${json.run}`,
    `  wmrl replay ${json.run}`,
    `  wmrl eval ${json.run} --split dev`,
  ].join('\n')
  return { json, text }
}
