import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Stage } from './hostile.ts'

/** The host side of the hostile suite: answers to steal, listeners to reach, a process to kill. */
export class HostStage implements AsyncDisposable {
  readonly dir: string
  readonly publicDir: string
  readonly stage: Stage
  /** Connections that came in; any is an escape. */
  hits = 0
  readonly #servers: Server[] = []
  readonly #victim: ChildProcess

  private constructor(dir: string, port: number, victim: ChildProcess) {
    this.dir = dir
    this.publicDir = join(dir, 'public')
    this.#victim = victim
    this.stage = {
      port,
      abstractName: `wmrl-abs-${port}`,
      socketPath: join(dir, 'open/sock'),
      openAnswers: join(dir, 'open/answers.csv'),
      closedAnswers: join(dir, 'private/answers.csv'),
      victim: victim.pid ?? 0,
      supervisor: process.pid,
    }
  }

  static async open(): Promise<HostStage> {
    const dir = mkdtempSync(join(tmpdir(), 'hostile-'))
    chmodSync(dir, 0o755)
    for (const [d, mode] of [
      ['private', 0o700],
      ['open', 0o755],
      ['public', 0o755],
    ] as const) {
      mkdirSync(join(dir, d))
      chmodSync(join(dir, d), mode)
    }
    for (const f of ['private/answers.csv', 'open/answers.csv']) writeFileSync(join(dir, f), 'id,y\n1,SECRETANSWER\n')
    chmodSync(join(dir, 'private/answers.csv'), 0o600)
    chmodSync(join(dir, 'open/answers.csv'), 0o644)
    writeFileSync(join(dir, 'public/train.csv'), 'a,b\n1,2\n')
    chmodSync(join(dir, 'public/train.csv'), 0o644)
    const victim = spawn('sleep', ['600'], {
      env: { PATH: '/usr/bin:/bin', HOST_SECRET: 'SECRETENV' },
      stdio: 'ignore',
    })
    const tcp = createServer()
    await new Promise<void>((r) => tcp.listen(0, '127.0.0.1', r))
    const { port } = tcp.address() as { port: number }
    const host = new HostStage(dir, port, victim)
    for (const [server, at] of [
      [tcp, undefined],
      [createServer(), `\0${host.stage.abstractName}`],
      [createServer(), host.stage.socketPath],
    ] as const) {
      server.on('connection', (s) => {
        host.hits += 1
        s.destroy()
      })
      if (at !== undefined) await new Promise<void>((r) => server.listen(at, r))
      host.#servers.push(server)
    }
    chmodSync(host.stage.socketPath, 0o777)
    return host
  }

  victimLives(): boolean {
    return this.#victim.exitCode === null && this.#victim.signalCode === null
  }

  /** Content, mode and time of the public files, and names beside them. */
  fingerprint(): string {
    const f = join(this.publicDir, 'train.csv')
    const st = statSync(f)
    const names = execFileSync('ls', ['-la', '--full-time', this.publicDir], { encoding: 'utf8' })
    return createHash('sha256').update(readFileSync(f)).update(`${st.mode} ${st.mtimeMs} ${names}`).digest('hex')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#victim.kill('SIGKILL')
    for (const s of this.#servers) await new Promise<void>((r) => s.close(() => r()))
    execFileSync('rm', ['-rf', this.dir])
  }
}

/** SysV segments and semaphores of the hostile suite that are left on the host. */
export function leftSysvIpc(): boolean {
  return ['shm', 'sem'].some((kind) => {
    try {
      return readFileSync(`/proc/sysvipc/${kind}`, 'utf8').includes(String(0x5eed77))
    } catch {
      return false
    }
  })
}
