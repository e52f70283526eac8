import { describe, expect, it } from 'vitest'
import {
  type Attempt,
  attemptId,
  type Belief,
  type ContentKey,
  NO_COST,
  type Outcome,
  rewardOf,
  type TaskRef,
  type Unscorable,
  type Verdict,
  type VerdictStore,
  weightsVersion,
} from '../core/index.ts'
import {
  type Judge,
  oraclePredictor,
  PredictedJudge,
  type PredictionScore,
  type Predictor,
  shuffledPredictor,
  storedJudge,
} from './index.ts'

const signal = new AbortController().signal
const task = (id: string): TaskRef => ({ suite: 'builtin', id, modality: 'tabular', split: 'train' })
const attempt = (k: number, id = 'a'): Attempt => ({
  id: attemptId(`x/${k}`),
  task: task(id),
  action: { code: `p${k}` },
  history: [],
  scope: 'feedback',
})
const belief: Belief = {
  alternatives: [
    { kind: 'graded', percentile: 0.9, p: 0.4 },
    { kind: 'crashed', p: 0.35 },
    { kind: 'graded', percentile: 0.1, p: 0.25 },
  ],
  shown: 1,
}
const predictor = (of: (a: Attempt, call: number) => Belief | Unscorable): Predictor & { calls: number } => {
  const p = {
    calls: 0,
    predict: (attempts: readonly Attempt[]) => {
      p.calls++
      return attempts.map(async (a) => {
        const b = of(a, p.calls)
        return 'cause' in b ? b : { belief: b, tokens: 3 }
      })
    },
  }
  return p
}
const judge = (p: Predictor, score: PredictionScore): Judge =>
  new PredictedJudge({ predictor: p, model: weightsVersion('w'), score, draws: 4000, seed: 1 })
const scored = (v: Verdict): number => {
  if ('unscorable' in v) throw new Error(v.unscorable.detail)
  return v.score
}

describe('the predicted judge', () => {
  const expected = 0.4 * 0.95 + 0.35 * 0.1 + 0.25 * 0.55
  it.each([
    ['expected', expected],
    ['greedy', 0.95],
    ['sample', 0.1],
  ] as const)('scores %s', async (how, value) => {
    const v = await judge(
      predictor(() => belief),
      how,
    ).judge([attempt(1)], signal)[0]!
    expect(scored(v)).toBeCloseTo(value, 12)
    expect(v).toMatchObject({ observation: { text: 'error' }, cost: { predictedTokens: 3, executions: 0 } })
  })
  it('scores the mean of keyed draws near the expectation, the same each time', async () => {
    const j = judge(
      predictor(() => belief),
      'mean',
    )
    const a = scored(await j.judge([attempt(1)], signal)[0]!)
    expect(Math.abs(a - expected)).toBeLessThan(0.03)
    expect(scored(await j.judge([attempt(1)], signal)[0]!)).toBe(a)
  })
  it('retries an unreadable prediction once, then calls it unscorable: no score, no text', async () => {
    const p = predictor(() => ({ cause: 'prediction', detail: 'unreadable' }))
    const v = await judge(p, 'expected').judge([attempt(1)], signal)[0]!
    expect(p.calls).toBe(2)
    expect(v).toEqual({ source: 'predicted', unscorable: { cause: 'prediction', detail: 'unreadable' }, cost: NO_COST })
    const mended = await judge(
      predictor((_, call) => (call === 1 ? { cause: 'prediction', detail: 'x' } : belief)),
      'expected',
    ).judge([attempt(1)], signal)[0]!
    expect(scored(mended)).toBeCloseTo(expected, 12)
  })
  it('never rejects', async () => {
    const throws: Predictor = { predict: (a) => a.map(() => Promise.reject(new Error('boom'))) }
    expect(await judge(throws, 'expected').judge([attempt(1)], signal)[0]!).toMatchObject({
      unscorable: { cause: 'prediction', detail: 'boom' },
    })
  })
})

