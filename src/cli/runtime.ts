import { existsSync, mkdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { MissingError, messageOf, TaskError } from '../core/index.ts'
import type { Executor } from '../executors/index.ts'
import type { GraderProcess } from '../grading/index.ts'
import { dataDir } from './paths.ts'
import { TaskPool } from './session.ts'
import { openExecutor, openGrader } from './wiring.ts'

/** What commands that execute programs share. */
export interface Runtime extends AsyncDisposable {
  readonly executor: Executor
  readonly grader: GraderProcess
  readonly pool: TaskPool
  readonly workers: number
}

export interface RuntimeOptions {
  readonly workers?: number | undefined
  readonly cache: boolean
  readonly allowUnsafe?: boolean
  /** A recorded cache read before the machine's own (results stand for every rung). */
  readonly cachePath?: string
}

/** Opens sandbox, caches and grader. @throws MissingError before set-up, or where nothing contains a program. */
export async function openRuntime(o: RuntimeOptions): Promise<Runtime> {
  const workers = o.workers ?? availableParallelism()
  const executor = await openExecutor({
    workers,
    cache: o.cache,
    ...(o.cachePath === undefined ? {} : { cachePath: o.cachePath }),
    ...(o.allowUnsafe ? { allowUnsafe: true } : {}),
  })
  const grader = openGrader()
  return {
    executor,
    grader,
    pool: new TaskPool(dataDir()),
    workers,
    async [Symbol.asyncDispose]() {
      await Promise.allSettled([executor[Symbol.asyncDispose](), grader[Symbol.asyncDispose]()])
    },
  }
}

/** Creates a run directory. @throws TaskError naming it when it cannot be written. */
export function makeRunDir(path: string): string {
  try {
    mkdirSync(join(path, 'checkpoints'), { recursive: true })
  } catch (e) {
    throw new TaskError(`run directory ${path} cannot be written (${messageOf(e)}); choose another with --run DIR`)
  }
  return path
}

export function needRun(path: string): string {
  const db = join(path, 'run.db')
  if (!existsSync(db))
    throw new MissingError(
      `${path} is no run directory (it has no run.db)`,
      'give the folder that wmrl train --run wrote',
    )
  return db
}
