import {
  type Attempt,
  type ContentKey,
  contentHash,
  contentKey,
  messageOf,
  NO_COST,
  type Verdict,
  type VerdictStore,
} from '../core/index.ts'
import type { Judge } from './judge.ts'

/**
 * Paid work is never lost (invariant 4): an executed verdict is committed before anybody sees it, and found again by
 * attempt and scope, so that a killed run resumes without paying twice. Unscorable verdicts are not kept: they may be
 * retried.
 */
export function storedJudge(inner: Judge, store: VerdictStore): Judge {
  // The program is part of the key: an engine on a server may sample another one for the same attempt after a resume.
  const key = (a: Attempt): ContentKey =>
    contentKey(`${inner.source}/${a.id}/${a.scope}/${a.action.code === undefined ? '-' : contentHash(a.action.code)}`)
  return {
    source: inner.source,
    scope: inner.scope,
    judge(attempts, signal) {
      const found = Promise.all(attempts.map((a) => store.find(key(a))))
      const asked = found.then((known) => {
        const missing = attempts.filter((_, i) => known[i] === undefined)
        const verdicts = inner.judge(missing, signal)
        let k = 0
        return attempts.map(async (a, i): Promise<Verdict> => {
          const old = known[i]
          if (old) return old
          const v = await verdicts[k++]!
          if (!('unscorable' in v)) await store.commit(key(a), v)
          return v
        })
      })
      return attempts.map(async (_, i): Promise<Verdict> => {
        try {
          return await (await asked)[i]!
        } catch (e) {
          return {
            source: inner.source,
            unscorable: { cause: signal.aborted ? 'cancelled' : 'infra', detail: messageOf(e) },
            cost: NO_COST,
          }
        }
      })
    },
  }
}
