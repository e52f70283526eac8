import { describe, expect, it } from 'vitest'
import { NO_COST, type Outcome, rewardOf, score, type Verdict } from '../core/index.ts'
import { fidelity, meanInterval, spearman, summarise, tQuantile975, verdictOf } from './index.ts'

const ran = (outcome: Outcome): Verdict => ({
  source: 'executed',
  outcome,
  score: rewardOf(outcome),
  observation: { text: '' },
  cost: NO_COST,
})
const graded = (percentile: number, scope: 'feedback' | 'final' = 'feedback'): Verdict =>
  ran({ kind: 'graded', score: 1, percentile, scope })
const crashed = ran({ kind: 'crashed', error: { type: 'E', message: '' } })
const lost: Verdict = { source: 'executed', unscorable: { cause: 'infra', detail: '' }, cost: NO_COST }

describe('intervals', () => {
  it('are Student’s', () => {
    const i = meanInterval([1, 2, 3])
    expect(i.mean).toBe(2)
    expect(i.hi! - i.mean!).toBeCloseTo((4.3027 * 1) / Math.sqrt(3), 4)
    expect(tQuantile975(200)).toBeCloseTo(1.9719, 3)
    expect(meanInterval([5])).toEqual({ mean: 5, lo: null, hi: null, n: 1 })
    expect(meanInterval([])).toEqual({ mean: null, lo: null, hi: null, n: 0 })
  })
  it('say "no difference" where they hold 0, or do not exist', () => {
    expect(verdictOf({ mean: 0.1, lo: -0.1, hi: 0.3, n: 3 })).toBe('no difference')
    expect(verdictOf({ mean: 0.1, lo: 0.01, hi: 0.3, n: 3 })).toBe('higher')
    expect(verdictOf(meanInterval([0.4]))).toBe('no difference')
  })
})

describe('rank correlation (failures row 55)', () => {
  it('uses mid-ranks and is undefined for a constant predictor', () => {
    expect(spearman([1, 2, 2, 3], [1, 2, 2, 3])).toBeCloseTo(1, 12)
    expect(spearman([0.5, 0.5, 0.5, 0.5], [1, 2, 3, 4])).toBeUndefined()
    expect(spearman([3, 2, 1], [1, 2, 3])).toBeCloseTo(-1, 12)
  })
})

describe('an evaluation', () => {
  const turn = (task: string, sample: number, k: number, feedback: Verdict, final: Verdict | undefined) => ({
    task,
    sample,
    turn: k,
    feedback,
    final,
  })
  it('takes the turn that feedback chose, not the best final one', () => {
    const s = summarise([
      turn('a', 0, 0, graded(0.8), graded(0.2, 'final')),
      turn('a', 0, 1, graded(0.5), graded(0.9, 'final')),
    ])
    expect(s.score.mean).toBeCloseTo(0.6, 12)
    expect(s.selection.lastTurn.score.mean).toBeCloseTo(0.95, 12)
    expect(s.selection.bestOfTurns.score.mean).toBeCloseTo(0.95, 12)
  })
  it('averages tasks, not samples, and counts unscorable ones apart', () => {
    const s = summarise([
      turn('a', 0, 0, graded(1), graded(1, 'final')),
      turn('a', 1, 0, graded(1), graded(1, 'final')),
      turn('b', 0, 0, crashed, crashed),
      turn('b', 1, 0, lost, undefined),
    ])
    expect(s.n).toBe(3)
    expect(s.unscorable).toBe(1)
    expect(s.score.mean).toBeCloseTo((1 + 0.1) / 2, 12)
    expect(s.score.n).toBe(2)
    expect(s.valid).toBeCloseTo(2 / 3, 12)
  })
})

describe('fidelity', () => {
  const predicted = (p: number, valid = 1): Verdict => ({
    source: 'predicted',
    belief: {
      alternatives: [
        { kind: 'graded', percentile: p, p: valid },
        { kind: 'crashed', p: 1 - valid },
      ],
      shown: 0,
    },
    score: score(valid * (0.5 + p / 2) + (1 - valid) * 0.1),
    spread: 0,
    observation: { text: '' },
    cost: NO_COST,
    model: 'w' as never,
  })
  it('is perfect for a perfect model and inverted for an inverted one', () => {
    const rows = [0.1, 0.3, 0.6, 0.9]
    const good = fidelity(
      rows.map((p, i) => ({ task: 'a', step: i + 1, group: 0, predicted: predicted(p), executed: graded(p) })),
    )
    expect(good).toMatchObject({ n: 4, outcomeAccuracy: 1, spearmanWithinTask: 1, mae: 0 })
    const bad = fidelity(
      rows.map((p, i) => ({ task: 'a', step: i + 1, group: 0, predicted: predicted(1 - p), executed: graded(p) })),
    )
    expect(bad.spearmanWithinTask).toBeCloseTo(-1, 12)
    expect(bad.signedR2!).toBeLessThan(0)
  })
  it('counts what one side could not score, and constant tasks without a correlation', () => {
    const f = fidelity([
      { task: 'a', step: 1, group: 0, predicted: predicted(0.5), executed: lost },
      ...[1, 2, 3].map((k) => ({ task: 'b', step: k, group: 1, predicted: predicted(0.5), executed: graded(k / 10) })),
    ])
    expect(f).toMatchObject({ n: 3, unscorable: 1, spearmanWithinTask: null, tasksWithoutCorrelation: 1 })
    expect(fidelity([]).n).toBe(0)
    const both = fidelity(
      ['builtin/a', 'small/b', 'small/c'].flatMap((task) =>
        [0.1, 0.5, 0.9].map((p, i) => ({
          task,
          step: i + 1,
          group: 0,
          predicted: predicted(task === 'small/c' ? 1 - p : p),
          executed: graded(p),
        })),
      ),
    )
    expect(both.bySuite).toEqual([
      { suite: 'builtin', tasks: 1, spearman: expect.closeTo(1, 12) },
      { suite: 'small', tasks: 2, spearman: expect.closeTo(0, 12) },
    ])
    // By task, what the world model said that could not be read (failures row 60).
    const unread: Verdict = { source: 'predicted', unscorable: { cause: 'prediction', detail: 'x' }, cost: NO_COST }
    const g = fidelity([
      { task: 'a', step: 1, group: 0, predicted: unread, executed: graded(0.5) },
      { task: 'b', step: 1, group: 1, predicted: predicted(0.5), executed: graded(0.5) },
      { task: 'b', step: 1, group: 1, predicted: predicted(0.5), executed: lost },
    ])
    expect(g.byTask.map((t) => [t.task, t.n, t.unread, t.mae])).toEqual([
      ['a', 0, 1, null],
      ['b', 1, 0, expect.closeTo(0, 12)],
    ])
  })
  it('ranks within a group, where levels that differ between groups do not help', () => {
    // Three groups of one task: each is ranked backwards, while their levels agree.
    const f = fidelity(
      [0, 1, 2].flatMap((g) =>
        [0, 1, 2].map((k) => ({
          task: 'a',
          step: 1 + (g >> 1),
          group: g,
          predicted: predicted(g / 3 + (2 - k) / 100),
          executed: graded(g / 3 + k / 100),
        })),
      ),
    )
    expect(f.spearmanWithinTask!).toBeGreaterThan(0.5)
    expect(f).toMatchObject({ spearmanWithinGroup: -1, groupsWithoutCorrelation: 0 })
  })
})
