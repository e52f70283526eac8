import { expect, it } from 'vitest'
import { adamStep, freshAdam, gradientNorm } from './adam.ts'

const one = (...xs: number[]): Map<string, Float32Array> => new Map([['w', Float32Array.from(xs)]])

it('takes the steps that the paper writes down', () => {
  const weights = one(1, -2)
  const state = freshAdam(weights)
  const adam = { learningRate: 0.1, beta1: 0.8, beta2: 0.9, epsilon: 1e-6, weightDecay: 0.5 }
  const expected = [1, -2]
  const m = [0, 0]
  const v = [0, 0]
  for (const [k, g] of [
    [0.3, -4],
    [-0.1, 2],
    [0.7, 1],
  ].entries()) {
    adamStep(weights, one(...g), state, adam, 0.5)
    g.forEach((raw, i) => {
      const x = raw * 0.5
      m[i] = 0.8 * m[i]! + 0.2 * x
      v[i] = 0.9 * v[i]! + 0.1 * x * x
      const mHat = m[i]! / (1 - 0.8 ** (k + 1))
      const vHat = v[i]! / (1 - 0.9 ** (k + 1))
      expected[i] = expected[i]! - 0.1 * 0.5 * expected[i]! - (0.1 * mHat) / (Math.sqrt(vHat) + 1e-6)
    })
  }
  weights.get('w')!.forEach((w, i) => {
    expect(w).toBeCloseTo(expected[i]!, 5)
  })
  expect(state.step).toBe(3)
})

it('norms over everything, and lets NaN through', () => {
  expect(
    gradientNorm(
      new Map([
        ['a', Float32Array.of(3)],
        ['b', Float32Array.of(0, 4)],
      ]),
    ),
  ).toBe(5)
  expect(gradientNorm(one(1, Number.NaN))).toBeNaN()
})
