import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../src/core/index.ts'

export const root = packageRoot()
export const cli = join(root, 'dist', 'cli', 'main.js')

/** Runs the built command as a user would. */
export function wmrl(
  args: readonly string[],
  o: { env?: NodeJS.ProcessEnv; cwd?: string; input?: string; timeout?: number } = {},
): SpawnSyncReturns<string> {
  if (!existsSync(cli)) throw new Error(`${cli} is not built; run: npm test`)
  return spawnSync(process.execPath, [cli, ...args], {
    encoding: 'utf8',
    cwd: o.cwd ?? root,
    env: { ...process.env, ...o.env },
    ...(o.input === undefined ? {} : { input: o.input }),
    timeout: o.timeout ?? 300_000,
  })
}

/** Tasks that the tests of this folder execute programs on, prepared once (a registry package is fetched the first time). */
export function prepare(...ids: string[]): void {
  const r = wmrl(['tasks', 'prepare', ...ids, '--quiet'], { timeout: 900_000 })
  if (r.status !== 0) throw new Error(`tasks prepare ${ids.join(' ')} failed: ${r.stderr}`)
}
