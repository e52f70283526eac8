import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { contentHash, messageOf, packageRoot } from '../core/index.ts'
import { openSandbox, type Sandbox, type SandboxOptions } from '../sandbox/index.ts'
import type { Execution, ExecutionJob, Executor } from './executor.ts'

/** Runs programs in this machine's sandbox. */
export class LocalExecutor implements Executor {
  private constructor(
    private readonly sandbox: Sandbox,
    readonly environment: string,
  ) {}

  static async open(opts: SandboxOptions): Promise<LocalExecutor> {
    const lock = await readFile(join(packageRoot(), 'python', 'requirements-solutions.lock'))
    return new LocalExecutor(await openSandbox(opts), contentHash(lock))
  }

  get rung(): string {
    return this.sandbox.rung
  }

  async execute(job: ExecutionJob, signal: AbortSignal): Promise<Execution> {
    try {
      const r = await this.sandbox.run(job, signal)
      return { end: r.end, stdout: r.stdout, stderr: r.stderr, cost: r.cost, rung: r.rung, cached: false }
    } catch (e) {
      if (signal.aborted) throw e
      const none = new Uint8Array()
      return {
        end: { kind: 'infra', detail: messageOf(e) },
        stdout: none,
        stderr: none,
        cost: { wallS: 0, cpuS: 0, peakBytes: 0 },
        rung: this.rung,
        cached: false,
      }
    }
  }

  checkSyntax(code: string, signal: AbortSignal) {
    return this.sandbox.checkSyntax(code, signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sandbox[Symbol.asyncDispose]()
  }
}
