import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { SandboxError } from '../core/index.ts'
import type { Cgroup } from './cgroups.ts'
import type { Limits } from './contract.ts'
import type { Job, JobPlace } from './job.ts'
import { BOX, INPUT, type Launch, launcherArgv, programEnv, RUNNER, rootBinds, VENV } from './launch.ts'
import { CgroupMeter, type Meter, TreeMeter } from './meter.ts'
import { cpuSecondsOf, residentBytes } from './proc.ts'
import type { Runtime } from './runtime.ts'
import { type Supervised, supervise } from './supervise.ts'

/** Imported once in the fork server; whatever else a program imports it pays for itself. */
export const PRELOADED = [
  'numpy',
  'pandas',
  'PIL.Image',
  'scipy.sparse',
  ...[
    'ensemble linear_model svm neighbors naive_bayes pipeline compose preprocessing impute feature_extraction.text',
    'decomposition model_selection metrics discriminant_analysis tree multioutput kernel_ridge cluster',
    'feature_selection dummy calibration gaussian_process neural_network',
  ]
    .join(' ')
    .split(' ')
    .map((m) => `sklearn.${m}`),
]

const READY_CEILING_MS = 180_000
const ANSWER_CEILING_MS = 60_000
const TOKEN_BYTES = 16

interface Waiting {
  readonly connected: (s: Socket) => void
  readonly forked: (pid: number) => void
}

/** One Python process that forks for every program into namespaces of the program's own. */
export class ForkServer {
  readonly #runtime: Runtime
  readonly #process: ChildProcess
  readonly #listener: Server
  readonly #group: Cgroup | undefined
  readonly #waiting = new Map<string, Waiting>()
  readonly #socketPath: string
  #stderr = ''
  #gone: string | undefined
  readonly #exited: Promise<void>

