import type { Attempt, Belief, Outcome, Program, Unscorable, Verdict } from '../core/index.ts'

/**
 * Executed and predicted judgement share one contract: any mixture of the two can be trained on, replayed and compared.
 * One promise an attempt, in order; they never reject: trouble is `unscorable`. Idempotent by (attempt id, scope).
 */
export interface Judge<A = Program, O = Outcome, W = Belief> {
  readonly source: Verdict['source']
  readonly scope: 'turn' | 'trajectory'
  judge(attempts: readonly Attempt<A>[], signal: AbortSignal): readonly Promise<Verdict<O, W>>[]
}

/** A world model by tokens, chat or frames. */
export interface Predictor<A = Program, W = Belief> {
  predict(
    attempts: readonly Attempt<A>[],
    signal: AbortSignal,
  ): readonly Promise<{ belief: W; tokens: number } | Unscorable>[]
}
