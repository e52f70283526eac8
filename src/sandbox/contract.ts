import type { ErrorSummary } from '../core/index.ts'

/**
 * How well this machine contains a program, best first (docs/architecture/sandbox.md). A: bubblewrap and cgroups; A-:
 * our own namespaces and cgroups; B, C: the same without cgroups (memory and CPU share are only polled); D: Landlock
 * and seccomp (D-: an old Landlock, programs can signal processes of the same user); E: nothing contains.
 */
export const RUNGS = ['A', 'A-', 'B', 'C', 'D', 'D-', 'E'] as const
export type Rung = (typeof RUNGS)[number]

export interface Limits {
  /** CPU seconds, user and system, summed over the program's whole process tree. */
  readonly cpuS: number
  /** Wall-clock seconds from the program's first instruction; default max(30, 10 x cpuS). */
  readonly wallS?: number
  /** MiB, of the whole tree and its scratch files where cgroups hold it. */
  readonly memoryMb: number
  /** Bytes that the program may write to stdout and stderr together; one more ends it as `OutputLimit`. */
  readonly outputBytes: number
  /** Bytes of submission.csv; a larger one is not handed out. */
  readonly submissionBytes: number
  /** MiB of files in the scratch directory. */
  readonly diskMb: number
  /** Processes and threads at a time. */
  readonly processes: number
  /** CPUs: the quota of the tree, and (rounded down, at least 1) the threads offered to OpenMP and BLAS. */
  readonly cpus: number
}

export interface ProgramRun {
  readonly code: string
  /** Mounted read-only at /input; the program's working directory links to its entries by their relative names. */
  readonly publicDir: string
  readonly limits: Limits
  /** Seeds Python's `random` and numpy's global generator; an integer of 31 bits. */
  readonly seed: number
}

/** How the program ended, before any grading. */
export type RunEnd =
  | {
      readonly kind: 'finished'
      /** Bytes of submission.csv; `undefined` when there is none that can be read. */
      readonly submission: Uint8Array | undefined
      readonly submissionIssue?: 'too-large' | 'not-regular'
    }
  /** `error.type`: the exception's class, or OutputLimit, DiskLimit, ProcessLimit, Exit (status not 0), Signal. */
  | { readonly kind: 'crashed'; readonly error: ErrorSummary }
  | { readonly kind: 'syntax-error'; readonly error: ErrorSummary }
  | { readonly kind: 'timed-out'; readonly limit: 'cpu' | 'wall'; readonly submissionPresent: boolean }
  | { readonly kind: 'out-of-memory' }
  /** Trouble of ours (the jail did not start, the fork server died, the machine starved it): never a crash. */
  | { readonly kind: 'infra'; readonly detail: string }

export interface RunCost {
  readonly wallS: number
  readonly cpuS: number
  /** Highest memory charged; on rungs without cgroups the highest polled sum. */
  readonly peakBytes: number
}

export interface RunResult {
  readonly end: RunEnd
  /** Raw bytes, at most `outputBytes` in all; escape them before a terminal shows them. */
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  readonly cost: RunCost
  readonly rung: Rung
  readonly runner: 'fork-server' | 'process'
}

export interface Sandbox extends AsyncDisposable {
  readonly rung: Rung
  /**
   * Runs one program to its end. Concurrent calls beyond `workers` wait their turn.
   * @throws the signal's reason when aborted (everything of the run is gone by then)
   * @throws SandboxError when the queue is full or the sandbox is closed
   */
  run(program: ProgramRun, signal: AbortSignal): Promise<RunResult>
  /**
   * Python's own `compile()`, in the solutions' interpreter, jailed; `undefined` when the code compiles. A check, not
   * an execution. MemoryError, RecursionError and a compile that exceeds its limits count as syntax errors.
   * @throws SandboxError when no answer could be had
   */
  checkSyntax(code: string, signal: AbortSignal): Promise<ErrorSummary | undefined>
}

export interface SandboxOptions {
  /** Python of the solutions' environment, `<venv>/bin/python`. */
  readonly python: string
  /** Where this machine's sandboxes are registered, so that the next start can sweep what a killed one left. */
  readonly stateDir: string
  /** Programs at a time; default the number of CPUs. */
  readonly workers?: number
  /** Forces a rung; it must work here. */
  readonly rung?: Rung
  /** Permits rung E, where nothing contains a program: for one's own programs only. */
  readonly allowUnsafe?: boolean
  /** Default true. `false`: one process a program, importing everything itself. */
  readonly forkServer?: boolean
}
