import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AgentFormat, nanoFormat } from '../agent/index.ts'
import { ConfigError, contentHash, remember, type TaskRef } from '../core/index.ts'
import { type Engine, type OnnxEngine, type OnnxSampler, openOnnxEngine, type Sampler } from '../engine/index.ts'
import { NanoCodec } from '../engine/text/index.ts'
import type { Executor } from '../executors/index.ts'
import type { Grader } from '../grading/index.ts'
import {
  ExecutedJudge,
  type Judge,
  LIMIT_PROFILES,
  NanoPredictor,
  oraclePredictor,
  PredictedJudge,
  type Predictor,
  shuffledPredictor,
} from '../judge/index.ts'
import { loadTask, overview, slotNames, type Task } from '../tasks/index.ts'
import type { RunConfig } from '../train/index.ts'
import type { Origin } from './origin.ts'
import { backboneDir } from './paths.ts'
import { checkNamed, mayTrain, noneOf, preparedOf } from './task-choice.ts'

/** Tokens of an action and an observation in the embedded agent's format. */
const NANO_LIMITS = { action: 100, observation: 14 } as const

/** Tasks by reference, with the brief overview that the nano agent reads; each is loaded once. */
export class TaskPool {
  private readonly tasks = new Map<string, Promise<Task>>()
  private readonly briefs = new Map<string, Promise<{ text: string; names: readonly string[] }>>()
  constructor(readonly dataDir: string) {}

  task(ref: Pick<TaskRef, 'suite' | 'id'>): Promise<Task> {
    const key = `${ref.suite}/${ref.id}`
    return remember(this.tasks, key, () => loadTask(this.dataDir, ref.suite, ref.id))
  }

  brief = (ref: Pick<TaskRef, 'suite' | 'id'>): Promise<{ text: string; names: readonly string[] }> => {
    const key = `${ref.suite}/${ref.id}`
    return remember(this.briefs, key, async () => {
      const { card } = await this.task(ref)
      return {
        text: overview(card, { style: 'brief', budget: 10_000, count: (x) => x.length }),
        names: slotNames(card),
      }
    })
  }

  /**
   * Prepared tasks of a split that may be trained or evaluated on, or those that were named for training; `key` is where.
   * @throws ConfigError naming what is not there, or may not be trained on
   */
  async select(
    suite: TaskRef['suite'],
    split: TaskRef['split'],
    only?: readonly string[],
    key = 'tasks.only',
  ): Promise<TaskRef[]> {
    const ids = await preparedOf(this.dataDir, suite)
    if (only) checkNamed(suite, only, ids, key)
    const tasks = await Promise.all((only ?? ids).map((id) => this.task({ suite, id })))
    if (only) {
      for (const t of tasks) mayTrain(t, key)
      return tasks.map((t) => t.ref)
    }
    const refs = tasks.filter((t) => t.ref.split === split && (split !== 'train' || t.card.trainable)).map((t) => t.ref)
    if (refs.length > 0) return refs
    throw noneOf(suite, split)
  }
}

/** An engine with what turns its tokens into programs and verdicts. */
export interface OpenEngine extends AsyncDisposable {
  readonly engine: Engine
  readonly frozen: Sampler
  /** What a run that is trained with it belongs to. */
  readonly origin: Origin
  format(pool: TaskPool): AgentFormat
  /** The world model that goes with it. */
  predictor(config: RunConfig, pool: TaskPool, checkSyntax: Executor['checkSyntax']): Predictor
  /** Writes what was trained, where it is not on this machine anyway; false where nothing was. */
  exportTo?(
    dir: string,
    facts: { steps: number; executions: number; predictions: number },
    s: AbortSignal,
  ): Promise<boolean>
}

/** The embedded engine with its backbone's tokenizer. */
export interface NanoEngine extends OpenEngine {
  readonly engine: OnnxEngine
  readonly frozen: OnnxSampler
  readonly codec: NanoCodec
}

/** A backbone's files. @throws ConfigError naming the one that is not there */
export function backboneAt(folder: string | undefined): { dir: string; weights: string; tokenizer: string } {
  const dir = folder ?? backboneDir()
  const [weights, tokenizer] = [join(dir, 'model.safetensors'), join(dir, 'tokenizer.json')]
  for (const path of [weights, tokenizer])
    if (!existsSync(path))
      throw new ConfigError(
        'engine.backbone',
        `${path} does not exist`,
        'run: npm run pretrain, or point engine.backbone at a folder that has it',
      )
  return { dir, weights, tokenizer }
}

export async function openNano(
  opts: { backbone?: string | undefined; threads: number; checkpointDir: string },
  signal: AbortSignal,
): Promise<NanoEngine> {
  const { dir, weights, tokenizer } = backboneAt(opts.backbone)
  const codec = NanoCodec.load(tokenizer)
  const engine = await openOnnxEngine({ backbone: weights, checkpointDir: opts.checkpointDir, threads: opts.threads })
  const frozen = await engine.frozen(signal)
  return {
    engine,
    frozen,
    codec,
    origin: {
      where: dir,
      tokenizer: contentHash('tokenizer/1', readFileSync(tokenizer)),
      weights: frozen.version,
    },
    format: (pool) => nanoFormat(codec, pool.brief, NANO_LIMITS),
    predictor: (config, pool, checkSyntax) =>
      new NanoPredictor({
        sampler: frozen,
        codec,
        brief: pool.brief,
        checkSyntax,
        seed: config.seed,
        sharpening: engine.config.logitScale,
        details: config.train.turns > 1,
      }),
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  }
}

export interface JudgesOptions {
  readonly config: RunConfig
  readonly pool: TaskPool
  readonly executor: Executor
  readonly grader: Grader
  readonly nano: OpenEngine
  readonly onExecution?: (e: { cached: boolean; cpuS: number; wallS: number }) => void
  readonly keyWithRung?: boolean
}

/** Both judges of a run, with the configured control in front of the world model. */
export function makeJudges(o: JudgesOptions): { executed: Judge; predicted: Judge } {
  const { config, pool, executor, grader, nano } = o
  const executed = new ExecutedJudge({
    executor,
    grader,
    limits: LIMIT_PROFILES[config.executor.limits],
    taskSeed: 0,
    task: (ref) => pool.task(ref),
    ...(o.onExecution ? { onExecution: o.onExecution } : {}),
    ...(o.keyWithRung === undefined ? {} : { keyWithRung: o.keyWithRung }),
  })
  const own = (): Predictor => nano.predictor(config, pool, (code, signal) => executor.checkSyntax(code, signal))
  const predictor =
    config.prediction.control === 'shuffle'
      ? shuffledPredictor(own(), config.seed)
      : config.prediction.control === 'oracle'
        ? oraclePredictor(executed)
        : own()
  const predicted = new PredictedJudge({
    predictor,
    model: nano.frozen.version,
    score: config.prediction.score,
    draws: config.prediction.draws,
    seed: config.seed,
  })
  return { executed, predicted }
}

/** Text of the shipped model card, if there is one. */
export function backboneCard(dir = backboneDir()): Record<string, unknown> | undefined {
  const path = join(dir, 'card.json')
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>) : undefined
}
