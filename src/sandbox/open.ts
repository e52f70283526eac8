import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ErrorSummary, MissingError, messageOf, SandboxError, waits } from '../core/index.ts'
import { type Cgroup, discoverCgroups } from './cgroups.ts'
import type { Limits, ProgramRun, Rung, RunResult, Sandbox, SandboxOptions } from './contract.ts'
import { ForkServer } from './fork-server.ts'
import { inspectPython, runnerDir } from './host.ts'
import { COMPILE_LIMITS, makeJob, wallLimit } from './job.ts'
import { type Features, tryFeatures, workingRungs } from './probe.ts'
import { ProcessRunner } from './process-runner.ts'
import { SlotQueue } from './queue.ts'
import { Runtime } from './runtime.ts'
import type { Supervised } from './supervise.ts'
import { sweep } from './sweep.ts'

/**
 * Sweeps what a killed supervisor left, chooses the best rung that works here, starts the fork server and lets one
 * program through as proof.
 * @throws MissingError when there is no environment, nothing contains a program here, or a forced rung does not work
 * @throws SandboxError when the chosen rung fails its proof
 */
export function openSandbox(opts: SandboxOptions): Promise<Sandbox> {
  return openLocalSandbox(opts)
}

/** The same, with what only the bench asks of it. */
export async function openLocalSandbox(opts: SandboxOptions): Promise<LocalSandbox> {
  const python = await inspectPython(opts.python)
  await sweep(opts.stateDir, process.platform === 'linux' ? discoverCgroups() : undefined)
  const features = tryFeatures(opts.python)
  const rung = chooseRung(features, opts)
  const workers = opts.workers ?? availableParallelism()
  const runtime = new Runtime({
    rung,
    python,
    runner: runnerDir(),
    privileged: features.privileged,
    cgroups: rung === 'A' || rung === 'A-' ? features.cgroups : undefined,
    bwrap: features.bwrap ?? 'bwrap',
    stateDir: opts.stateDir,
    slots: workers,
  })
  const sandbox = new LocalSandbox(runtime, workers, (opts.forkServer ?? true) && runtime.namespaced)
  try {
    await sandbox.prove()
  } catch (e) {
    await sandbox[Symbol.asyncDispose]().catch((x) => {
      throw new SandboxError(`${messageOf(e)}; ${messageOf(x)}`, { cause: e })
    })
    throw e
  }
  return sandbox
}

function chooseRung(features: Features, opts: SandboxOptions): Rung {
  const working = workingRungs(features)
  const unsafe = opts.allowUnsafe === true
  const advice = features.checks.find((c) => c.status === 'missing')?.fix ?? ''
  if (opts.rung !== undefined) {
    if (opts.rung === 'E' && !unsafe)
      throw new MissingError('rung E contains nothing', 'pass --allow-unsafe for your own programs')
    if (!working.includes(opts.rung))
      throw new MissingError(`rung ${opts.rung} does not work here`, advice || `use ${working[0]}`)
    return opts.rung
  }
  const best = working[0] ?? 'E'
  if (best === 'E' && !unsafe) {
    throw new MissingError(
      'no sandbox: nothing on this machine contains a program',
      `${advice}; or run programs elsewhere (a remote executor); --allow-unsafe runs your own programs uncontained`,
    )
  }
  return best
}

const PROOF_LIMITS: Limits = {
  cpuS: 10,
  wallS: 120,
  memoryMb: 512,
  outputBytes: 4096,
  submissionBytes: 4096,
  diskMb: 8,
  processes: 8,
  cpus: 1,
}
const PROOF = "print('sandbox', open('proof.csv').read())\nopen('submission.csv', 'w').write('id,y\\n')\n"

/** What starting a program and clearing up after it may take beyond its own wall clock, on a machine without rest. */
const ROUND_ABOUT_S = 120

/** After this many starts in a row that failed, the fork server is not tried again. */
const MAX_RESTARTS = 3

export class LocalSandbox implements Sandbox {
  readonly #runtime: Runtime
  readonly #slots: number
  readonly #queue: SlotQueue
  readonly #processes: ProcessRunner
  readonly #usesForkServer: boolean
  #server: ForkServer | undefined
  #starting: Promise<ForkServer> | undefined
  #failedStarts = 0
  #closed = false
  readonly #running = new Set<Promise<unknown>>()
  readonly #abort = new AbortController()
  /** What could not be removed, in words. */
  readonly #left: string[] = []

  constructor(runtime: Runtime, slots: number, usesForkServer: boolean) {
    this.#runtime = runtime
    this.#slots = slots
    this.#queue = new SlotQueue(slots)
    this.#processes = new ProcessRunner(runtime)
    this.#usesForkServer = usesForkServer
  }

  get rung(): Rung {
    return this.#runtime.rung
  }

  /** For the bench: CPU seconds of the fork server itself. */
  async serverCpuS(): Promise<number> {
    return this.#usesForkServer ? (await this.#forkServer()).cpuS() : 0
  }

