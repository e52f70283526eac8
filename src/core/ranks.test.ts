import { expect, test } from 'vitest'
import { averageRanks, rankCorrelation } from './ranks.ts'

test('ranks share the average of their places', () => {
  expect(averageRanks([3, 1, 3, 2])).toEqual([3.5, 1, 3.5, 2])
})

test('rank correlation: an order, its reverse, ties, and undefined where a side is constant', () => {
  expect(rankCorrelation([1, 2, 3, 4], [10, 20, 30, 40])).toBeCloseTo(1, 12)
  expect(rankCorrelation([1, 2, 3, 4], [4, 3, 2, 1])).toBeCloseTo(-1, 12)
  expect(rankCorrelation([1, 2, 2], [1, 2, 3])).toBeCloseTo(Math.sqrt(3) / 2, 12)
  expect(rankCorrelation([1, 1, 1], [1, 2, 3])).toBeUndefined()
})
