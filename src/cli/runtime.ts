import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { ConfigError, messageOf, TaskError } from '../core/index.ts'
import type { Executor } from '../executors/index.ts'
import { CachedGrader, type Grader } from '../grading/index.ts'
import type { LimitProfile } from '../judge/index.ts'
import { checkCapacity } from './capacity.ts'
import { dataDir } from './paths.ts'
import { TaskPool } from './session.ts'
import { openExecutor, openGrader } from './wiring.ts'

/** What commands that execute programs share. */
export interface Runtime extends AsyncDisposable {
  readonly executor: Executor
  readonly grader: Grader
  readonly pool: TaskPool
  readonly workers: number
}

export interface RuntimeOptions {
  readonly workers?: number | undefined
  readonly cache: boolean
  readonly allowUnsafe?: boolean
  /** Whose limits programs get; default `demo`. */
  readonly limits?: LimitProfile
  /** A recorded cache read before the machine's own (results stand for every rung). */
  readonly cachePath?: string
}

/**
 * Opens sandbox, caches and grader.
 * @throws MissingError before set-up, where nothing contains a program, or where there is no room for one
 */
export async function openRuntime(o: RuntimeOptions): Promise<Runtime> {
  const workers = o.workers ?? availableParallelism()
  checkCapacity(workers, o.limits ?? 'demo')
  const executor = await openExecutor({
    workers,
    cache: o.cache,
    ...(o.cachePath === undefined ? {} : { cachePath: o.cachePath }),
    ...(o.allowUnsafe ? { allowUnsafe: true } : {}),
  })
  const grader = o.cache ? new CachedGrader(openGrader()) : openGrader()
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

/** That another process works on a run's folder. */
export class RunBusy extends ConfigError {
  constructor(
    readonly pid: number,
    dir: string,
  ) {
    super('--run', `process ${pid} is working on ${dir}`, 'wait for it, or choose another folder')
  }
}

/**
 * Keeps a second process off a run's folder, by a file that names this one. A lock whose process is gone is taken over.
 * @throws RunBusy naming the process that has it
 */
export function lockRun(dir: string): Disposable {
  const path = join(dir, 'run.lock')
  const mine = `${path}.${process.pid}`
  writeFileSync(mine, JSON.stringify({ pid: process.pid, started: startOf(process.pid) }))
  try {
    // A link is made whole or not at all, and never over another file.
    while (!linked(mine, path)) {
      const text = read(path)
      const pid = text === undefined ? undefined : ownerOf(text)
      if (pid !== undefined) throw new RunBusy(pid, dir)
      // Of two that take over, one moves the dead lock away; who finds a living one in his hand puts it back.
      const dead = `${mine}.dead`
      try {
        renameSync(path, dead)
      } catch {
        continue
      }
      if (read(dead) !== text) linked(dead, path)
      rmSync(dead, { force: true })
    }
  } finally {
    rmSync(mine, { force: true })
  }
  return { [Symbol.dispose]: () => rmSync(path, { force: true }) }
}

function linked(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw e
  }
}

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

/** The living process that a lock names; another one that was given its number later is not it. */
function ownerOf(text: string): number | undefined {
  try {
    const { pid, started } = JSON.parse(text) as { pid: number; started: string | null }
    const now = startOf(pid)
    return now !== null && now === started ? pid : undefined
  } catch {
    return undefined
  }
}

/** When a process was started, in the kernel's ticks; null where there is none. */
function startOf(pid: number): string | null {
  const stat = read(`/proc/${pid}/stat`)
  // The name in parentheses may hold spaces.
  return stat === undefined ? null : (stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null)
}

/** The ledger of a run directory. @throws ConfigError naming what is none */
export function needRun(path: string): string {
  const db = join(path, 'run.db')
  if (!existsSync(db))
    throw new ConfigError(
      'run',
      `${path} is no run directory (it has no run.db)`,
      'give the folder that wmrl train --run wrote',
    )
  return db
}
