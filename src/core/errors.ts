const marker = Symbol.for('wmrl.error')

/** Base of every error that this system raises on purpose; subclasses are named after the boundary crossed. */
export abstract class WmrlError extends Error {
  readonly [marker] = true
  /** Whether trying the same thing again, unchanged, can help. */
  readonly retryable: boolean
  constructor(message: string, opts: { retryable?: boolean; cause?: unknown } = {}) {
    super(message, opts.cause === undefined ? undefined : { cause: opts.cause })
    this.name = new.target.name
    this.retryable = opts.retryable ?? false
  }
}

/** What the operator wrote is wrong. `path` is the key or flag; `fix` what to write instead. Exit code 2. */
export class ConfigError extends WmrlError {
  constructor(
    readonly path: string,
    message: string,
    readonly fix?: string,
    opts: { cause?: unknown } = {},
  ) {
    super(`${path}: ${message}${fix ? `; ${fix}` : ''}`, opts)
  }
}

/** Something that this machine lacks. Exit code 3. */
export class MissingError extends WmrlError {
  constructor(
    readonly what: string,
    readonly fix: string,
    opts: { cause?: unknown } = {},
  ) {
    super(`${what}; ${fix}`, opts)
  }
}

export class EngineError extends WmrlError {}
export class SandboxError extends WmrlError {}
export class GraderError extends WmrlError {}
export class TaskError extends WmrlError {}
export class LedgerError extends WmrlError {}

export function isWmrlError(e: unknown): e is WmrlError {
  return typeof e === 'object' && e !== null && (e as Record<symbol, unknown>)[marker] === true
}

/** One line of text for any thrown value. */
export function messageOf(e: unknown): string {
  const text = e instanceof Error ? e.message : String(e)
  return text.split('\n')[0] ?? text
}

/**
 * Runs `fn`; whatever it throws that is not ours yet leaves as `Kind`, with `what` in front and the original as cause.
 * @example await boundary(TaskError, 'reading train.csv', () => readFile(path))
 */
export async function boundary<T>(
  Kind: new (message: string, opts: { retryable?: boolean; cause?: unknown }) => WmrlError,
  what: string,
  fn: () => Promise<T> | T,
): Promise<T> {
  try {
    return await fn()
  } catch (cause) {
    if (isWmrlError(cause)) throw cause
    throw new Kind(`${what}: ${messageOf(cause)}`, { cause })
  }
}
