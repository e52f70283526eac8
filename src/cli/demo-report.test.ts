import { expect, test } from 'vitest'
import type { Verdict } from '../core/index.ts'
import { NO_COST } from '../core/index.ts'
import { loadConfig } from './config-file.ts'
import { attemptsOf, type Evaluated, type Fixed, fixedTogether, present, type SeedResult } from './demo-report.ts'

const graded = (score: number, scope: 'feedback' | 'final'): Verdict =>
  ({
    source: 'executed',
    outcome: { kind: 'graded', score, percentile: 2 * score - 1, scope },
    score,
    observation: { text: '' },
    cost: NO_COST,
  }) as Verdict

/** By task: feedback and final score. */
const fixed = (name: string, scores: readonly (readonly [number, number])[]): Fixed => {
  const finals = scores.map(([, f]) => f)
  return {
    name,
    score: finals.reduce((a, b) => a + b, 0) / finals.length,
    percentile: 0.5,
    byTask: finals.map((score, i) => ({ task: `builtin/t${i}`, score })),
    turns: scores.map(([a, b], i) => ({
      task: `builtin/t${i}`,
      sample: 0,
      turn: 0,
      feedback: graded(a, 'feedback'),
      final: graded(b, 'final'),
    })),
    rows: [],
  }
}
const LINEAR = fixed('linear', [
  [0.9, 0.8],
  [0.5, 0.6],
])
const FOREST = fixed('forest', [
  [0.6, 0.5],
  [0.7, 0.8],
])

test('so many fixed programs as there are attempts, the better ones first, each task by its feedback', () => {
  const poor = fixed('poor', [
    [1, 0.5],
    [1, 0.5],
  ])
  expect(fixedTogether([poor, FOREST, LINEAR], 2)).toEqual({ names: ['linear', 'forest'], score: 0.8 })
  expect(fixedTogether([FOREST, LINEAR], 1).score).toBeCloseTo(0.7, 12)
})

const evaluated = (scores: readonly number[], further: number): Evaluated => ({
  score: scores.reduce((a, b) => a + b, 0) / scores.length,
  valid: 1,
  percentile: 0.5,
  byTask: scores.map((score, i) => ({ task: `builtin/t${i}`, score })),
  furtherScore: further,
})
const seed = (n: number, before: readonly number[], after: readonly number[], control: readonly number[]): SeedResult =>
  ({
    seed: n,
    run: `runs/${n}`,
    before: evaluated(before, 0.7),
    after: evaluated(after, 0.9),
    control: evaluated(control, 0.8),
    training: {
      totals: {
        executions: 10,
        attemptsExecuted: 12,
        predictions: 80,
        sandboxCpuS: 6,
        sandboxWallS: 8,
        policyCpuS: 3,
        frozenCpuS: 1,
        wallS: 30,
        devWallS: 5,
      },
    } as unknown as SeedResult['training'],
    fidelity: {
      spearmanWithinTask: 0.5,
      spearmanAmongValid: null,
      outcomeAccuracy: 1,
    } as unknown as SeedResult['fidelity'],
    trainingCpuS: 6,
  }) satisfies SeedResult

test('gain and difference are paired over seeds, the distance to the best fixed program over tasks', () => {
  const first = loadConfig({ base: { train: { steps: 2, groups: 8, groupSize: 8, turns: 1 } } })
  const { json, text } = present({
    results: [
      seed(0, [0.5, 0.5], [0.7, 0.9], [0.6, 0.6]),
      seed(1, [0.4, 0.5], [0.6, 0.8], [0.6, 0.7]),
      seed(2, [0.6, 0.5], [0.8, 0.9], [0.7, 0.6]),
    ],
    fixed: [FOREST, LINEAR],
    sandbox: { cpuS: 0, executions: 0 },
    cpuS: 1,
    wallS: 1,
    first,
    workers: 2,
  })
  const d = json as Record<string, Record<string, { mean: number; lo: number | null }>>
  expect(d.heldOut!.gain!.mean).toBeCloseTo((0.3 + 0.25 + 0.3) / 3, 12)
  expect(d.heldOut!.gain!.lo).toBeGreaterThan(0)
  // Forest and linear both have .65 or .7: linear is the best, and the agent's means by task are .7 and .8667.
  expect(d.toBestFixed!.difference!.mean).toBeCloseTo((0.7 - 0.8 + (2.6 / 3 - 0.6)) / 2, 12)
  expect(d.toBestFixed!.difference!.lo).not.toBeNull()
  expect(d.toBestFixed).toMatchObject({ name: 'linear', verdict: 'no difference' })
  expect(d.further).toMatchObject({ attempts: attemptsOf(1), fixed: { names: ['linear', 'forest'] } })
  expect(d.further!.gain!.mean).toBeCloseTo(0.2, 12)
  expect(d.anchorsOnly!.difference!.mean).toBeCloseTo((0.2 + 0.05 + 0.2) / 3, 12)
  expect(json).toMatchObject({ allExecutedEquivalent: 3 * 2 * 8 * 8, executions: 30 })
  expect(text).toContain('minus the best fixed program (linear)')
})

test('a seed in which nothing was valid has no percentile, and is left out of its mean', () => {
  const first = loadConfig({ base: { train: { steps: 2, groups: 8, groupSize: 8, turns: 1 } } })
  const one = seed(0, [0.5, 0.5], [0.7, 0.9], [0.6, 0.6])
  const { json, text } = present({
    results: [
      one,
      { ...one, seed: 1, after: { ...one.after, percentile: null }, before: { ...one.before, percentile: null } },
    ],
    fixed: [FOREST, { ...LINEAR, score: null, percentile: null }],
    sandbox: { cpuS: 0, executions: 0 },
    cpuS: 1,
    wallS: 1,
    first,
    workers: 2,
  })
  expect(json).toMatchObject({ percentile: { before: 0.5, after: 0.5 }, toBestFixed: { name: 'forest' } })
  expect(json).toMatchObject({ bills: { executions: { used: 12 } } })
  expect(text).toContain('fixed linear    score -  percentile -')
})
