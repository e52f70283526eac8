import { randomUUID } from 'node:crypto'
import type { Clock } from '../../core/index.ts'
import { type Failure, TinkerError } from './failure.ts'
import { type Reading, type Reply, readAnswer } from './reading.ts'

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

/** A request with its bytes, so that sending it again sends the same. */
export interface WireRequest {
  /** Words for errors: `forward_backward 3 of model_1`. */
  readonly what: string
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Below `<base>/api/v1`. */
  readonly path: string
  readonly body?: Uint8Array
  readonly contentType?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Whether a second copy of it does no harm (or is recognised). */
  readonly repeatable: boolean
}

/** Ceilings of waits, in milliseconds. */
export interface Ceilings {
  /** One exchange, headers and body together. */
  readonly exchange: number
  /** One long poll; reaching it is normal. */
  readonly poll: number
  readonly heartbeat: number
  /** All tries of a submission together. */
  readonly submission: number
  /** A server that answers nothing at all. */
  readonly outage: number
  /** A billing pause. */
  readonly billing: number
  /** A future from submission to result. */
  readonly future: number
}
export const CEILINGS: Ceilings = {
  exchange: 60_000,
  poll: 45_000,
  heartbeat: 10_000,
  submission: 300_000,
  outage: 300_000,
  billing: 3_600_000,
  future: 7_200_000,
}

export interface TransportOptions {
  readonly baseUrl: string
  /** Value of X-API-Key at each call. */
  readonly key: (signal: AbortSignal) => Promise<string | undefined>
  readonly fetch: Fetch
  readonly clock: Clock
  readonly ceilings: Ceilings
  /** Uniform in [0,1), for the jitter of back-off. */
  readonly random: () => number
}

/** Faults of the socket before the request can have been read. */
const NEVER_SENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT'])

export class Transport {
  constructor(readonly o: TransportOptions) {}

  get clock(): Clock {
    return this.o.clock
  }

  /**
   * One request and its whole answer. The deadline covers the body too: a stalled body would outlive one on the headers.
   * @throws TinkerError of kind `timeout` or `unreachable`; the latter's `sent` tells whether it can have been read.
   */
  async exchange(
    r: WireRequest,
    ceiling: number,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Reply> {
    signal.throwIfAborted()
    const deadline = new AbortController()
    const timer = new AbortController()
    const late = new TinkerError(r.what, { kind: 'timeout', detail: `no whole answer within ${ceiling / 1000} s` })
    this.clock.sleep(ceiling, timer.signal).then(
      () => deadline.abort(late),
      () => undefined,
    )
    const both = AbortSignal.any([signal, deadline.signal])
    try {
      const key = await this.o.key(both)
      const answer = await orAborted(
        this.o.fetch(`${this.o.baseUrl}/api/v1${r.path}`, {
          method: r.method,
          headers: {
            ...(key === undefined ? {} : { 'X-API-Key': key }),
            ...(r.body ? { 'Content-Type': r.contentType ?? 'application/json' } : {}),
            ...r.headers,
            ...headers,
          },
          ...(r.body ? { body: r.body as Uint8Array<ArrayBuffer> } : {}),
          signal: both,
          redirect: 'manual',
        }),
        both,
      )
      const body = new Uint8Array(await orAborted(answer.arrayBuffer(), both))
      return {
        status: answer.status,
        contentType: answer.headers.get('content-type') ?? '',
        headers: answer.headers,
        body,
      }
    } catch (cause) {
      if (signal.aborted) throw signal.reason
      if (deadline.signal.aborted) throw late
      if (cause instanceof TinkerError) throw cause
      throw new NotReached(r.what, cause)
    } finally {
      timer.abort()
    }
  }

  /**
   * Sends until the server answers for good. The same bytes and idempotency key go out each time; one that may have been
   * executed and must not be doubled ends as `ambiguous` instead.
   */
  async send(
    r: WireRequest,
    signal: AbortSignal,
    headers: Record<string, string> = {},
  ): Promise<Reading & { is: 'done' }> {
    const start = this.clock.now()
    const key = randomUUID()
    let billing: number | undefined
    let glitches = 0
    for (let attempt = 0; ; attempt++) {
      const reading = await this.try(r, attempt, key, headers, signal)
      if (reading.is === 'done') return reading
      if (reading.is === 'pending')
        throw new TinkerError(r.what, { kind: 'unreadable', detail: 'an unfinished answer' })
      if (reading.is === 'failed') throw new TinkerError(r.what, reading.failure, { tries: attempt + 1 })
      const now = this.clock.now()
      if (reading.why === 'billing') {
        billing ??= now
        if (now - billing > this.o.ceilings.billing) throw new TinkerError(r.what, reading.failure)
        await this.clock.sleep(reading.afterMs ?? 5_000, signal)
        continue
      }
      if (reading.executed && !r.repeatable)
        throw new TinkerError(r.what, {
          kind: 'ambiguous',
          detail: `${reading.failure.detail}; it may have been executed, and this server would execute it twice`,
        })
      if (reading.why === 'glitch' && ++glitches > 3) throw new TinkerError(r.what, reading.failure)
      const wait = reading.afterMs ?? this.backOff(attempt)
      if (now + wait - start > this.o.ceilings.submission + (billing === undefined ? 0 : this.o.ceilings.billing))
        throw new TinkerError(r.what, {
          ...reading.failure,
          detail: `${reading.failure.detail}; gave up after ${attempt + 1} tries in ${((now - start) / 1000).toFixed(0)} s${reading.afterMs === undefined ? '' : `, the server asks to wait ${wait / 1000} s`}`,
        } as Failure)
      await this.clock.sleep(wait, signal)
    }
  }

  private async try(
    r: WireRequest,
    attempt: number,
    key: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Reading> {
    try {
      const reply = await this.exchange(
        r,
        this.o.ceilings.exchange,
        {
          ...headers,
          ...(r.method === 'POST' ? { 'X-Idempotency-Key': key } : {}),
          'x-stainless-retry-count': String(attempt),
        },
        signal,
      )
      return readAnswer(reply, Date.now())
    } catch (e) {
      if (!(e instanceof TinkerError) || (e.failure.kind !== 'timeout' && e.failure.kind !== 'unreachable')) throw e
      const executed = !(e instanceof NotReached) || e.sent
      return { is: 'again', why: 'unavailable', failure: e.failure, afterMs: undefined, executed }
    }
  }

  /** 0.5 s doubling to 10 s, less up to a quarter by chance. */
  backOff(attempt: number): number {
    return Math.min(10_000, 500 * 2 ** Math.min(attempt, 10)) * (1 - 0.25 * this.o.random())
  }
}

/** The exchange broke; `sent` is false where the server cannot have seen the request. */
export class NotReached extends TinkerError {
  readonly sent: boolean
  constructor(what: string, cause: unknown) {
    const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
    const code = (inner as { code?: unknown } | undefined)?.code
    const detail = inner instanceof Error ? inner.message : String(inner)
    super(what, { kind: 'unreachable', detail: `the connection failed (${detail || String(code)})` }, { cause })
    this.sent = !(typeof code === 'string' && NEVER_SENT.has(code))
  }
}

/** Gives up on a promise whose maker does not listen to the signal. */
function orAborted<T>(p: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason)
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    p.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
