import { type Command, CommanderError, InvalidArgumentError } from 'commander'
import { ConfigError, isWmrlError, MissingError, messageOf, ScoreError } from '../core/index.ts'

/** Exit codes of cli.md. */
export const EXIT = { ok: 0, failed: 1, usage: 2, missing: 3, interrupted: 130 } as const

/** What every command is given: where to write, and the signal of Ctrl-C. */
export interface Out {
  readonly json: boolean
  readonly quiet: boolean
  readonly color: boolean
  /** One JSON document for machines on stdout, `text` for people. Called once, at the end. */
  result(document: unknown, text: () => string): void
  /** A line of log for people; on stderr, so that stdout stays one document. */
  log(line: string): void
  /** Live progress: rewrites its line on a terminal, now and then a plain line otherwise. */
  progress(line: string, opts?: { last?: boolean }): void
}

export interface CommandContext {
  readonly out: Out
  readonly signal: AbortSignal
}

/** Thrown by a command that did its work and found it wanting: prints nothing more, exit code 1. */
export class Failed extends Error {}
/** Thrown after Ctrl-C, once state is saved. */
export class Interrupted extends Error {}

const PLAIN_EVERY_MS = 5_000

export function makeOut(opts: { json?: boolean; quiet?: boolean; color?: boolean }): Out {
  const tty = process.stderr.isTTY === true
  let last = 0
  let open = false
  const end = (): void => {
    if (open) process.stderr.write('\n')
    open = false
  }
  return {
    json: opts.json === true,
    quiet: opts.quiet === true,
    color: opts.color !== false && tty && process.env.NO_COLOR === undefined,
    result(document, text) {
      end()
      process.stdout.write(
        opts.json ? `${JSON.stringify(document, null, 1)}\n` : opts.quiet ? '' : `${text().trimEnd()}\n`,
      )
    },
    log(line) {
      if (opts.quiet) return
      end()
      process.stderr.write(`${line}\n`)
    },
    progress(line, p = {}) {
      if (opts.quiet) return
      if (tty) {
        process.stderr.write(`\r\u001b[2K${line.slice(0, (process.stderr.columns ?? 120) - 1)}`)
        open = true
        if (p.last) end()
        return
      }
      const now = Date.now()
      if (!p.last && now - last < PLAIN_EVERY_MS) return
      last = now
      process.stderr.write(`${line}\n`)
    },
  }
}

/**
 * `3 of 36 tasks, 0.2/s, 165 s left`; `started` is when the first of them began, in milliseconds. `known` of those that are
 * done took no time, as their results were there already: rate and time left are of the others, and nothing is said before one
 * of these is done.
 */
export function pace(started: number, done: number, of: number, unit: string, known = 0): string {
  const worked = done - known
  const perS = worked / Math.max(1e-3, (Date.now() - started) / 1000)
  const rate = perS >= 0.1 ? `${perS.toFixed(1)}/s` : `${(1 / perS).toFixed(0)} s each`
  const estimate = worked <= 0 ? '' : `, ${rate}, ${Math.ceil((of - done) / perS)} s left`
  return `${done} of ${of} ${unit}${known > 0 ? `, ${known} known` : ''}${estimate}`
}

/** Reads an option that counts something. */
export function countOf(value: string): number {
  const x = Number(value)
  if (Number.isSafeInteger(x) && x > 0) return x
  throw new InvalidArgumentError('a whole number above 0 is needed')
}

/** Wraps a command's body: options, one-line errors, exit codes. */
export function run<A extends unknown[]>(
  body: (ctx: CommandContext, ...args: A) => Promise<void>,
): (...args: [...A, Command]) => Promise<void> {
  return async (...all) => {
    const command = all[all.length - 1] as Command
    const args = all.slice(0, -1) as unknown as A
    const globals = command.optsWithGlobals() as { json?: boolean; quiet?: boolean; color?: boolean }
    const abort = new AbortController()
    let presses = 0
    const onSignal = (): void => {
      if (++presses > 1) process.exit(EXIT.interrupted)
      abort.abort(new Interrupted('interrupted'))
    }
    process.on('SIGINT', onSignal)
    process.on('SIGTERM', onSignal)
    try {
      await body({ out: makeOut(globals), signal: abort.signal }, ...args)
      if (abort.signal.aborted) process.exitCode = EXIT.interrupted
    } catch (e) {
      process.exitCode = report(e, abort.signal.aborted)
    } finally {
      process.off('SIGINT', onSignal)
      process.off('SIGTERM', onSignal)
    }
  }
}

/** Prints one line for an error and says which exit code it is. */
export function report(e: unknown, interrupted = false): number {
  if (e instanceof CommanderError) return e.exitCode === 0 ? EXIT.ok : EXIT.usage
  if (e instanceof Failed) {
    if (e.message) process.stderr.write(`wmrl: ${e.message}\n`)
    return EXIT.failed
  }
  if (e instanceof Interrupted || interrupted) {
    process.stderr.write(
      `wmrl: interrupted${e instanceof Interrupted && e.message !== 'interrupted' ? `: ${e.message}` : ''}\n`,
    )
    return EXIT.interrupted
  }
  const known = isWmrlError(e) || e instanceof ScoreError
  process.stderr.write(`wmrl: ${messageOf(e)}\n`)
  if (!known && process.env.WMRL_DEBUG) process.stderr.write(`${e instanceof Error ? e.stack : ''}\n`)
  return e instanceof ConfigError ? EXIT.usage : e instanceof MissingError ? EXIT.missing : EXIT.failed
}
