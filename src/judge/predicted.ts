import {
  type Attempt,
  type Belief,
  expectedReward,
  keyed,
  ladder,
  messageOf,
  NO_COST,
  render,
  type Score,
  score,
  shownDraw,
  type Verdict,
  type WeightsVersion,
} from '../core/index.ts'
import type { Judge, Predictor } from './judge.ts'

/** How a belief becomes one score. `sample` is the paper's; `mean` averages K keyed draws. */
export const PREDICTION_SCORES = ['expected', 'mean', 'greedy', 'sample'] as const
export type PredictionScore = (typeof PREDICTION_SCORES)[number]

export interface PredictedJudgeOptions {
  readonly predictor: Predictor
  readonly model: WeightsVersion
  readonly score: PredictionScore
  /** Draws of `mean`. */
  readonly draws: number
  readonly seed: number
}

/** The world model as a judge: the score is what `prediction.score` makes of the belief, the text one keyed draw. */
export class PredictedJudge implements Judge {
  readonly source = 'predicted'
  readonly scope = 'turn'
  constructor(private readonly o: PredictedJudgeOptions) {}

  judge(attempts: readonly Attempt[], signal: AbortSignal): readonly Promise<Verdict>[] {
    const predictions = this.o.predictor.predict(attempts, signal)
    return attempts.map(async (a, i): Promise<Verdict> => {
      try {
        let p = await predictions[i]!
        // One retry (invariant 1); a deterministic predictor answers the same, a chat one may not.
        if ('cause' in p && p.cause === 'prediction' && !signal.aborted)
          p = await this.o.predictor.predict([a], signal)[0]!
        if ('cause' in p) return { source: 'predicted', unscorable: p, cost: NO_COST }
        const { mean, spread } = expectedReward(p.belief)
        return {
          source: 'predicted',
          belief: p.belief,
          score: scoreOf(p.belief, mean, this.o, a.id),
          spread,
          observation: render(shownDraw(p.belief)),
          cost: { ...NO_COST, predictedTokens: p.tokens },
          model: this.o.model,
        }
      } catch (e) {
        return {
          source: 'predicted',
          unscorable: { cause: signal.aborted ? 'cancelled' : 'prediction', detail: messageOf(e) },
          cost: NO_COST,
        }
      }
    })
  }
}

function scoreOf(b: Belief, mean: Score, o: PredictedJudgeOptions, id: string): Score {
  const reward = (k: number): number => ladder(b.alternatives[k]!.kind, b.alternatives[k]!.percentile ?? 0)
  switch (o.score) {
    case 'expected':
      return mean
    case 'greedy':
      return score(reward(b.alternatives.reduce((best, a, i) => (a.p > b.alternatives[best]!.p ? i : best), 0)))
    case 'sample':
      return score(reward(b.shown))
    case 'mean': {
      const r = keyed('mean', o.seed, id)
      let s = 0
      for (let k = 0; k < o.draws; k++) {
        let u = r.next()
        let at = b.alternatives.findIndex((a) => {
          u -= a.p
          return u < 0
        })
        if (at < 0) at = b.alternatives.length - 1
        s += reward(at) / o.draws
      }
      return score(Math.min(1, s))
    }
  }
}