  private constructor(
    runtime: Runtime,
    child: ChildProcess,
    listener: Server,
    group: Cgroup | undefined,
    path: string,
  ) {
    this.#runtime = runtime
    this.#process = child
    this.#listener = listener
    this.#group = group
    this.#socketPath = path
    child.stderr?.on('data', (b: Buffer) => {
      this.#stderr = (this.#stderr + b.toString('utf8')).slice(-4000)
    })
    this.#exited = new Promise((resolve) => {
      const gone = (why: string): void => {
        const last = this.#stderr.trim().split('\n').at(-1) ?? ''
        this.#gone ??= last === '' ? why : `${why}: ${last}`
        this.#waiting.clear()
        resolve()
      }
      child.once('close', (code, signal) => gone(`the fork server ended (${signal ?? `exit ${code}`})`))
      child.once('error', (e) => gone(`the fork server did not start: ${e.message}`))
    })
    child.stdin?.on('error', () => {})
    listener.on('connection', (s) => this.#accept(s))
  }

  /** @throws SandboxError with the server's own last words when it does not become ready */
  static async start(runtime: Runtime, slots: number): Promise<ForkServer> {
    const path = join(runtime.dir, `s${randomBytes(4).toString('hex')}`)
    const listener = createServer()
    await new Promise<void>((resolve, reject) => {
      listener.once('error', reject)
      listener.listen(path, resolve)
    })
    chmodSync(path, 0o600)
    const group = runtime.cgroup()
    const options = { privileged: runtime.privileged, socket: path, modules: PRELOADED }
    const launch: Launch = {
      kind: 'fork-server',
      parent: process.pid,
      cgroups: group?.dirs ?? [],
      uid: null,
      privileged: runtime.privileged,
      argv: [`${VENV}/bin/python`, '-B', `${RUNNER}/fork_server.py`, JSON.stringify(options)],
      env: programEnv(1, BOX),
      stage: [],
      binds: rootBinds(runtime.python, runtime.runner),
      at: join(runtime.dir, 'root'),
      uids: runtime.privileged ? runtime.slotUids(slots) : [1000],
      publicDir: null,
      diskBytes: 0,
      shmBytes: 0,
    }
    const child = spawn(runtime.python.python, launcherArgv(runtime.runner, launch), {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { PATH: '/usr/bin:/bin' },
      detached: true,
    })
    const server = new ForkServer(runtime, child, listener, group, path)
    try {
      await server.#ready()
    } catch (e) {
      await server.close()
      throw e
    }
    return server
  }

  get alive(): boolean {
    return this.#gone === undefined
  }

  /** CPU seconds of the server itself so far, imports included; for the bench. */
  cpuS(): number {
    return this.#group?.stats().cpuS ?? cpuSecondsOf(this.#process.pid ?? 0)
  }

  #ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new SandboxError('the fork server was not ready within 180 s')),
        READY_CEILING_MS,
      )
      void this.#exited.then(() => {
        clearTimeout(timer)
        reject(new SandboxError(this.#gone ?? 'the fork server ended'))
      })
      let text = ''
      this.#process.stdout?.on('data', (b: Buffer) => {
        text += b.toString('utf8')
        const lines = text.split('\n')
        text = lines.pop() ?? ''
        for (const line of lines) {
          const [word, token = '', pid = ''] = line.split(' ')
          if (word === 'ready') {
            clearTimeout(timer)
            resolve()
          } else if (word === 'job') this.#waiting.get(token)?.forked(Number(pid))
        }
      })
    })
  }

  /** A guard introduces itself by the token that only the fork server was told. */
  #accept(socket: Socket): void {
    socket.on('error', () => {})
    let head = ''
    const first = (chunk: Buffer): void => {
      head += chunk.toString('latin1')
      if (head.length > TOKEN_BYTES * 2 + 1) socket.destroy()
      if (!head.endsWith('\n')) return
      socket.off('data', first)
      socket.pause()
      const waiting = this.#waiting.get(head.trim())
      if (waiting) waiting.connected(socket)
      else socket.destroy()
    }
    socket.on('data', first)
  }

  place(slot: number, cgroups: readonly string[]): JobPlace {
    return {
      box: BOX,
      input: INPUT,
      namespaced: true,
      uid: this.#runtime.privileged ? this.#runtime.slotUid(slot) : null,
      landlock: null,
      confined: true,
      soft: !this.#runtime.hasCgroups,
      cgroups,
      otherProcesses: 0,
    }
  }

  /** @throws SandboxError when the fork server gives no process for the job */
  async run(job: Job, limits: Limits, group: Cgroup | undefined, signal: AbortSignal): Promise<Supervised> {
    if (this.#gone !== undefined) throw new SandboxError(this.#gone, { retryable: true })
    const token = randomBytes(TOKEN_BYTES).toString('hex')
    let socket: Socket | undefined
    const both = Promise.all([
      new Promise<Socket>((connected) => {
        this.#waiting.set(token, { connected, forked: () => {} })
      }),
      new Promise<number>((forked) => {
        const w = this.#waiting.get(token)!
        this.#waiting.set(token, {
          connected: (s) => {
            socket = s
            w.connected(s)
          },
          forked,
        })
      }),
    ])
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new SandboxError('the fork server did not answer within 60 s')),
        ANSWER_CEILING_MS,
      )
    })
    const gone = this.#exited.then(() => {
      throw new SandboxError(this.#gone ?? 'the fork server ended', { retryable: true })
    })
    gone.catch(() => {}) // after the race nobody else listens
    try {
      this.#process.stdin?.write(`${token}\n`)
      const [channel, pid] = await Promise.race([both, late, gone])
      const meter: Meter = group
        ? new CgroupMeter(group)
        : new TreeMeter(pid, {
            memoryBytes: limits.memoryMb * (1 << 20),
            sharedBytes: residentBytes(this.#process.pid ?? 0),
          })
      const trouble = (): string => this.#gone ?? this.#stderr
      return await supervise(
        { channel, job, limits, meter, trouble, soft: group === undefined, guardExposed: false },
        signal,
      )
    } catch (e) {
      socket?.destroy()
      throw e
    } finally {
      clearTimeout(timer)
      this.#waiting.delete(token)
    }
  }

  async close(): Promise<void> {
    this.#process.stdin?.end()
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), 5_000)
    await this.#exited
    clearTimeout(timer)
    await new Promise<void>((resolve) => this.#listener.close(() => resolve()))
    rmSync(this.#socketPath, { force: true })
    this.#group?.kill()
    await this.#group?.remove()
  }
}
