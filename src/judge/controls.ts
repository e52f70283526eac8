import { type Attempt, type Belief, keyed, type Unscorable } from '../core/index.ts'
import type { Judge, Predictor } from './judge.ts'

type Predicted = { belief: Belief; tokens: number } | Unscorable

/**
 * Control `shuffle`: the beliefs of one call are dealt to other attempts of the same task, so a world model keeps its
 * distribution and loses its knowledge.
 */
export function shuffledPredictor(inner: Predictor, seed: number): Predictor {
  return {
    predict(attempts, signal) {
      const asked = inner.predict(attempts, signal)
      const source = attempts.map((_, i) => i)
      const byTask = new Map<string, number[]>()
      attempts.forEach((a, i) => {
        const k = `${a.task.suite}/${a.task.id}`
        byTask.set(k, [...(byTask.get(k) ?? []), i])
      })
      for (const at of byTask.values()) {
        const to = keyed('shuffle', seed, ...at.map((i) => attempts[i]!.id)).shuffle(at)
        at.forEach((i, k) => {
          source[i] = to[k]!
        })
      }
      return attempts.map((_, i) => asked[source[i]!]!)
    },
  }
}

/** Control `oracle`: the executed outcome itself as a belief; what a perfect world model would be worth. Executes everything. */
export function oraclePredictor(executed: Judge): Predictor {
  return {
    predict(attempts: readonly Attempt[], signal: AbortSignal): readonly Promise<Predicted>[] {
      return executed.judge(attempts, signal).map(async (p): Promise<Predicted> => {
        const v = await p
        if ('unscorable' in v) return v.unscorable
        if (v.source !== 'executed') return { cause: 'prediction', detail: 'the oracle needs an executed judge' }
        const o = v.outcome
        const detail =
          o.kind === 'invalid-submission'
            ? o.message
            : o.kind === 'crashed' || o.kind === 'syntax-error'
              ? `${o.error.type}: ${o.error.message}`
              : undefined
        const alternative = {
          kind: o.kind,
          p: 1,
          ...(o.kind === 'graded' ? { percentile: o.percentile } : {}),
          ...(detail === undefined ? {} : { detail }),
        }
        return { belief: { alternatives: [alternative], shown: 0 }, tokens: 0 }
      })
    },
  }
}
