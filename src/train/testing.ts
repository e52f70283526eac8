/** Judges, a format and a record for tests of the step and the loop, where programs are not what is under test. */
import type { AgentFormat } from '../agent/index.ts'
import {
  type Attempt,
  expectedReward,
  NO_COST,
  rewardOf,
  score,
  type TaskRef,
  type Verdict,
  weightsVersion,
} from '../core/index.ts'
import type { Judge } from '../judge/index.ts'
import type { RunRecord } from './record.ts'

/** One judge for each source that answers every attempt by itself. */
const judge = (source: Judge['source'], answer: (a: Attempt) => Verdict): Judge => ({
  source,
  scope: 'turn',
  judge: (attempts) => attempts.map(async (a) => answer(a)),
})

/** Keeps nothing of a run. */
export const noRecord: RunRecord = {
  commitStep: () => undefined,
  commitCheckpoint: () => [],
  checkpoints: () => [],
  resumeAt: () => undefined,
}

/** A model of any server learns this: an action is its tokens, without text, and its score the share of one of them. */
export const plantedFormat = (prompt: (task: TaskRef) => readonly number[], maxActionTokens: number): AgentFormat => ({
  stop: [],
  maxActionTokens,
  maxObservationTokens: 1,
  prompt: async (t) => [...prompt(t)],
  parse: async (_, tokens) => ({ code: JSON.stringify(tokens) }),
  observe: async () => [],
})

/** Judges of the planted task. `predict` is what the world model makes of the true share. */
export function plantedJudges(
  target: number,
  predict: (share: number) => number = (share) => share,
): { readonly executed: Judge; readonly predicted: Judge } {
  const shareOf = (a: Attempt): number => {
    const tokens = JSON.parse(a.action.code!) as number[]
    return tokens.filter((t) => t === target).length / tokens.length
  }
  const observation = { text: '' }
  return {
    executed: judge('executed', (a) => ({
      source: 'executed',
      outcome: { kind: 'graded', score: shareOf(a), percentile: shareOf(a), scope: 'feedback' },
      score: score(shareOf(a)),
      observation,
      cost: { ...NO_COST, executions: 1 },
    })),
    predicted: judge('predicted', (a) => ({
      source: 'predicted',
      belief: { alternatives: [{ kind: 'graded', percentile: shareOf(a), p: 1 }], shown: 0 },
      score: score(predict(shareOf(a))),
      spread: 0,
      observation,
      cost: NO_COST,
      model: weightsVersion('planted'),
    })),
  }
}

/**
 * Judges that grade by `reward`, a percentile; the world model believes the opposite. An attempt that is `broken` cannot be
 * executed.
 */
export function gradedJudges(reward: (a: Attempt) => number): {
  readonly executed: (broken?: (a: Attempt) => boolean) => Judge
  readonly predicted: Judge
} {
  return {
    executed: (broken = () => false) =>
      judge('executed', (a) => {
        if (broken(a)) return { source: 'executed', unscorable: { cause: 'infra', detail: 'planted' }, cost: NO_COST }
        const outcome = { kind: 'graded', score: 1, percentile: reward(a), scope: 'feedback' } as const
        return {
          source: 'executed',
          outcome,
          score: rewardOf(outcome),
          observation: { text: 'valid: better than 0.10 of the board' },
          cost: { ...NO_COST, executions: 1 },
        }
      }),
    predicted: judge('predicted', (a) => {
      const belief = { alternatives: [{ kind: 'graded' as const, percentile: 1 - reward(a), p: 1 }], shown: 0 }
      return {
        source: 'predicted',
        belief,
        score: expectedReward(belief).mean,
        spread: 0,
        observation: { text: 'timed out' },
        cost: NO_COST,
        model: weightsVersion('graded'),
      }
    }),
  }
}
