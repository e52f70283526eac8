import { expect, test } from 'vitest'
import type { Trajectory } from '../agent/index.ts'
import { lengthAlarm, lengthDependence } from './length-dependence.ts'

const of = (tokens: number, bad: boolean): Trajectory =>
  ({
    mask: [0, 0, ...new Array(tokens).fill(1)],
    ...(bad ? { unscorable: { cause: 'format', detail: '' } } : {}),
  }) as never
const many = (lengths: readonly number[], bad: boolean): Trajectory[] => lengths.map((n) => of(n, bad))
const LONG = [80, 90, 95, 99, 97, 93]
const SHORT = [30, 41, 52, 33, 44, 55, 36, 47]

test('long programs that are left out raise the alarm, and so do short ones', () => {
  const d = lengthDependence([...many(LONG, true), ...many(SHORT, false)])!
  // All six above all eight: U = 48, mean 24, deviation sqrt(48 * 15 / 12).
  expect(d.z).toBeCloseTo(24 / Math.sqrt(60), 12)
  expect(lengthAlarm([...many(LONG, true), ...many(SHORT, false)], 3)[0]).toMatch(/longer.*92 tokens.*42/)
  expect(lengthAlarm([...many(SHORT, true), ...many(LONG, false)], 3)[0]).toMatch(/shorter/)
})

test('the same lengths on both sides raise none, nor do too few, nor trouble before a token was sampled', () => {
  expect(lengthDependence([...many(SHORT, true), ...many(SHORT, false)])!.z).toBeCloseTo(0, 12)
  expect(lengthAlarm([...many(LONG.slice(0, 3), true), ...many(SHORT, false)], 3)).toEqual([])
  expect(lengthDependence([...many([50, 50, 50, 50], true), ...many([50, 50, 50, 50], false)])).toBeUndefined()
  expect(lengthDependence([...many(new Array(9).fill(0), true), ...many(SHORT, false)])).toBeUndefined()
})