describe('controls', () => {
  const own = (a: Attempt): Belief => ({
    alternatives: [{ kind: 'graded', percentile: Number(a.id.split('/')[1]) / 100, p: 1 }],
    shown: 0,
  })
  it('shuffle deals beliefs within a task only, and keeps all of them', async () => {
    const attempts = [
      ...Array.from({ length: 8 }, (_, k) => attempt(k, 'a')),
      ...Array.from({ length: 8 }, (_, k) => attempt(k + 50, 'b')),
    ]
    const got = await Promise.all(shuffledPredictor(predictor(own), 3).predict(attempts, signal))
    const p = got.map((g) => ('cause' in g ? -1 : g.belief.alternatives[0]!.percentile! * 100))
    const sorted = (x: number[]): number[] => x.map(Math.round).sort((a, b) => a - b)
    expect(sorted(p.slice(0, 8))).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    expect(sorted(p.slice(8))).toEqual([50, 51, 52, 53, 54, 55, 56, 57])
    expect(p.slice(0, 8).map(Math.round)).not.toEqual([0, 1, 2, 3, 4, 5, 6, 7])
  })
  it('oracle believes the execution, trouble included', async () => {
    const outcome: Outcome = { kind: 'graded', score: 3, percentile: 0.7, scope: 'feedback' }
    const real = (v: Verdict): Judge => ({ source: 'executed', scope: 'turn', judge: (a) => a.map(async () => v) })
    const ok: Verdict = {
      source: 'executed',
      outcome,
      score: rewardOf(outcome),
      observation: { text: '' },
      cost: NO_COST,
    }
    const v = await judge(oraclePredictor(real(ok)), 'expected').judge([attempt(1)], signal)[0]!
    expect(scored(v)).toBeCloseTo(0.85, 12)
    const bad: Verdict = { source: 'executed', unscorable: { cause: 'infra', detail: 'gone' }, cost: NO_COST }
    expect(await judge(oraclePredictor(real(bad)), 'expected').judge([attempt(1)], signal)[0]!).toMatchObject({
      unscorable: { cause: 'infra' },
    })
  })
})

describe('the stored judge', () => {
  const store = (): VerdictStore & { kept: Map<ContentKey, Verdict>; order: string[] } => {
    const kept = new Map<ContentKey, Verdict>()
    const order: string[] = []
    return {
      kept,
      order,
      find: async (k) => kept.get(k),
      commit: async (k, v) => {
        kept.set(k, v)
        order.push('commit')
      },
    }
  }
  it('commits before it answers, and does not pay twice', async () => {
    const s = store()
    let paid = 0
    const outcome: Outcome = { kind: 'out-of-memory' }
    const answer: Verdict = {
      source: 'executed',
      outcome,
      score: rewardOf(outcome),
      observation: { text: 'out of memory' },
      cost: NO_COST,
    }
    const inner: Judge = {
      source: 'executed',
      scope: 'turn',
      judge: (a) =>
        a.map(async () => {
          paid++
          return answer
        }),
    }
    const j = storedJudge(inner, s)
    await j.judge([attempt(1)], signal)[0]!.then(() => s.order.push('answer'))
    expect(s.order).toEqual(['commit', 'answer'])
    const again = await Promise.all(j.judge([attempt(1), attempt(2)], signal))
    expect(paid).toBe(2)
    expect(again[0]).toEqual(again[1])
    await j.judge([{ ...attempt(1), scope: 'final' }], signal)[0]
    expect(paid).toBe(3)
  })
  it('does not keep what is unscorable', async () => {
    const s = store()
    const inner: Judge = {
      source: 'executed',
      scope: 'turn',
      judge: (a) =>
        a.map(
          async (): Promise<Verdict> => ({
            source: 'executed',
            unscorable: { cause: 'infra', detail: 'x' },
            cost: NO_COST,
          }),
        ),
    }
    await storedJudge(inner, s).judge([attempt(1)], signal)[0]
    expect(s.kept.size).toBe(0)
  })
  it('turns a store that fails into unscorable', async () => {
    const inner: Judge = { source: 'executed', scope: 'turn', judge: () => [] }
    const broken: VerdictStore = { find: () => Promise.reject(new Error('disk')), commit: async () => {} }
    expect(await storedJudge(inner, broken).judge([attempt(1)], signal)[0]).toMatchObject({
      unscorable: { cause: 'infra', detail: 'disk' },
    })
  })
})
