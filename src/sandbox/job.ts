import { readdirSync, realpathSync, statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { SandboxError } from '../core/index.ts'
import type { Limits, ProgramRun } from './contract.ts'
import { seccompFilter } from './seccomp.ts'

/** What the guard is told; read by python/runner/guard.py, worker.py and jail.py. */
export interface Job {
  readonly mode: 'run' | 'compile'
  readonly code: string
  readonly seed: number
  /** Scratch directory and public files, as paths that the program sees. */
  readonly box: string
  readonly input: string
  /** Entries of the public directory to link into the scratch directory. */
  readonly links: readonly string[]
  /** Whether the program has a pid namespace of its own. */
  readonly namespaced: boolean
  /** Host uid to take, where the guard is started as root. */
  readonly uid: number | null
  readonly publicDir: string | null
  readonly diskBytes: number
  readonly shmBytes: number
  readonly outputBytes: number
  readonly submissionBytes: number
  readonly rlimits: Readonly<Record<string, number>>
  readonly landlock: LandlockRules | null
  /** Base64 of the filter; null on the unsafe rung only. */
  readonly seccomp: string | null
  readonly cgroups: readonly string[]
}

export interface LandlockRules {
  readonly readOnly: readonly string[]
  readonly readWrite: readonly string[]
  readonly devices: readonly string[]
}

const NAMESPACED_FILTER = seccompFilter().toString('base64')
const LANDLOCK_FILTER = seccompFilter({ withoutNamespaces: true }).toString('base64')

export interface JobPlace {
  readonly box: string
  readonly input: string
  readonly namespaced: boolean
  readonly uid: number | null
  readonly landlock: LandlockRules | null
  readonly confined: boolean
  /** Limits by rlimit stand in for cgroups. */
  readonly soft: boolean
  readonly cgroups: readonly string[]
  /** Processes of the same user outside the jail, which RLIMIT_NPROC counts where there is no user namespace. */
  readonly otherProcesses: number
}

const MIB = 1 << 20
/** Names in the scratch directory that the program or we write. */
const RESERVED = ['submission.csv', 'main.py']

export function makeJob(program: ProgramRun, place: JobPlace): Job {
  const { limits } = program
  const diskBytes = limits.diskMb * MIB
  const rlimits: Record<string, number> = {
    CORE: 0,
    NOFILE: 1024,
    CPU: Math.ceil(limits.cpuS) + 2, // of one process, behind the count over the tree
  }
  if (place.soft) {
    rlimits.DATA = limits.memoryMb * MIB
    rlimits.NPROC = limits.processes + 1 + place.otherProcesses
  }
  if (!place.namespaced) rlimits.FSIZE = diskBytes
  return {
    mode: 'run',
    code: program.code,
    seed: program.seed,
    box: place.box,
    input: place.input,
    links: publicEntries(program.publicDir),
    namespaced: place.namespaced,
    uid: place.uid,
    publicDir: realpathSync(program.publicDir), // a link would be followed inside another root
    diskBytes,
    shmBytes: Math.min(diskBytes, 64 * MIB),
    outputBytes: limits.outputBytes,
    submissionBytes: limits.submissionBytes,
    rlimits,
    landlock: place.landlock,
    seccomp: place.confined ? (place.namespaced ? NAMESPACED_FILTER : LANDLOCK_FILTER) : null,
    cgroups: place.cgroups,
  }
}

/**
 * Entries of the public directory. Where we are root, programs run under another uid: files that only root can read
 * would look like the program's fault. Not checked below the first level.
 * @throws SandboxError naming what is missing or closed
 */
function publicEntries(dir: string): string[] {
  const open = (path: string, bits: number): void => {
    if ((statSync(path).mode & bits) !== bits) {
      throw new SandboxError(`${path} is closed to other users; chmod -R go+rX ${dir}`)
    }
  }
  try {
    const names = readdirSync(dir).filter((n) => !RESERVED.includes(n))
    if (process.getuid?.() === 0) {
      open(dir, 0o005)
      for (const n of names) open(join(dir, n), 0o004)
    }
    return names
  } catch (e) {
    if (e instanceof SandboxError) throw e
    throw new SandboxError(`the public files cannot be read: ${(e as Error).message}`)
  }
}

/** Limits of a syntax check: generous for any program that a model can write. */
export const COMPILE_LIMITS: Limits = {
  cpuS: 5,
  wallS: 60,
  memoryMb: 512,
  outputBytes: 4096,
  submissionBytes: 0,
  diskMb: 1,
  processes: 4,
  cpus: 1,
}

export const wallLimit = (l: Limits): number => l.wallS ?? Math.max(30, 10 * l.cpuS)

/** Threads offered to OpenMP and BLAS: more than the quota has CPUs and their barriers spin (sandbox.md section 3). */
export const threadsFor = (l: Limits): number => Math.max(1, Math.min(Math.floor(l.cpus), availableParallelism()))
