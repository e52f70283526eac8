import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ConfigError, keyed, messageOf, packageRoot } from '../core/index.ts'
import { CachedExecutor, type Executor, LocalExecutor, memoryStore } from '../executors/index.ts'
import { type BoardStore, FileBoards, GraderProcess, ScoreBoards } from '../grading/index.ts'
import { ExecutionCache, Sqlite } from '../ledger/index.ts'
import { executionStore } from './execution-store.ts'
import { boardsDir, cacheDb, home, sandboxState, smallBoardsFile, solutionsPython } from './paths.ts'

/** Whether this package runs in its own clone, where what it makes may be committed. */
export const inClone = (): boolean => existsSync(join(packageRoot(), 'src', 'cli', 'main.ts'))

export interface ExecutorChoice {
  readonly workers?: number
  /**
   * Default true: what was executed is found again and kept in WMRL's home. False: nothing of an earlier process is used or
   * kept. Within one process equal content is executed once either way, so that both scopes grade the same submission.
   */
  readonly cache?: boolean
  /** The cache's database; default the machine's own. */
  readonly cachePath?: string
  readonly allowUnsafe?: boolean
}

/** This machine's sandbox behind the execution cache. @throws MissingError before set-up, ConfigError where nothing can be kept */
export async function openExecutor(o: ExecutorChoice = {}): Promise<Executor> {
  await mkdir(sandboxState(), { recursive: true }).catch((cause) => {
    const fix = 'set it to a folder that can be written'
    throw new ConfigError('WMRL_HOME', `${sandboxState()} cannot be made (${messageOf(cause)})`, fix, { cause })
  })
  const local = await LocalExecutor.open({
    python: solutionsPython(),
    stateDir: sandboxState(),
    ...(o.workers === undefined ? {} : { workers: o.workers }),
    ...(o.allowUnsafe === undefined ? {} : { allowUnsafe: o.allowUnsafe }),
  })
  if (o.cache === false) return closing(new CachedExecutor(local, memoryStore()), () => {})
  const path = o.cachePath ?? cacheDb()
  await mkdir(dirname(path), { recursive: true })
  const cache = new ExecutionCache(Sqlite.open(path))
  return closing(new CachedExecutor(local, executionStore(cache)), () => cache.close())
}

/** Closes `rest` with the executor. What a sandbox could not remove is said, and fails no work that is done. */
function closing(executor: Executor, rest: () => void): Executor {
  return Object.assign(Object.create(executor) as Executor, {
    [Symbol.asyncDispose]: async () => {
      try {
        await executor[Symbol.asyncDispose]()
      } catch (e) {
        process.stderr.write(`wmrl: ${messageOf(e)}\n`)
      } finally {
        rest()
      }
    },
  })
}

/** Where this machine's own leaderboards are written: beside the shipped ones in a clone, in WMRL's home otherwise. */
export const ownBoardsDir = (): string => (inClone() ? boardsDir() : join(home(), 'boards'))

/** The shipped leaderboards, or those that this machine made in their place. */
export function boardStore(): BoardStore & { path(ref: { suite: string; id: string }): string | undefined } {
  const shipped = new FileBoards(boardsDir())
  const own = new FileBoards(ownBoardsDir())
  const small = new ScoreBoards(smallBoardsFile())
  const pathIn = (dir: string, ref: { suite: string; id: string }): string => join(dir, ref.suite, `${ref.id}.json`)
  return {
    scores: (ref, scope) =>
      ref.suite === 'small'
        ? small.scores(ref, scope)
        : (existsSync(pathIn(own.dir, ref)) ? own : shipped).scores(ref, scope),
    path: (ref) => [own.dir, shipped.dir].map((d) => pathIn(d, ref)).find((p) => existsSync(p)),
  }
}

/** The grader's process. Dispose of it. */
export const openGrader = (boards: BoardStore = boardStore()): GraderProcess => new GraderProcess(boards)

/**
 * Ids of `n` little tasks to train on beside a suite's own: three quarters tables, the first ones, which are quick to
 * prepare, the rest pictures and series by a keyed draw. The same for every seed. No texts: the little texts ask for lengths
 * and classes of words, so that counting letters would be rewarded; whether that harms is not proven (docs/LOG.md).
 * @throws ConfigError where fewer have a leaderboard
 */
export function littleIds(n: number): string[] {
  const ids = new ScoreBoards(smallBoardsFile()).ids()
  const tables = ids.filter((id) => id.startsWith('table-'))
  const others = keyed('little').shuffle(ids.filter((id) => /^(image|signal)-/.test(id)))
  const chosen = [...others.slice(0, n >> 2), ...tables].slice(0, n)
  if (chosen.length < n)
    throw new ConfigError('tasks.little', `${chosen.length} little tasks have a leaderboard, ${n} are asked for`)
  return chosen.sort()
}
