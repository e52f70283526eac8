import type { Execution, ExecutionJob, ExecutionStore, Executor } from './executor.ts'

/** Executions of this process alone, forgotten with it; a submission and its output each. */
export function memoryStore(): ExecutionStore {
  const kept = new Map<string, Execution>()
  return { find: (key) => kept.get(key), put: (key, e) => void kept.set(key, e) }
}

/**
 * An executor that runs equal content once: finished runs come from the store, runs under way are joined. Infrastructure
 * trouble is never stored.
 */
export class CachedExecutor implements Executor {
  private readonly running = new Map<string, Promise<Execution>>()
  constructor(
    private readonly inner: Executor,
    private readonly store: ExecutionStore,
  ) {}

  get rung(): string {
    return this.inner.rung
  }
  get environment(): string {
    return this.inner.environment
  }
  checkSyntax(code: string, signal: AbortSignal) {
    return this.inner.checkSyntax(code, signal)
  }

  async execute(job: ExecutionJob, signal: AbortSignal): Promise<Execution> {
    const known = this.store.find(job.key)
    if (known) return { ...known, cached: true }
    const joined = this.running.get(job.key)
    if (joined) return { ...(await joined), cached: true }
    const run = this.inner.execute(job, signal).then((e) => {
      if (e.end.kind !== 'infra') this.store.put(job.key, e)
      return e
    })
    this.running.set(job.key, run)
    try {
      return await run
    } finally {
      this.running.delete(job.key)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.inner[Symbol.asyncDispose]()
  }
}
