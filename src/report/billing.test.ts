import { expect, test } from 'vitest'
import { bills, showBills } from './billing.ts'

const USED = { attemptsExecuted: 10, sandboxCpuS: 20, sandboxWallS: 30, policyCpuS: 15, frozenCpuS: 5, wallS: 60 }

test('a saving under three billings', () => {
  const b = bills(USED, 80, 2)
  expect(b.executions).toEqual({ used: 20, allExecuted: 160, times: 8 })
  // The frozen backbone is what predictions cost; training on executions alone would not have asked it.
  expect(b.compute).toEqual({ used: 40, allExecuted: 175, times: 4.375 })
  expect(b.wall).toEqual({ used: 60, allExecuted: 60 + (7 * 30) / 2, times: 2.75 })
  expect(showBills(b)).toBe(
    'executions only 8.0 times (20 of 160 CPU s), all compute 4.4 times (40 of 175 CPU s), idle included 2.8 times (60 of 165 s of wall time)',
  )
})

test('where nothing was executed nothing is extrapolated', () => {
  const b = bills({ ...USED, attemptsExecuted: 0, sandboxCpuS: 0, sandboxWallS: 0 }, 80, 2)
  expect(b.executions).toEqual({ used: 0, allExecuted: 0, times: null })
  expect(b.compute.times).toBe(15 / 20)
  expect(showBills(b)).toContain('executions only - times')
})
