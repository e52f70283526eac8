import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { meanPercentile, position } from './percentile.ts'

interface Case {
  readonly board: string
  readonly higherIsBetter: boolean
  readonly score: number | 'nan'
  readonly boardsPresent?: readonly string[]
  readonly position?: number
  readonly total?: number
  readonly avgScore: number
}
const fixture = (name: string): string => readFileSync(new URL(`./__fixtures__/${name}`, import.meta.url), 'utf8')
const { cases } = JSON.parse(fixture('positions.json')) as { cases: Case[] }

const board = (name: string): number[] =>
  fixture(`boards/${name}.csv`)
    .trim()
    .split('\n')
    .slice(1)
    .map((l) => Number(l.split(',')[1]))

const simple = cases.filter((c) => /^[a-z_]+$/.test(c.board) && typeof c.score === 'number')

describe('recorded positions of MLE-Dojo', () => {
  test.each(simple.map((c, i) => [`${c.board} ${c.higherIsBetter ? 'up' : 'down'} ${c.score} #${i}`, c] as const))(
    '%s',
    (_, c) => {
      const p = position(c.score as number, board(c.board), c.higherIsBetter)
      expect(p.position).toBe(c.position)
      expect(p.percentile).toBeCloseTo(c.avgScore, 12)
    },
  )

  test('what is left out: NaN is no score here, no board is a fault, the mixed board stands below', () => {
    expect(simple.length).toBeGreaterThanOrEqual(75)
    expect(cases.length - simple.length).toBe(
      cases.filter((c) => c.score === 'nan' || !/^[a-z_]+$/.test(c.board)).length,
    )
  })
})

test('one score on two boards has the mean of its percentiles', () => {
  const mixed = cases.filter((c) => c.board.startsWith('mixed') && typeof c.score === 'number')
  expect(mixed.length).toBeGreaterThan(0)
  for (const c of mixed)
    expect(
      meanPercentile(
        c.score as number,
        [
          [0.9, 0.8, 0.7, 0.6],
          [0.95, 0.65],
        ],
        true,
      ),
    ).toBeCloseTo(c.avgScore, 12)
})

test('golden G19', () => {
  const b = [0.95, 0.9, 0.9, 0.8, 0.7]
  const at = (s: number): number => position(s, b, true).percentile
  expect([0.95, 0.9, 0.85, 0.7, 0.6].map(at)).toEqual([1, 0.8, 0.4, 0.2, 0])
  expect(meanPercentile(0.9, [b, [0.97, 0.88]], true)).toBeCloseTo(0.65, 12)
  expect(position(2, [1, 2, 2, 4], false).percentile).toBe(0.75)
  expect(position(3, [1, 2, 2, 4], false).percentile).toBe(0.25)
})

test('a board without entries has no positions', () => {
  expect(() => position(1, [], true)).toThrow(RangeError)
  expect(() => meanPercentile(1, [], true)).toThrow(RangeError)
})
