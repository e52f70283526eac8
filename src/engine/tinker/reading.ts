import type { Failure } from './failure.ts'

/** One HTTP answer, whole. */
export interface Reply {
  readonly status: number
  readonly contentType: string
  readonly headers: { get(name: string): string | null }
  readonly body: Uint8Array
}

/** What an answer means for the call that waits for it. */
export type Reading =
  | { readonly is: 'done'; readonly reply: Reply; readonly json: unknown }
  /** Not ready; ask again. `queue` where the server says why. */
  | { readonly is: 'pending'; readonly queue?: string }
  /** Try the same thing again. `executed` is false where the server certainly did not do it. */
  | {
      readonly is: 'again'
      readonly why: 'billing' | 'glitch' | 'internal' | 'unavailable' | 'unreadable'
      readonly failure: Failure
      readonly afterMs: number | undefined
      readonly executed: boolean
    }
  | { readonly is: 'failed'; readonly failure: Failure }

const text = (r: Reply): string => Buffer.from(r.body).toString('utf8')
const isJson = (r: Reply): boolean => /^application\/([\w.+-]*\+)?json/.test(r.contentType)
export const isProtobuf = (r: Reply): boolean => r.contentType.startsWith('application/x-protobuf')

function parse(r: Reply): unknown {
  try {
    return JSON.parse(text(r))
  } catch {
    return undefined
  }
}

/** Seconds or a date (RFC 9110, 10.2.3), in milliseconds from now. */
function retryAfter(r: Reply, nowMs: number): number | undefined {
  const ms = r.headers.get('retry-after-ms')
  if (ms !== null && Number.isFinite(Number(ms))) return Math.max(0, Number(ms))
  const v = r.headers.get('retry-after')
  if (v === null) return undefined
  if (Number.isFinite(Number(v))) return Math.max(0, Number(v) * 1000)
  const date = Date.parse(v)
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs)
}

interface Issue {
  readonly at: string
  readonly message: string
}

/** The words of an error in any of its encodings: {detail: string}, {detail: [...]}, {error}, {error_message}, plain text. */
function describe(r: Reply, json: unknown): { detail: string; issues: Issue[] } {
  const issues: Issue[] = []
  if (json && typeof json === 'object') {
    const o = json as Record<string, unknown>
    if (Array.isArray(o.detail)) {
      for (const d of o.detail as { loc?: unknown[]; msg?: unknown }[]) {
        issues.push({
          at: (d?.loc ?? []).filter((l) => l !== 'body').join('.'),
          message: String(d?.msg ?? JSON.stringify(d)),
        })
      }
      const shown = issues.slice(0, 3).map((i) => (i.at ? `${i.at}: ${i.message}` : i.message))
      return { detail: shown.join('; ') || `HTTP ${r.status}`, issues }
    }
    for (const k of ['detail', 'error_message', 'error', 'message']) {
      const v = o[k]
      if (typeof v === 'string' && v !== '') return { detail: v, issues }
      if (v && typeof v === 'object' && typeof (v as { message?: unknown }).message === 'string')
        return { detail: (v as { message: string }).message, issues }
    }
  }
  const plain = text(r).slice(0, 300).trim()
  return { detail: plain === '' ? `HTTP ${r.status} without a body` : `HTTP ${r.status}: ${plain}`, issues }
}

const modelLost = (detail: string): boolean => /model \S+ (is )?not loaded/i.test(detail)

/** Reads the answer to a request that is not a poll. */
export function readAnswer(r: Reply, nowMs: number): Reading {
  if (r.status >= 200 && r.status < 300) {
    if (!isJson(r) && r.body.length > 0 && !isProtobuf(r) && r.contentType !== '')
      return again('unreadable', { kind: 'unreadable', detail: `an answer of type ${r.contentType}` }, undefined, true)
    const json = r.body.length === 0 || isProtobuf(r) ? null : parse(r)
    if (json === undefined)
      return again('unreadable', { kind: 'unreadable', detail: 'an answer that is no JSON' }, undefined, true)
    return { is: 'done', reply: r, json }
  }
  return readRefusal(r, nowMs) ?? readFault(r, nowMs)
}

