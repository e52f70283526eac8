import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { METRIC_NAMES, type MetricName } from '../tasks/index.ts'
import { evaluate, roundHalfEven } from './metrics.ts'

interface Case {
  readonly metric: MetricName
  readonly truth: readonly (number | string | readonly number[])[]
  readonly pred: readonly (number | string | readonly number[])[]
  readonly event?: readonly number[]
  readonly score: number
}
const cases = (
  JSON.parse(readFileSync(new URL('./__fixtures__/builtin-metrics.json', import.meta.url), 'utf8')) as { cases: Case[] }
).cases

/** Rows to columns of text, as the check hands them over. */
const columns = (rows: Case['truth']): string[][] => {
  const width = Array.isArray(rows[0]) ? rows[0].length : 1
  return Array.from({ length: width }, (_, c) => rows.map((r) => String(Array.isArray(r) ? r[c] : r)))
}

describe('recorded scores of the reference implementation', () => {
  test.each(cases.map((c, i) => [`${c.metric} #${i}`, c] as const))('%s', (_, c) => {
    const predicted = columns(c.pred)
    const got = evaluate(c.metric, {
      predicted,
      truth: columns(c.truth),
      ...(c.event ? { event: c.event.map(String) } : {}),
      classes: predicted.length > 1 ? predicted.map((_p, i) => String(i)) : [],
    })
    expect(Math.abs(got - c.score)).toBeLessThanOrEqual(1e-9 * Math.max(1, Math.abs(c.score)))
  })

  test('every metric has a recorded case', () => {
    expect([...new Set(cases.map((c) => c.metric))].sort()).toEqual([...METRIC_NAMES].sort())
  })
})

test('a metric does not depend on the order of rows', () => {
  for (const c of cases) {
    const order = c.truth.map((_, i) => i).sort((a, b) => ((a * 7919) % 101) - ((b * 7919) % 101))
    const turned = (rows: Case['truth']): Case['truth'] => order.map((i) => rows[i]!)
    const score = (t: Case['truth'], p: Case['pred'], e?: readonly number[]): number => {
      const predicted = columns(p)
      return evaluate(c.metric, {
        predicted,
        truth: columns(t),
        ...(e ? { event: e.map(String) } : {}),
        classes: predicted.map((_p, i) => String(i)),
      })
    }
    const event = c.event && order.map((i) => c.event![i]!)
    expect(score(turned(c.truth), turned(c.pred), event)).toBeCloseTo(score(c.truth, c.pred, c.event), 9)
  }
})

test('halves are rounded to the even neighbour', () => {
  expect([0.5, 1.5, 2.5, 2.4, 2.6].map(roundHalfEven)).toEqual([0, 2, 2, 2, 3])
})
