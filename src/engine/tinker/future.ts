import { isFailure, TinkerError } from './failure.ts'
import { type Reading, type Reply, readPoll } from './reading.ts'
import type { Transport, WireRequest } from './transport.ts'

/** What the server does for this future; sent along with every poll. */
export type FutureType =
  | 'ForwardBackward'
  | 'Forward'
  | 'OptimStep'
  | 'Sample'
  | 'SaveWeights'
  | 'SaveWeightsForSampler'
  | 'LoadWeights'
  | 'CreateModel'
  | 'UnloadModel'

export interface FutureCall<T> {
  readonly what: string
  readonly type: FutureType
  /** Sends the original request (again) and gives the future's id. */
  submit(): Promise<string>
  /** Whether sending the original again is harmless, should the server have forgotten the result. */
  readonly repeatable: boolean
  /** @throws RangeError or ZodError where the result is none. */
  read(reply: Reply, json: unknown): T
  /** Called when the server says why it waits. */
  readonly onQueue?: (why: string) => void
}

/** Tries at one future that answers 500 or nonsense: the first reply may have been damaged on its way, the third was not. */
const SPOILT = 3

/** Polls until the result is there, has failed for good, or its ceiling is reached. */
export async function retrieve<T>(t: Transport, id: string, call: FutureCall<T>, signal: AbortSignal): Promise<T> {
  const start = t.clock.now()
  let requestId = id
  let resubmitted = 0
  let spoilt = 0
  let billing: number | undefined
  let outage: number | undefined
  let faults = 0
  for (let n = 0; ; n++) {
    const before = t.clock.now()
    if (before - start > t.o.ceilings.future)
      throw new TinkerError(call.what, {
        kind: 'timeout',
        detail: `no result of future ${requestId} within ${(t.o.ceilings.future / 60_000).toFixed(0)} minutes`,
      })
    const reading = await poll(t, requestId, call, n, signal)
    const now = t.clock.now()
    if (reading.is !== 'again') outage = undefined
    switch (reading.is) {
      case 'pending':
        faults = 0
        if (reading.queue) call.onQueue?.(reading.queue)
        // It was a long poll; a server that answers at once must not be hammered.
        if (now - before < 200) await t.clock.sleep(200, signal)
        continue
      case 'done': {
        try {
          return call.read(reading.reply, reading.json)
        } catch (cause) {
          if (cause instanceof TinkerError) throw cause
          if (++spoilt < SPOILT) continue
          throw new TinkerError(
            call.what,
            { kind: 'unreadable', detail: `a result that is none (${cause instanceof Error ? cause.message : cause})` },
            { cause },
          )
        }
      }
      case 'failed':
        if (reading.failure.kind === 'future-expired' && call.repeatable && resubmitted < 3) {
          resubmitted++
          requestId = await call.submit()
          continue
        }
        throw new TinkerError(call.what, reading.failure)
      case 'again': {
        if (reading.why === 'billing') {
          billing ??= now
          if (now - billing > t.o.ceilings.billing) throw new TinkerError(call.what, reading.failure)
          await t.clock.sleep(reading.afterMs ?? 5_000, signal)
          continue
        }
        if (
          (reading.why === 'internal' || reading.why === 'unreadable' || reading.why === 'glitch') &&
          ++spoilt >= SPOILT
        ) {
          const status = 'status' in reading.failure ? reading.failure.status : 200
          throw new TinkerError(
            call.what,
            reading.why === 'internal'
              ? {
                  kind: 'broken-result',
                  status,
                  detail: `the server cannot deliver the result (${reading.failure.detail}); it may hold a NaN`,
                }
              : reading.failure,
          )
        }
        outage ??= before
        if (now - outage > t.o.ceilings.outage) throw new TinkerError(call.what, reading.failure)
        await t.clock.sleep(reading.afterMs ?? Math.min(30_000, 1_000 * 2 ** Math.min(faults++, 5)), signal)
      }
    }
  }
}

async function poll(
  t: Transport,
  requestId: string,
  call: { readonly what: string; readonly type: FutureType },
  iteration: number,
  signal: AbortSignal,
): Promise<Reading> {
  const request: WireRequest = {
    what: call.what,
    method: 'POST',
    path: '/retrieve_future',
    body: Buffer.from(JSON.stringify({ request_id: requestId, allow_metadata_only: false })),
    headers: {
      Accept: 'application/x-protobuf, application/json',
      'X-Tinker-Request-Iteration': String(iteration),
      'X-Tinker-Request-Type': call.type,
    },
    repeatable: true,
  }
  try {
    return readPoll(await t.exchange(request, t.o.ceilings.poll, {}, signal), Date.now())
  } catch (e) {
    // Abandoned long polls are normal: the server keeps the result.
    if (isFailure(e, 'timeout')) return { is: 'pending' }
    if (isFailure(e, 'unreachable'))
      return { is: 'again', why: 'unavailable', failure: e.failure, afterMs: undefined, executed: true }
    throw e
  }
}
