import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type BoardFile, GraderProcess } from '../grading/index.ts'
import { toyTask } from '../grading/testing.ts'
import type { TaskCard } from '../tasks/index.ts'
import { validateBoard, validateTask } from './validate.ts'

const boards = { scores: () => [0, 0.5, 1] }
const leakChecks = { featureRowsInBothSides: 0, proxySuspected: false }
/** Names of the checks that failed. */
const failing = async (
  change: Partial<TaskCard> = {},
  files: Record<string, string> = {},
  spoil?: (dir: string) => void,
) => {
  using toy = await toyTask({ leakChecks, ...change }, files)
  spoil?.(toy.task.dir)
  await using grader = new GraderProcess(boards)
  return (await validateTask(toy.task, grader, undefined)).filter((c) => !c.ok).map((c) => c.name)
}

test('a sound task is clean', async () => {
  expect(await failing()).toEqual([])
})

test.each([
  [
    'value of rank',
    { metric: { name: 'spearman', higherIsBetter: true } },
    'y\n1,1\n2,2\n',
    'y\n3,3\n4,4\n',
    'y\n1,0\n2,0\n3,0\n4,0\n',
    '1,1\n12,2,2\n13,3,3\n14,4,4',
  ],
] as const)('%s: clean, too', async (_, change, feedback, final, sample) => {
  const files = {
    'private/feedback.csv': `id,${feedback}`,
    'private/final.csv': `id,${final}`,
    'public/sample_submission.csv': `id,${sample}`,
  }
  expect(await failing(change as Partial<TaskCard>, files)).toEqual([])
})

describe('what is wrong is named', () => {
  test('answers that do not cover the test rows', async () => {
    expect(await failing({}, { 'private/final.csv': 'id,y\n3,3\n' })).toContain('answers')
  })
  test('a sample that is no valid submission', async () => {
    expect(await failing({}, { 'public/sample_submission.csv': 'id,z\n1,0\n' })).toEqual(
      expect.arrayContaining(['sample', 'malformed']),
    )
  })
  test('a suspected leak', async () => {
    expect(await failing({ leakChecks: { featureRowsInBothSides: 3, proxySuspected: false } })).toEqual(['no leak'])
    expect(await failing({ leakChecks: {} })).toEqual(['no leak'])
  })
  test('a truth that no submission can reach', async () => {
    // The metric wants a positive truth; an answer of text gives no score at all.
    expect(await failing({}, { 'private/feedback.csv': 'id,y\n1,one\n2,2\n' })).toContain('perfect')
  })
  test('no answers at all', async () => {
    await expect(failing({}, {}, (d) => rmSync(join(d, 'private', 'final.csv')))).rejects.toThrow(/final\.csv/)
    await expect(failing({}, {}, (d) => writeFileSync(join(d, 'private', 'final.csv'), ''))).rejects.toThrow(/empty/)
  })
})

describe('boards', () => {
  const board = (n: number, crippled: number, final: (i: number) => number, strong = 25): BoardFile => ({
    schema: 'wmrl-board/1',
    task: 't',
    metric: 'rmse',
    higherIsBetter: false,
    correlation: 0.98,
    entries: Array.from({ length: n }, (_, i) => ({
      recipe: `r${i}`,
      family: `f${i % 5}`,
      strength: i < crippled ? 'crippled' : i < crippled + strong ? 'strong' : 'plain',
      feedback: i,
      final: final(i),
    })),
    left: [],
  })
  const bad = (b: BoardFile): string[] =>
    validateBoard(b)
      .filter((c) => !c.ok)
      .map((c) => c.name)
  test('a good one', () => expect(bad(board(70, 14, (i) => i + 0.5))).toEqual([]))
  test('too few', () => expect(bad(board(69, 0, (i) => i))).toEqual(['board size']))
  test('too many crippled', () => expect(bad(board(70, 15, (i) => i))).toEqual(['board crippled']))
  test('too few strong', () => expect(bad(board(70, 14, (i) => i, 24))).toEqual(['board strong']))
  test('all the same', () => expect(bad(board(70, 0, () => 1))).toEqual(['board spread', 'board agreement']))
  test('two orders that disagree', () => expect(bad(board(70, 0, (i) => -i))).toEqual(['board agreement']))
})
