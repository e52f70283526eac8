import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { type Command, Option } from 'commander'
import { ConfigError } from '../../core/index.ts'
import type { Sampler } from '../../engine/index.ts'
import type { Judge } from '../../judge/index.ts'
import { RunLedger } from '../../ledger/index.ts'
import { type EvaluationSummary, showInterval, summarise } from '../../report/index.ts'
import {
  type EvaluatedTurn,
  evaluate,
  givenBack,
  openNewest,
  type RunConfig,
  type SavedRun,
} from '../../train/index.ts'
import { countOf, pace, run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { num } from '../figures.ts'
import { openEngine } from '../open-engine.ts'
import { sameOrigin } from '../origin.ts'
import { configOfRun } from '../run-config.ts'
import { savedRuns } from '../run-record.ts'
import { lockRun, needRun, openRuntime, RunBusy, type Runtime } from '../runtime.ts'
import { makeJudges, type OpenEngine } from '../session.ts'

export function evalCommand(program: Command): void {
  program
    .command('eval')
    .description('real executions of a trained agent on tasks it was not trained on, final scope')
    .argument('<run>', 'run directory, a checkpoint file below it, or "frozen" for the backbone before training')
    .addOption(new Option('--split <split>', 'which tasks').choices(['heldout', 'dev']).default('heldout'))
    .option('--samples <n>', 'samples a task', countOf, 4)
    .option(
      '--turns <n>',
      'attempts a sample, each reading the result of the one before; default as in training',
      countOf,
    )
    .addOption(new Option('--table <form>', 'prints a table').choices(['paper']))
    .option('--greedy', 'the most probable tokens instead of samples')
    .option('--no-cache', 'execute everything again, and keep nothing of it')
    .addHelpText('after', '\nExample:\n  wmrl eval runs/first --split heldout --samples 4')
    .action(
      run(
        async (
          { out, signal },
          where: string,
          o: {
            split: 'heldout' | 'dev'
            samples: number
            turns?: number
            table?: string
            greedy?: boolean
            cache: boolean
          },
        ) => {
          const { samples, turns } = o
          const frozen = where === 'frozen'
          const { dir, checkpoint } = frozen ? {} : agentAt(where)
          const config = dir === undefined ? loadConfig({ env: process.env }) : configOfRun(dir)
          const scratch = mkdtempSync(join(tmpdir(), 'wmrl-eval-'))
          try {
            const { workers, limits } = config.executor
            await using rt = await openRuntime({ cache: o.cache, workers, limits })
            // A server's journal belongs to the run that trains: an evaluation beside it keeps its own.
            const state = dir === undefined || config.engine.kind === 'tinker' ? scratch : join(dir, 'checkpoints')
            await using nano = await openEngine(out, config, state, signal)
            const started = Date.now()
            const judgedTurns = await withAgent(
              nano,
              dir,
              signal,
              (sampler) =>
                evaluateOn(
                  rt,
                  nano,
                  config,
                  sampler,
                  {
                    split: o.split,
                    samples,
                    ...(turns === undefined ? {} : { turns }),
                    seed: config.seed,
                    key: o.greedy ? 'greedy' : 'eval',
                    greedy: o.greedy === true,
                    onJudged: (done, of) => out.progress(pace(started, done, of, 'programs'), { last: done === of }),
                  },
                  signal,
                ),
              (line) => out.log(line),
              checkpoint,
            )
            const s = summarise(judgedTurns.map(judged))
            // A checkpoint's evaluation stands beside that of the run, not in its place.
            const name = [
              o.split,
              turns ? `${turns}-turns` : '',
              o.greedy ? 'greedy' : '',
              checkpoint?.slice(0, 12) ?? '',
            ]
              .filter(Boolean)
              .join('-')
            if (dir !== undefined) keep(dir, name, judgedTurns, (line) => out.log(line))
            out.result(evaluationJson(s), () => (o.table ? paperTable(s) : evaluationText(s)))
          } finally {
            rmSync(scratch, { recursive: true, force: true })
          }
        },
      ),
    )
}

export const judged = (t: EvaluatedTurn) => ({
  task: `${t.task.suite}/${t.task.id}`,
  sample: t.sample,
  turn: t.turn,
  feedback: t.feedback,
  final: t.final,
})

export const evaluationJson = (s: EvaluationSummary) => ({
  n: s.n,
  unscorable: s.unscorable,
  percentile: s.percentile,
  valid: s.valid,
  score: s.score,
  byTask: s.byTask,
  selection: s.selection,
})

/** A run's folder, and the file name of the checkpoint that was asked for. @throws ConfigError for what is neither */
function agentAt(where: string): { dir?: string; checkpoint?: string } {
  if (!where.endsWith('.safetensors')) {
    needRun(where)
    return { dir: where }
  }
  const dir = dirname(dirname(resolve(where)))
  if (!existsSync(where)) throw new ConfigError('run', `there is no ${where}`)
  if (!existsSync(join(dir, 'run.db')))
    throw new ConfigError('run', `${where} lies in no run`, 'give a file of the checkpoints/ of a run directory')
  return { dir, checkpoint: basename(where) }
}

/**
 * Opens a run's newest checkpoint that can be read, the named one, or the frozen backbone as a sampler for the time of `f`.
 */
export async function withAgent<T>(
  nano: OpenEngine,
  runDir: string | undefined,
  signal: AbortSignal,
  f: (s: Sampler) => Promise<T>,
  log?: (line: string) => void,
  checkpoint?: string,
): Promise<T> {
  if (runDir === undefined) return f(nano.frozen)
  const all = savedIn(nano, runDir, log ?? (() => {}))
  const saved = checkpoint ? all.filter((s) => basename(s.checkpoint.location) === checkpoint) : all
  if (saved.length === 0)
    throw checkpoint
      ? new ConfigError('run', `${runDir} has no checkpoint ${checkpoint}`, 'give one that its ledger names')
      : new ConfigError('run', `${runDir} has no complete checkpoint`, 'let it train at least one step')
  const opened = await openNewest(nano.engine, saved, log, signal)
  await using _open = givenBack(opened.model, log)
  await using sampler = await opened.model.snapshot(signal)
  return await f(sampler)
}

/** A run's checkpoints, newest first. @throws ConfigError where they belong to another backbone than the one that is open */
function savedIn(nano: OpenEngine, runDir: string, log: (line: string) => void): SavedRun[] {
  const ledger = RunLedger.openReadOnly(needRun(runDir))
  try {
    sameOrigin(ledger, runDir, nano.origin, log)
    return savedRuns(ledger, runDir)
  } finally {
    ledger.close()
  }
}

export async function evaluateOn(
  rt: Runtime,
  nano: OpenEngine,
  config: RunConfig,
  sampler: Sampler,
  o: {
    split: 'heldout' | 'dev'
    samples: number
    /** Attempts a sample; default as in training. */
    turns?: number
    seed: number
    key: string
    greedy?: boolean
    keyWithRung?: boolean
    /** Told of every program that was judged, of so many at most. */
    onJudged?: (done: number, of: number) => void
    onExecution?: (e: { cached: boolean; cpuS: number; wallS: number }) => void
  },
  signal: AbortSignal,
): Promise<EvaluatedTurn[]> {
  const tasks = await rt.pool.select('builtin', o.split)
  const { executed } = makeJudges({
    config,
    pool: rt.pool,
    executor: rt.executor,
    grader: rt.grader,
    nano,
    ...(o.keyWithRung === undefined ? {} : { keyWithRung: o.keyWithRung }),
    ...(o.onExecution ? { onExecution: o.onExecution } : {}),
  })
  const turns = o.turns ?? config.train.turns
  const of = tasks.length * o.samples * turns
  return evaluate(
    sampler,
    {
      tasks,
      samples: o.samples,
      turns,
      seed: o.seed,
      format: nano.format(rt.pool),
      executed: o.onJudged ? counted(executed, (done) => o.onJudged!(done, of)) : executed,
      final: true,
      key: `${o.split}-${o.key}`,
      ...(o.greedy ? { greedy: true } : {}),
    },
    signal,
  )
}

/** The same judge, that tells how many programs it has judged; the second grade of each, at scope final, costs nothing. */
function counted(judge: Judge, onJudged: (done: number) => void): Judge {
  let done = 0
  return {
    source: judge.source,
    scope: judge.scope,
    judge: (attempts, signal) => {
      const verdicts = judge.judge(attempts, signal)
      for (const [i, v] of verdicts.entries())
        if (attempts[i]!.scope === 'feedback') void v.then(() => onJudged(++done))
      return verdicts
    },
  }
}

/**
 * Writes an evaluation to its run. One process writes a run: while a training does, the evaluation, which was paid for, is
 * printed all the same, and that it is not kept is said.
 */
function keep(dir: string, name: string, turns: readonly EvaluatedTurn[], log: (line: string) => void): void {
  try {
    using _lock = lockRun(dir)
    write(dir, name, turns)
  } catch (e) {
    if (!(e instanceof RunBusy)) throw e
    log(
      `process ${e.pid} is working on ${dir}: this evaluation is printed, but not kept in the run; give it again afterwards`,
    )
  }
}

function write(dir: string, name: string, turns: readonly EvaluatedTurn[]): void {
  const ledger = RunLedger.open(join(dir, 'run.db'))
  try {
    ledger.putEvaluation(
      turns.map((t) => ({
        name,
        weights: t.weights,
        task: `${t.task.suite}/${t.task.id}`,
        sample: t.sample,
        turn: t.turn,
        code: t.code,
        feedback: t.feedback,
        final: t.final,
      })),
    )
  } finally {
    ledger.close()
  }
}

export function evaluationText(s: EvaluationSummary): string {
  const rows = s.byTask.map(
    (t) =>
      `  ${t.task.padEnd(34)} n ${String(t.n).padStart(2)}  score ${num(t.score)}  valid ${num(t.valid, 2)}  percentile ${num(t.percentile)}`,
  )
  const sel = s.selection
  return [
    `executed on ${s.byTask.length} tasks, ${s.n} samples, final scope${s.unscorable ? `, ${s.unscorable} unscorable` : ''}`,
    ...rows,
    `score at the turn that feedback chose ${showInterval(s.score)} (over tasks); valid ${num(s.valid, 2)}, percentile of valid ${num(s.percentile)}`,
    `last turn ${showInterval(sel.lastTurn.score)}; best of turns (an oracle) ${showInterval(sel.bestOfTurns.score)}`,
  ].join('\n')
}

function paperTable(s: EvaluationSummary): string {
  return [
    '| task | n | score | valid | percentile |',
    '|---|---|---|---|---|',
    ...s.byTask.map((t) => `| ${t.task} | ${t.n} | ${num(t.score)} | ${num(t.valid, 2)} | ${num(t.percentile)} |`),
    `| all | ${s.n} | ${showInterval(s.score)} | ${num(s.valid, 2)} | ${num(s.percentile)} |`,
  ].join('\n')
}
