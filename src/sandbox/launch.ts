import { existsSync, lstatSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { PythonHost } from './host.ts'

/** What python/runner/launch.py reads from its first argument. */
export interface Launch {
  readonly kind: 'bwrap' | 'namespaces' | 'plain' | 'fork-server'
  /** The launcher ends when this is not its parent (we died before it asked the kernel to tell it). */
  readonly parent: number
  readonly cgroups: readonly string[]
  readonly uid: number | null
  readonly privileged: boolean
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** bwrap: (source, target) pairs that root binds for a uid that cannot reach the source. */
  readonly stage: readonly (readonly [string, string])[]
  /** namespaces, fork-server: what the new root shows. */
  readonly binds: readonly (readonly [string, string])[]
  /** Empty directory of the host that the new root covers. */
  readonly at: string
  readonly uids: readonly number[]
  readonly publicDir: string | null
  readonly diskBytes: number
  readonly shmBytes: number
}

export const VENV = '/venv'
export const RUNNER = '/runner'
export const BOX = '/box'
export const INPUT = '/input'

/** Environment of every program. Two files of the host's own environment reach it: none. */
export function programEnv(threads: number, home: string): Record<string, string> {
  const n = String(threads)
  return {
    PATH: '/venv/bin:/usr/bin:/bin',
    HOME: home,
    TMPDIR: home,
    LANG: 'C.UTF-8',
    OMP_NUM_THREADS: n,
    OPENBLAS_NUM_THREADS: n,
    MKL_NUM_THREADS: n,
    NUMEXPR_NUM_THREADS: n,
    LOKY_MAX_CPU_COUNT: n,
    PYTHONHASHSEED: '0',
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONNOUSERSITE: '1',
    MPLBACKEND: 'Agg',
  }
}

const SYSTEM_FILES = ['/etc/alternatives', '/etc/ld.so.cache', '/etc/localtime']

/** Read-only parts of a program's root as (host path, path inside). */
export function rootBinds(py: PythonHost, runner: string): [string, string][] {
  const binds: [string, string][] = [['/usr', '/usr']]
  for (const f of SYSTEM_FILES) if (existsSync(f)) binds.push([f, f])
  if (!py.base.startsWith('/usr')) binds.push([py.base, py.base])
  binds.push([py.venv, VENV], [runner, RUNNER])
  return binds
}

/** Paths that a program under Landlock may read; they are the host's own. */
export function landlockReadable(py: PythonHost, runner: string, publicDir: string): string[] {
  const system = ['/usr', '/lib', '/lib64', '/bin', ...SYSTEM_FILES]
  return [...system, '/sys/devices/system/cpu', '/proc/cpuinfo', '/proc/meminfo', py.base, py.venv, runner, publicDir]
}

export interface BwrapPlan {
  readonly bwrap: string
  readonly binds: readonly (readonly [string, string])[]
  /** Host path of the public files (or where root staged them). */
  readonly publicDir: string
  /** File that becomes /etc/passwd. */
  readonly passwd: string
  readonly diskBytes: number
  readonly shmBytes: number
  readonly env: Readonly<Record<string, string>>
  readonly command: readonly string[]
}

/** bubblewrap's command line; our guard becomes pid 1 of the jail. Tested with 0.8. */
export function bwrapArgv(p: BwrapPlan): string[] {
  const argv = [p.bwrap, '--unshare-all', '--unshare-user', '--disable-userns', '--die-with-parent', '--new-session']
  argv.push('--as-pid-1', '--cap-drop', 'ALL', '--clearenv', '--hostname', 'sandbox')
  for (const [k, v] of Object.entries(p.env)) argv.push('--setenv', k, v)
  for (const [from, to] of p.binds) argv.push('--ro-bind', from, to)
  for (const d of ['/bin', '/lib', '/lib64']) {
    if (!existsSync(d)) continue
    if (lstatSync(d).isSymbolicLink()) argv.push('--symlink', readlinkSync(d), d)
    else argv.push('--ro-bind', d, d)
  }
  argv.push('--ro-bind', p.passwd, '/etc/passwd', '--proc', '/proc', '--dev', '/dev')
  argv.push('--size', String(p.shmBytes), '--perms', '1777', '--tmpfs', '/dev/shm', '--remount-ro', '/dev')
  argv.push('--size', String(p.diskBytes), '--perms', '0700', '--tmpfs', BOX, '--symlink', 'box', '/tmp')
  argv.push('--ro-bind', p.publicDir, INPUT, '--remount-ro', '/', '--chdir', BOX, '--', ...p.command)
  return argv
}

/** Command line of the launcher itself; it runs no code of the environment's packages. */
export const launcherArgv = (runner: string, launch: Launch): string[] => [
  '-I',
  '-S',
  '-B',
  join(runner, 'launch.py'),
  JSON.stringify(launch),
]
