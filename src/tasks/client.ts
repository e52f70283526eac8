import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

export interface ClientResult {
  readonly code: number | null
  readonly killedBy: NodeJS.Signals | null
  /** The last line of stderr that says anything. */
  readonly lastError: string
}

export interface ClientOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  readonly signal: AbortSignal
  /** Longest that the program may take, in milliseconds. */
  readonly ceilingMs: number
  /** Called for each line of stdout; a rejection ends the program. */
  readonly onLine?: (line: string) => Promise<void>
}

/** A program of this machine (pip, npm, apt-get, Python) that could not be started at all. */
export class NotInstalled extends Error {
  constructor(readonly program: string) {
    super(`${program} is not installed`)
  }
}

/**
 * Runs one of this machine's own programs to its end. An abort kills it and throws the signal's reason.
 * @throws NotInstalled when there is no such program
 */
export async function runClient(program: string, args: readonly string[], o: ClientOptions): Promise<ClientResult> {
  o.signal.throwIfAborted()
  const child: ChildProcess = spawn(program, args, {
    ...(o.cwd === undefined ? {} : { cwd: o.cwd }),
    env: o.env ?? process.env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let lastError = ''
  let broken: unknown
  const stop = (): void => {
    child.kill('SIGTERM')
    setTimeout(() => child.kill('SIGKILL'), 5_000).unref()
  }
  const ceiling = setTimeout(() => {
    broken = new Error(`${program} took longer than ${Math.round(o.ceilingMs / 60_000)} minutes`)
    stop()
  }, o.ceilingMs)
  o.signal.addEventListener('abort', stop, { once: true })
  createInterface({ input: child.stderr! }).on('line', (l) => {
    if (l.trim() !== '') lastError = l.trim()
  })
  let lines = Promise.resolve()
  createInterface({ input: child.stdout! }).on('line', (l) => {
    lines = lines
      .then(() => o.onLine?.(l))
      .catch((e) => {
        broken ??= e
        stop()
      })
  })
  try {
    const [code, killedBy] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
      child.once('error', (e: NodeJS.ErrnoException) => reject(e.code === 'ENOENT' ? new NotInstalled(program) : e))
      child.once('close', (c, s) => resolve([c, s]))
    })
    await lines
    o.signal.throwIfAborted()
    if (broken !== undefined) throw broken
    return { code, killedBy, lastError }
  } finally {
    clearTimeout(ceiling)
    o.signal.removeEventListener('abort', stop)
  }
}
