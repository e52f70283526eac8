import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { keyed } from '../core/index.ts'
import { anchorCount, chooseBySize, chooseUniform } from './anchors.ts'

test('a uniform choice has distinct groups in order, the same for the same key', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 0, max: 20 }), fc.integer(), (b, n, seed) => {
      const c = chooseUniform(b, Math.min(n, b), keyed('u', seed))
      expect(c).toEqual([...new Set(c)].sort((x, y) => x - y))
      expect(c.length).toBe(Math.min(n, b))
      expect(c.every((i) => i >= 0 && i < b)).toBe(true)
      expect(chooseUniform(b, Math.min(n, b), keyed('u', seed))).toEqual(c)
    }),
  )
})

test('there is at least one anchor, and never more than there are groups', () => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1, noNaN: true }), fc.integer({ min: 1, max: 64 }), (share, b) => {
      const n = anchorCount(share, b)
      expect(n).toBeGreaterThanOrEqual(1)
      expect(n).toBeLessThanOrEqual(b)
    }),
  )
  expect(anchorCount(0.5, 8, { cap: 2, inFlight: 5 })).toBe(0)
})

describe('choosing by size', () => {
  const sizes = fc.array(fc.double({ min: 0, max: 5, noNaN: true }), { minLength: 2, maxLength: 16 })
  test('inclusion probabilities sum to the count and respect the floor', () => {
    fc.assert(
      fc.property(sizes, fc.integer({ min: 1, max: 16 }), fc.double({ min: 0, max: 1, noNaN: true }), (s, m, part) => {
        const count = Math.min(m, s.length)
        const floor = (part * count) / s.length
        const { pi, chosen } = chooseBySize(s, count, floor, keyed('c', m))
        expect(pi.reduce((a, b) => a + b, 0)).toBeCloseTo(count, 9)
        for (const p of pi) expect(p >= Math.min(1, floor) - 1e-9 && p <= 1 + 1e-9).toBe(true)
        expect(chosen.length).toBe(count)
        expect(new Set(chosen).size).toBe(count)
      }),
      { numRuns: 300 },
    )
  })
  test('weighted by 1/pi, the mean over many draws is the uniform one', () => {
    const size = [0.2, 1, 3, 0.5, 0.1, 2]
    const value = [0.3, -0.7, 1.1, 0.2, 0.9, -0.4]
    const draws = 100_000
    const r = keyed('ipw')
    const truth = value.reduce((a, b) => a + b, 0) / value.length
    let sum = 0
    let square = 0
    for (let k = 0; k < draws; k++) {
      const { chosen, pi } = chooseBySize(size, 2, 1 / 8, r)
      const x = chosen.reduce((s, i) => s + value[i]! / pi[i]!, 0) / value.length
      sum += x
      square += x * x
    }
    const mean = sum / draws
    const error = Math.sqrt((square / draws - mean * mean) / draws)
    expect(Math.abs(mean - truth)).toBeLessThan(4 * error)
  })
  test('a floor that cannot be kept is refused', () => {
    expect(() => chooseBySize([1, 1, 1, 1], 1, 0.5, keyed('x'))).toThrow(RangeError)
  })
})
