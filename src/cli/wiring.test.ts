import { expect, test } from 'vitest'
import { catalogue } from '../tasks/index.ts'
import { littleIds } from './wiring.ts'

test('little tasks: three quarters tables that are quick to prepare, no texts, the same each time, all of the suite small', () => {
  const ids = littleIds(40)
  expect(new Set(ids).size).toBe(40)
  expect(littleIds(40)).toEqual(ids)
  const known = new Set(catalogue('small').map((e) => e.id))
  expect(ids.filter((id) => !known.has(id))).toEqual([])
  const tables = ids.filter((id) => id.startsWith('table-'))
  expect(tables).toHaveLength(30)
  expect(ids.filter((id) => id.startsWith('text-'))).toEqual([])
  // Preparing stops at the last table asked for: none of them may stand far down the suite's order.
  expect(Math.max(...tables.map((id) => Number(id.slice(6))))).toBeLessThan(40)
  expect(littleIds(20).every((id) => ids.includes(id))).toBe(true)
  expect(() => littleIds(100_000)).toThrow(/tasks\.little: \d+ little tasks have a leaderboard/)
})
