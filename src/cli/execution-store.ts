import type { Execution, ExecutionStore } from '../executors/index.ts'
import type { ExecutionCache } from '../ledger/index.ts'

/** Adapts the ledger's rows to the executors' port. */
export function executionStore(cache: ExecutionCache): ExecutionStore {
  return {
    find(key) {
      const r = cache.find(key)
      if (!r) return undefined
      const end = JSON.parse(r.end) as Execution['end']
      return {
        end: end.kind === 'finished' ? { ...end, submission: r.submission } : end,
        stdout: r.stdout,
        stderr: r.stderr,
        cost: JSON.parse(r.cost) as Execution['cost'],
        rung: r.rung,
        cached: true,
      }
    },
    put(key, e) {
      const submission = e.end.kind === 'finished' ? e.end.submission : undefined
      const end = e.end.kind === 'finished' ? { ...e.end, submission: undefined } : e.end
      cache.put(key, {
        end: JSON.stringify(end),
        submission,
        stdout: e.stdout,
        stderr: e.stderr,
        cost: JSON.stringify(e.cost),
        rung: e.rung,
      })
    },
  }
}