  /** One program must come through: a jail that cannot start is found here, never blamed on an agent. */
  async prove(): Promise<void> {
    const dir = mkdtempSync(join(tmpdir(), `${this.#runtime.name}-proof-`))
    try {
      writeFileSync(join(dir, 'proof.csv'), 'seen')
      chmodSync(dir, 0o755)
      chmodSync(join(dir, 'proof.csv'), 0o644)
      const program = { code: PROOF, publicDir: dir, limits: PROOF_LIMITS, seed: 0 }
      const r = await this.run(program, AbortSignal.timeout(300_000))
      const said = Buffer.from(r.stdout).toString('utf8').trim()
      if (r.end.kind !== 'finished' || r.end.submission === undefined || said !== 'sandbox seen') {
        const why = r.end.kind === 'infra' ? r.end.detail : `${JSON.stringify(r.end)} ${said}`
        throw new SandboxError(`rung ${this.rung} failed its proof: ${why}`)
      }
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  }

  async run(program: ProgramRun, signal: AbortSignal): Promise<RunResult> {
    const runner = this.#usesForkServer ? 'fork-server' : 'process'
    const s = await this.#inSlot(signal, program.limits, async (slot, group, both) => {
      if (!this.#usesForkServer) return this.#processes.run(program, slot, group, both)
      return this.#served((server) => {
        const job = makeJob(program, server.place(slot, group?.dirs ?? []))
        return server.run(job, program.limits, group, both)
      })
    })
    const { end, stdout, stderr, cost } = s
    return { end, stdout, stderr, cost, rung: this.rung, runner }
  }

  async checkSyntax(code: string, signal: AbortSignal): Promise<ErrorSummary | undefined> {
    const s = await this.#inSlot(signal, COMPILE_LIMITS, async (slot, group, both) => {
      if (!this.#usesForkServer) return this.#processes.compile(code, slot, group, both)
      const program = { code, publicDir: join(this.#runtime.dir, 'root'), limits: COMPILE_LIMITS, seed: 0 }
      return this.#served((server) => {
        const job = {
          ...makeJob(program, server.place(slot, group?.dirs ?? [])),
          mode: 'compile' as const,
          publicDir: null,
        }
        return server.run(job, COMPILE_LIMITS, group, both)
      })
    })
    const { end, report } = s
    switch (end.kind) {
      case 'finished':
        return undefined
      case 'out-of-memory':
        return report?.own?.error ?? { type: 'MemoryError', message: 'the program is too complex to compile' }
      case 'timed-out':
        return { type: 'MemoryError', message: `compile() took more than ${COMPILE_LIMITS.cpuS} CPU seconds` }
      case 'crashed':
        if (report?.own !== undefined) return report.own.error
        throw new SandboxError(`the syntax check died: ${end.error.type} ${end.error.message}`)
      case 'syntax-error':
        return end.error
      case 'infra':
        throw new SandboxError(`the syntax check failed: ${end.detail}`, { retryable: true })
    }
  }

  async #inSlot(
    signal: AbortSignal,
    limits: Limits,
    body: (slot: number, group: Cgroup | undefined, both: AbortSignal) => Promise<Supervised>,
  ): Promise<Supervised> {
    if (this.#closed) throw new SandboxError('the sandbox is closed')
    const both = AbortSignal.any([signal, this.#abort.signal])
    const slot = await waits.during('a free slot of the sandbox', undefined, () => this.#queue.take(both))
    const work = this.#once(slot, limits, both, body)
    this.#running.add(work)
    try {
      return await waits.during('a program in the sandbox', (wallLimit(limits) + ROUND_ABOUT_S) * 1000, () => work)
    } finally {
      this.#running.delete(work)
      this.#queue.give(slot)
    }
  }

  async #once(
    slot: number,
    limits: Limits,
    signal: AbortSignal,
    body: (slot: number, group: Cgroup | undefined, both: AbortSignal) => Promise<Supervised>,
  ): Promise<Supervised> {
    let group: Cgroup | undefined
    try {
      group = this.#runtime.cgroup({
        memoryBytes: limits.memoryMb * (1 << 20),
        processes: limits.processes + 1, // the guard
        cpus: limits.cpus,
      })
      return await body(slot, group, signal)
    } catch (e) {
      group?.kill()
      await group?.remove().catch((x) => this.#left.push(messageOf(x)))
      if (signal.aborted) throw signal.reason
      return failed(messageOf(e))
    }
  }

  /**
   * Asks the fork server. One that died just before, so that its end was not heard of yet, never began the program: that is
   * tried once more on a new server. A server that dies during the program is the caller's `infra`.
   */
  async #served(run: (server: ForkServer) => Promise<Supervised>): Promise<Supervised> {
    try {
      return await run(await this.#forkServer())
    } catch (e) {
      if (!(e instanceof SandboxError && e.retryable) || this.#closed) throw e
      return run(await this.#forkServer())
    }
  }

  /** The living fork server; whoever asks while one is being started shares that start, and its failure. */
  async #forkServer(): Promise<ForkServer> {
    if (this.#server?.alive) return this.#server
    this.#starting ??= this.#startServer().finally(() => {
      this.#starting = undefined
    })
    return this.#starting
  }

  async #startServer(): Promise<ForkServer> {
    if (this.#failedStarts >= MAX_RESTARTS) throw new SandboxError('the fork server failed to start three times')
    const dead = this.#server
    this.#server = undefined
    await dead?.close().catch((x) => this.#left.push(messageOf(x)))
    try {
      this.#server = await ForkServer.start(this.#runtime, this.#slots)
    } catch (e) {
      this.#failedStarts += 1
      throw e
    }
    this.#failedStarts = 0
    return this.#server
  }

  /** @throws SandboxError naming what could not be removed, now or before; the next start of a sandbox sweeps it */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#abort.abort(new SandboxError('the sandbox was closed'))
    await Promise.allSettled(this.#running) // each has told its own caller
    await this.#starting?.catch(() => {}) // so has the start
    await this.#server?.close().catch((x) => this.#left.push(messageOf(x)))
    try {
      this.#runtime.close()
    } catch (x) {
      this.#left.push(messageOf(x))
    }
    if (this.#left.length > 0) throw new SandboxError(`the sandbox left something behind: ${this.#left.join('; ')}`)
  }
}

const failed = (detail: string): Supervised => ({
  end: { kind: 'infra', detail },
  report: undefined,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  cost: { wallS: 0, cpuS: 0, peakBytes: 0 },
})
