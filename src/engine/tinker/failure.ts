import { EngineError } from '../../core/index.ts'

/** Everything that can end a call, whatever encoding the server chose for it. */
export type Failure =
  /** This client refused to send it: a server would have computed nonsense without a word. */
  | { readonly kind: 'refused'; readonly detail: string }
  /** The server refused the request; `issues` are its field errors, if it named any. */
  | {
      readonly kind: 'invalid'
      readonly status: number
      readonly detail: string
      readonly issues: readonly { readonly at: string; readonly message: string }[]
    }
  | { readonly kind: 'unauthorised'; readonly status: number; readonly detail: string }
  /** No such model, session, sampler, checkpoint or endpoint. */
  | { readonly kind: 'not-found'; readonly detail: string }
  /** A sequence number was used before with another body: two writers, or numbers that were not persisted. */
  | { readonly kind: 'sequence-reused'; readonly detail: string }
  /** A checkpoint of this name is there already. */
  | { readonly kind: 'exists'; readonly detail: string }
  /** The work itself failed. Never retried when it is the user's fault; unknown where the server does not say whose it is. */
  | { readonly kind: 'failed'; readonly category: 'user' | 'server' | 'unknown'; readonly detail: string }
  /** The model was unloaded: its session expired, or somebody unloaded it. Weights since the last save are gone. */
  | { readonly kind: 'model-lost'; readonly detail: string }
  /** The server does not know the future: it was restarted. */
  | { readonly kind: 'future-unknown'; readonly detail: string }
  /** The result is no longer kept. */
  | { readonly kind: 'future-expired'; readonly detail: string }
  /** A server that hands out each result once has handed it out; the reply was lost. The work was done. */
  | { readonly kind: 'future-taken'; readonly detail: string }
  /** A number that must be finite is not. */
  | { readonly kind: 'not-finite'; readonly detail: string }
  /** The server cannot encode this result, for ever (SkyRL does this where a result holds NaN). */
  | { readonly kind: 'broken-result'; readonly status: number; readonly detail: string }
  /** The request may or may not have been executed, and the server would not recognise it a second time. */
  | { readonly kind: 'ambiguous'; readonly detail: string }
  | { readonly kind: 'billing'; readonly detail: string }
  | { readonly kind: 'unreachable'; readonly detail: string }
  | { readonly kind: 'unavailable'; readonly status: number; readonly detail: string }
  /** A wait reached its ceiling. */
  | { readonly kind: 'timeout'; readonly detail: string }
  /** A reply that is no answer of this protocol. */
  | { readonly kind: 'unreadable'; readonly detail: string }

/** `error.failure.kind` says what happened. */
export class TinkerError extends EngineError {
  /** How often the request went out before this answer. */
  readonly tries: number
  constructor(
    readonly what: string,
    readonly failure: Failure,
    opts: { cause?: unknown; tries?: number } = {},
  ) {
    super(`${what}: ${failure.detail}`, { retryable: RETRYABLE.has(failure.kind), ...opts })
    this.tries = opts.tries ?? 1
  }
}
const RETRYABLE: ReadonlySet<Failure['kind']> = new Set([
  'unreachable',
  'unavailable',
  'timeout',
  'billing',
  'unreadable',
])

export function isFailure<K extends Failure['kind']>(
  e: unknown,
  ...kinds: readonly K[]
): e is TinkerError & { failure: Extract<Failure, { kind: K }> } {
  return e instanceof TinkerError && (kinds as readonly string[]).includes(e.failure.kind)
}
