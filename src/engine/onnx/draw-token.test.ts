import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { drawToken, mostProbable } from './draw-token.ts'

const p = Float32Array.of(0.1, 0.4, 0.1, 0.3, 0.1)

describe('drawToken', () => {
  it('inverts the cumulative distribution', () => {
    expect([0, 0.09, 0.11, 0.49, 0.55, 0.61, 0.95, 0.999999999].map((u) => drawToken(p, u, 1).token)).toEqual([
      0, 0, 1, 1, 2, 3, 4, 4,
    ])
    expect(drawToken(p, 0.3, 1).logprob).toBeCloseTo(Math.log(0.4), 6)
  })

  it('keeps the fewest tokens whose mass reaches topP', () => {
    // 0.4 + 0.3 = 0.7, so 0.6 keeps two and 0.75 a third, the lowest id of the equal ones.
    expect([0, 0.5, 0.6, 0.99].map((u) => drawToken(p, u, 0.6).token)).toEqual([1, 1, 3, 3])
    expect(drawToken(p, 0.999, 0.75).token).toBe(0)
    expect(drawToken(p, 0, 0.6).logprob).toBeCloseTo(Math.log(0.4 / 0.7), 6)
    expect(drawToken(p, 0.9, 0.01)).toEqual({ token: 1, logprob: 0 })
  })

  it('never draws a token without mass, and its log-probability is finite', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 30 }).filter((xs) => xs.some((x) => x > 0)),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        fc.double({ min: 0.01, max: 1, noNaN: true }),
        (xs, u, topP) => {
          const sum = xs.reduce((a, b) => a + b, 0)
          const q = Float32Array.from(xs, (x) => x / sum)
          const { token, logprob } = drawToken(q, u, topP)
          return q[token]! > 0 && Number.isFinite(logprob) && logprob <= 1e-6
        },
      ),
    )
  })
})

it('mostProbable takes the lowest id among equals', () => {
  expect(mostProbable(Float32Array.of(0.2, 0.4, 0.4)).token).toBe(1)
})
