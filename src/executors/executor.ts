import type { Limits, RunEnd, RunResult } from '../sandbox/index.ts'

/** One program to be run somewhere. `key` names the content (see `executionKey`); equal keys may share one run. */
export interface ExecutionJob {
  readonly key: string
  readonly code: string
  readonly publicDir: string
  readonly limits: Limits
  readonly seed: number
}

export interface Execution {
  readonly end: RunEnd
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  readonly cost: RunResult['cost']
  readonly rung: string
  /** True where no program was started for this call. */
  readonly cached: boolean
}

/** Where programs run. `execute` never rejects but for its signal; trouble of ours is an `infra` end. */
export interface Executor extends AsyncDisposable {
  /** Part of every execution's key. */
  readonly rung: string
  /** Digest of the solutions' environment; part of every execution's key. */
  readonly environment: string
  execute(job: ExecutionJob, signal: AbortSignal): Promise<Execution>
  checkSyntax(code: string, signal: AbortSignal): Promise<{ type: string; message: string; line?: number } | undefined>
}

/** Port: executions that were paid for. `put` returns once the record is durable. */
export interface ExecutionStore {
  find(key: string): Execution | undefined
  put(key: string, e: Execution): void
}
