import { execFile } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { MissingError, messageOf } from '../core/index.ts'
import { pidNamespace, startTime } from './proc.ts'

const run = promisify(execFile)

/** The solutions' Python. */
export interface PythonHost {
  /** `<venv>/bin/python`. */
  readonly python: string
  readonly venv: string
  /** Prefix of the interpreter that the environment was made from. */
  readonly base: string
  readonly version: string
}

/** @throws MissingError when there is no such environment, or its Python is not one of 3.11 to 3.13 */
export async function inspectPython(python: string): Promise<PythonHost> {
  const fix = 'run `npm run setup`, which makes the environment of the solutions'
  if (!existsSync(python)) throw new MissingError(`no Python at ${python}`, fix)
  let text: string
  try {
    const code = 'import sys; print(sys.version_info[0], sys.version_info[1], sys.prefix, sys.base_prefix, sep="\\n")'
    text = (await run(python, ['-I', '-c', code], { timeout: 60_000 })).stdout
  } catch (e) {
    throw new MissingError(`${python} does not run: ${messageOf(e)}`, fix)
  }
  const [major = '', minor = '', venv = '', base = ''] = text.trim().split('\n')
  if (major !== '3' || Number(minor) < 11 || Number(minor) > 13) {
    throw new MissingError(`${python} is Python ${major}.${minor}`, 'the solutions need Python 3.11, 3.12 or 3.13')
  }
  return { python, venv: realpathSync(venv), base: realpathSync(base), version: `${major}.${minor}` }
}

/** python/runner of this package, from the sources or from dist/. */
export function runnerDir(): string {
  let dir = dirname(fileURLToPath(import.meta.url))
  for (;;) {
    const candidate = join(dir, 'python', 'runner')
    if (existsSync(join(candidate, 'guard.py'))) return realpathSync(candidate)
    const up = dirname(dir)
    if (up === dir) throw new MissingError('python/runner is not part of this installation', 'install wmrl again')
    dir = up
  }
}

/**
 * Prefix of everything that this process makes outside its own memory: cgroups, directories, the registry's file. It
 * names the process for ever (pid namespace, pid, start time), so that a sweep can tell whether its owner is dead.
 */
export function ownerName(): string {
  return `wmrl-${pidNamespace()}-${process.pid}-${startTime(process.pid) ?? 0}`
}

export interface Owner {
  readonly namespace: string
  readonly pid: number
  readonly start: string
}

export function parseOwner(name: string): Owner | undefined {
  const m = /^wmrl-(\d+)-(\d+)-(\d+)(?:[-.]|$)/.exec(name)
  return m ? { namespace: m[1]!, pid: Number(m[2]), start: m[3]! } : undefined
}
