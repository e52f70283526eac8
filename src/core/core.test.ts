import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  binCentre,
  cleanDetail,
  contentHash,
  expectedReward,
  keyed,
  ladder,
  OUTCOME_KINDS,
  PERCENTILE_BINS,
  percentileBin,
  render,
  rewardOf,
  ScoreError,
  score,
  shownDraw,
  shownOf,
} from './index.ts'

describe('score', () => {
  it.each([Number.NaN, Number.POSITIVE_INFINITY, -0.001, 1.5, null, undefined, '0.5'])('refuses %s', (x) => {
    expect(() => score(x)).toThrow(ScoreError)
  })
  it('keeps [0,1] and turns -0 into 0', () => {
    expect(Object.is(score(-0), 0)).toBe(true)
    expect(score(1)).toBe(1)
  })
})

describe('the ladder (golden G20)', () => {
  it('gives the paper’s rewards', () => {
    expect([
      ladder('malformed'),
      ladder('syntax-error'),
      ladder('crashed'),
      ladder('timed-out'),
      ladder('out-of-memory'),
      ladder('invalid-submission'),
    ]).toEqual([0, 0, 0.1, 0.1, 0.1, 0.2])
    expect(ladder('graded', 0.8)).toBeCloseTo(0.9, 12)
    expect(ladder('graded', 0.3125)).toBeCloseTo(0.65625, 12)
    expect(ladder('graded', 0)).toBe(0.5)
  })
  it('ranks every valid submission above every invalid one', () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1, noNaN: true }), (p) => {
        for (const k of OUTCOME_KINDS) if (k !== 'graded') expect(ladder(k)).toBeLessThan(ladder('graded', p))
      }),
    )
  })
  it('reads a timed-out program the same with and without a submission', () => {
    expect(rewardOf({ kind: 'timed-out', submissionPresent: true })).toBe(
      rewardOf({ kind: 'timed-out', submissionPresent: false }),
    )
  })
  it('is the expectation under a belief', () => {
    const e = expectedReward({
      alternatives: [
        { kind: 'graded', percentile: 0.5, p: 0.5 },
        { kind: 'crashed', p: 0.5 },
      ],
      shown: 0,
    })
    expect(e.mean).toBeCloseTo(0.425, 12)
    expect(e.spread).toBeCloseTo(0.325, 12)
    expect(() => expectedReward({ alternatives: [{ kind: 'crashed', p: 0.4 }], shown: 0 })).toThrow(RangeError)
  })
})

describe('the one renderer', () => {
  it('gives an executed outcome and a belief of the same bin the same text', () => {
    for (let b = 0; b < PERCENTILE_BINS; b++) {
      const executed = render(shownOf({ kind: 'graded', score: 17.3, percentile: binCentre(b), scope: 'feedback' }))
      const predicted = render(
        shownDraw({ alternatives: [{ kind: 'graded', percentile: binCentre(b), p: 1 }], shown: 0 }),
      )
      expect(executed).toEqual(predicted)
      expect(executed.text).not.toContain('17.3')
    }
  })
  it('puts percentile 1 into the last bin', () => {
    expect(percentileBin(1)).toBe(PERCENTILE_BINS - 1)
  })
  it('takes control characters and direction marks out of program output', () => {
    const text = cleanDetail('a\u001b[31mred\u0000\u202eb')
    expect(text).not.toMatch(/[\u0000-\u001f\u202e]/)
  })
  it('keeps head and tail of a long detail', () => {
    const t = cleanDetail(`${'h'.repeat(500)}TAIL`, 40)
    expect(t.length).toBe(40)
    expect(t.startsWith('hhh')).toBe(true)
    expect(t.endsWith('TAIL')).toBe(true)
  })
})

describe('keyed randomness', () => {
  it('depends on the key alone', () => {
    const a = keyed(1, 'step', 2)
    const b = keyed(1, 'step', 2)
    const c = keyed(1, 'step', 3)
    const x = Array.from({ length: 5 }, () => a.next())
    expect(Array.from({ length: 5 }, () => b.next())).toEqual(x)
    expect(Array.from({ length: 5 }, () => c.next())).not.toEqual(x)
  })
  it('keeps strings and numbers apart', () => {
    expect(keyed('1').next()).not.toBe(keyed(1).next())
    expect(contentHash('ab', 'c')).not.toBe(contentHash('a', 'bc'))
  })
  it('shuffles without loss', () => {
    const order = (xs: number[]): number[] => [...xs].sort((a, b) => a - b)
    fc.assert(
      fc.property(fc.array(fc.integer()), fc.integer(), (xs, k) => {
        expect(order(keyed(k).shuffle(xs))).toEqual(order(xs))
      }),
    )
  })
})
