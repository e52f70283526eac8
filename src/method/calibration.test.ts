import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { keyed } from '../core/index.ts'
import { applyMap, type FitOptions, fitMap, IDENTITY, type Pair } from './calibration.ts'
import { pav } from './pav.ts'

/** Slow oracle of isotonic regression: max over i <= k of min over j >= k of the weighted mean of i..j. */
function minimax(y: readonly number[], w: readonly number[]): number[] {
  const mean = (i: number, j: number): number => {
    let s = 0
    let t = 0
    for (let q = i; q <= j; q++) {
      s += y[q]! * w[q]!
      t += w[q]!
    }
    return s / t
  }
  return y.map((_, k) => {
    let best = Number.NEGATIVE_INFINITY
    for (let i = 0; i <= k; i++) {
      let least = Number.POSITIVE_INFINITY
      for (let j = k; j < y.length; j++) least = Math.min(least, mean(i, j))
      best = Math.max(best, least)
    }
    return best
  })
}

const unit = fc.double({ min: 0, max: 1, noNaN: true })
const weight = fc.double({ min: 0.05, max: 10, noNaN: true })
const points = fc.array(fc.tuple(unit, weight), { minLength: 1, maxLength: 25 })
const near = (a: readonly number[], b: readonly number[], eps = 1e-9): void => {
  expect(a.length).toBe(b.length)
  a.forEach((v, i) => {
    expect(Math.abs(v - b[i]!)).toBeLessThan(eps)
  })
}

describe('pooling adjacent violators', () => {
  test('equals the slow oracle', () => {
    fc.assert(
      fc.property(points, (p) => {
        near(
          pav(
            p.map(([y]) => y),
            p.map(([, w]) => w),
          ),
          minimax(
            p.map(([y]) => y),
            p.map(([, w]) => w),
          ),
        )
      }),
      { numRuns: 500 },
    )
  })
  test('is monotone, idempotent and keeps the weighted mean', () => {
    fc.assert(
      fc.property(points, (p) => {
        const y = p.map(([v]) => v)
        const w = p.map(([, v]) => v)
        const f = pav(y, w)
        f.forEach((v, i) => {
          if (i > 0) expect(v).toBeGreaterThanOrEqual(f[i - 1]!)
        })
        near(pav(f, w), f)
        const total = (x: readonly number[]): number => x.reduce((s, v, i) => s + v * w[i]!, 0)
        expect(total(f)).toBeCloseTo(total(y), 9)
      }),
    )
  })
  test('refuses what is no point', () => {
    expect(() => pav([1, Number.NaN])).toThrow(RangeError)
    expect(() => pav([1, 2], [1, 0])).toThrow(RangeError)
    expect(() => pav([1, 2], [1, -1])).toThrow(RangeError)
    expect(() => pav([1, 2], [1])).toThrow(RangeError)
    expect(pav([])).toEqual([])
  })
})

/** Few distinct x, as a world model with buckets gives them, or many. */
const pair = fc.record({ x: fc.oneof(unit, fc.constantFrom(0.1, 0.525, 0.6, 0.725, 0.875)), y: unit })
const many = fc.array(pair, { minLength: 0, maxLength: 60 })
const options = fc.record({
  kind: fc.constantFrom('isotonic', 'centered_isotonic', 'affine'),
  bins: fc.integer({ min: 2, max: 12 }),
  binning: fc.constantFrom('equal_width', 'equal_mass', 'distinct'),
  prior: fc.constantFrom(0, 4),
}) as fc.Arbitrary<FitOptions>

describe('maps', () => {
  test('are finite, monotone and stay in [0,1], inside and outside their knots', () => {
    fc.assert(
      fc.property(many, options, fc.array(unit, { minLength: 2, maxLength: 20 }), (p, o, xs) => {
        const map = fitMap(p, o, 3)
        const sorted = [0, ...xs, 1].sort((a, b) => a - b)
        const y = sorted.map((x) => applyMap(map, x))
        y.forEach((v, i) => {
          expect(v >= 0 && v <= 1).toBe(true)
          if (i > 0) expect(v).toBeGreaterThanOrEqual(y[i - 1]! - 1e-12)
        })
      }),
      { numRuns: 400 },
    )
  })
  test('do not depend on the order of the pairs', () => {
    fc.assert(
      fc.property(many, options, fc.integer(), (p, o, seed) => {
        expect(fitMap(keyed('order', seed).shuffle(p), o, 1)).toEqual(fitMap(p, o, 1))
      }),
      { numRuns: 300 },
    )
  })
  test('do not depend on giving every pair twice, where there is no prior', () => {
    fc.assert(
      fc.property(many, options, unit, (p, o, x) => {
        const once = fitMap(p, { ...o, prior: 0 }, 1)
        const twice = fitMap([...p, ...p], { ...o, prior: 0 }, 1)
        near(twice.values, once.values)
        expect(applyMap(twice, x)).toBeCloseTo(applyMap(once, x), 6)
      }),
      { numRuns: 300 },
    )
  })
  test('of fewer than two distinct x are the identity, which changes no bit', () => {
    const o: FitOptions = { kind: 'isotonic', bins: 10, binning: 'equal_mass', prior: 4 }
    for (const p of [
      [],
      [{ x: 0.3, y: 0.9 }],
      [
        { x: 0.3, y: 0.9 },
        { x: 0.3, y: 0.1 },
      ],
    ]) {
      const map = fitMap(p, o, 5)
      expect(map).toEqual(IDENTITY)
      fc.assert(fc.property(unit, (x) => Object.is(applyMap(map, x), x)))
    }
  })
  test('equal-mass bins never split equal x', () => {
    fc.assert(
      fc.property(many, fc.integer({ min: 2, max: 10 }), (p, bins) => {
        const map = fitMap(p, { kind: 'isotonic', bins, binning: 'equal_mass', prior: 0 }, 1)
        expect(new Set(map.knots).size).toBe(map.knots.length)
        expect(map.knots.length).toBeLessThanOrEqual(Math.max(bins, 10))
      }),
    )
  })
  test('centred ones have no plateau between their knots', () => {
    fc.assert(
      fc.property(many, (p) => {
        const { values } = fitMap(p, { kind: 'centered_isotonic', bins: 10, binning: 'distinct', prior: 0 }, 1)
        values.forEach((v, i) => {
          if (i > 0) expect(v).toBeGreaterThan(values[i - 1]!)
        })
      }),
    )
  })
  test('refuse pairs outside [0,1]', () => {
    const o: FitOptions = { kind: 'isotonic', bins: 10, binning: 'distinct', prior: 0 }
    const bad: Pair[] = [
      { x: Number.NaN, y: 0 },
      { x: 0, y: Number.POSITIVE_INFINITY },
      { x: 1.5, y: 0 },
      { x: 0, y: -0.1 },
    ]
    for (const b of bad) expect(() => fitMap([b, { x: 0.5, y: 0.5 }], o, 1)).toThrow(RangeError)
  })
})
