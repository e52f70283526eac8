import { expect, it } from 'vitest'
import { learningRateAt } from './loop.ts'

it('is constant, or falls in equal parts from the given rate to a last positive one', () => {
  const t = { learningRate: 0.8, steps: 4 }
  expect([1, 2, 3, 4].map((s) => learningRateAt({ ...t, decay: 'none' }, s))).toEqual([0.8, 0.8, 0.8, 0.8])
  const falling = [1, 2, 3, 4].map((s) => learningRateAt({ ...t, decay: 'linear' }, s))
  expect(falling.map((v) => v.toFixed(6))).toEqual(['0.800000', '0.600000', '0.400000', '0.200000'])
})
