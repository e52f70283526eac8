import { expect, test } from 'vitest'
import { pace } from './command.ts'

const tenSecondsAgo = (): number => Date.now() - 10_000

test('a rate and the time left, once there is something to tell them by', () => {
  expect(pace(tenSecondsAgo(), 0, 36, 'tasks')).toBe('0 of 36 tasks')
  expect(pace(tenSecondsAgo(), 20, 36, 'tasks')).toMatch(/^20 of 36 tasks, 2\.0\/s, [89] s left$/)
})

test('what was known already says nothing of either: no estimate before something took its time', () => {
  expect(pace(tenSecondsAgo(), 1400, 3140, 'programs', 1400)).toBe('1400 of 3140 programs, 1400 known')
  expect(pace(tenSecondsAgo(), 1405, 1505, 'programs', 1400)).toMatch(
    /^1405 of 1505 programs, 1400 known, 0\.5\/s, 20[01] s left$/,
  )
  expect(pace(tenSecondsAgo(), 1505, 1505, 'programs', 1505)).toBe('1505 of 1505 programs, 1505 known')
})
