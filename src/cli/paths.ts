import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { MissingError, packageRoot } from '../core/index.ts'

/**
 * Where this machine's state lives: WMRL_HOME; in a clone `<clone>/.wmrl`; for an installed package a folder of the user's
 * cache.
 */
export function home(): string {
  const set = process.env.WMRL_HOME
  if (set) return set
  const root = packageRoot()
  if (existsSync(join(root, 'src', 'cli', 'main.ts'))) return join(root, '.wmrl')
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'wmrl')
}

export const dataDir = (): string => join(home(), 'tasks')
export const artefactDir = (): string => join(home(), 'artefacts')
export const cacheDb = (): string => join(home(), 'cache.db')
export const sandboxState = (): string => join(home(), 'sandbox')
export const runsDir = (): string => join(home(), 'runs')
export const boardsDir = (): string => join(packageRoot(), 'assets', 'boards')
export const smallBoardsFile = (): string => join(boardsDir(), 'small.json')
export const backboneDir = (): string => join(packageRoot(), 'assets', 'backbone')

/** Python of the solutions' environment. @throws MissingError before set-up. */
export function solutionsPython(): string {
  const path = process.env.WMRL_PYTHON ?? join(home(), 'venv', 'bin', 'python')
  if (!existsSync(path))
    throw new MissingError(
      `the solutions' Python environment is missing (${path})`,
      'run: npm run setup in the clone, or point WMRL_PYTHON at a Python that has python/requirements-solutions.lock',
    )
  return path
}