/** Reads the answer to a poll of a future. */
export function readPoll(r: Reply, nowMs: number): Reading {
  const json = isJson(r) ? parse(r) : undefined
  if (r.status === 408) return { is: 'pending' }
  if (r.status === 404)
    return {
      is: 'failed',
      failure: { kind: 'future-unknown', detail: `${describe(r, json).detail} (was it restarted?)` },
    }
  if (r.status === 410) return { is: 'failed', failure: { kind: 'future-expired', detail: describe(r, json).detail } }
  if (r.status >= 200 && r.status < 300) {
    if (isProtobuf(r)) return { is: 'done', reply: r, json: undefined }
    if (json === undefined || json === null || typeof json !== 'object')
      return again('unreadable', { kind: 'unreadable', detail: 'a result that is no JSON' }, undefined, true)
    const o = json as Record<string, unknown>
    if (o.type === 'try_again') {
      const queue = [o.queue_state, o.queue_state_reason].filter((v) => typeof v === 'string').join(': ')
      return queue === '' || queue === 'active' ? { is: 'pending' } : { is: 'pending', queue }
    }
    if (o.status === 'complete_metadata') return { is: 'pending' }
    if (o.type === 'RequestFailedResponse' || (o.error !== undefined && o.error !== null))
      return { is: 'failed', failure: failedFuture(describe(r, json).detail, o.category) }
    return { is: 'done', reply: r, json }
  }
  if ((r.status === 400 && r.body.length > 0) || r.status === 422) {
    const category = json && typeof json === 'object' ? (json as { category?: unknown }).category : undefined
    return { is: 'failed', failure: failedFuture(describe(r, json).detail, category) }
  }
  return readRefusal(r, nowMs) ?? readFault(r, nowMs)
}

function failedFuture(detail: string, category: unknown): Failure {
  if (/already retrieved/i.test(detail)) return { kind: 'future-taken', detail }
  if (modelLost(detail)) return { kind: 'model-lost', detail }
  return { kind: 'failed', category: category === 'user' || category === 'server' ? category : 'unknown', detail }
}

/** Answers that no repetition changes; undefined for the others. */
function readRefusal(r: Reply, nowMs: number): Reading | undefined {
  const json = parse(r)
  const { detail, issues } = describe(r, json)
  const should = r.headers.get('x-should-retry')
  if (should === 'true')
    return again(
      'unavailable',
      { kind: 'unavailable', status: r.status, detail },
      retryAfter(r, nowMs),
      r.status >= 500,
    )
  const failed = (failure: Failure): Reading => ({ is: 'failed', failure })
  switch (r.status) {
    case 400:
      if (r.body.length === 0) return undefined
      return failed(
        modelLost(detail) ? { kind: 'model-lost', detail } : { kind: 'invalid', status: 400, detail, issues },
      )
    case 401:
    case 403:
      return failed({ kind: 'unauthorised', status: r.status, detail })
    case 404:
      return failed({ kind: 'not-found', detail })
    case 409:
      if (/sequence/i.test(detail)) return failed({ kind: 'sequence-reused', detail })
      if (/exist/i.test(detail)) return failed({ kind: 'exists', detail })
      return should === 'false' ? failed({ kind: 'invalid', status: 409, detail, issues }) : undefined
    case 402:
    case 408:
    case 425:
    case 429:
      return should === 'false' ? failed({ kind: 'unavailable', status: r.status, detail }) : undefined
  }
  if (r.status < 500) return failed({ kind: 'invalid', status: r.status, detail, issues })
  return should === 'false' ? failed({ kind: 'unavailable', status: r.status, detail }) : undefined
}

function readFault(r: Reply, nowMs: number): Reading {
  const { detail } = describe(r, parse(r))
  const after = retryAfter(r, nowMs)
  if (r.status === 402) return again('billing', { kind: 'billing', detail }, after, false)
  if (r.status === 400) return again('glitch', { kind: 'unavailable', status: 400, detail }, after, true)
  const failure: Failure = { kind: 'unavailable', status: r.status, detail }
  if (r.status === 500) return again('internal', failure, after, true)
  return again('unavailable', failure, after, r.status !== 429 && r.status !== 425 && r.status !== 409)
}

function again(
  why: Extract<Reading, { is: 'again' }>['why'],
  failure: Failure,
  afterMs: number | undefined,
  executed: boolean,
): Reading {
  return { is: 'again', why, failure, afterMs, executed }
}
