import { expect, test } from 'vitest'
import type { Scope } from '../core/index.ts'
import type { Task } from '../tasks/index.ts'
import { CachedGrader } from './cached.ts'
import type { GradeResult } from './grade.ts'
import type { Grader } from './grader.ts'

const task = (id: string): Task => ({ ref: { suite: 'small', id, modality: 'tabular', split: 'train' } }) as Task
const csv = (text: string): Uint8Array => new TextEncoder().encode(text)

/** Counts its grades; the first `faults` are faults. */
function counting(o: { faults?: number; version?: () => Promise<string> } = {}): Grader & { grades: number } {
  const g = {
    grades: 0,
    grade: async (_: Task, __: Uint8Array, scope: Scope): Promise<GradeResult> => {
      g.grades++
      if (g.grades <= (o.faults ?? 0)) return { kind: 'fault', where: 'grader', message: 'gone' }
      return { kind: 'scored', scope, score: g.grades, percentile: 0.5, n: 2 }
    },
    version: o.version ?? (async (_: Task, scope: Scope) => `v ${scope}`),
    [Symbol.asyncDispose]: async () => {},
  }
  return g
}

test('equal bytes are graded once, also while under way; another submission, scope, task or version is not', async () => {
  let version = 'a'
  const inner = counting({ version: async () => version })
  const grader = new CachedGrader(inner)
  const one = await Promise.all([1, 2, 3].map(() => grader.grade(task('a'), csv('x'), 'feedback')))
  expect(one.map((g) => g.kind === 'scored' && g.score)).toEqual([1, 1, 1])
  expect(await grader.grade(task('a'), csv('x'), 'feedback')).toEqual(one[0])
  expect(inner.grades).toBe(1)
  await grader.grade(task('a'), csv('y'), 'feedback')
  expect(await grader.grade(task('a'), csv('x'), 'final')).toMatchObject({ scope: 'final' })
  await grader.grade(task('b'), csv('x'), 'feedback')
  expect(inner.grades).toBe(4)
  version = 'b'
  await grader.grade(task('a'), csv('x'), 'feedback')
  expect(inner.grades).toBe(5)
})

test('a fault is never kept', async () => {
  const grader = new CachedGrader(counting({ faults: 1 }))
  expect(await grader.grade(task('a'), csv('x'), 'feedback')).toMatchObject({ kind: 'fault' })
  expect(await grader.grade(task('a'), csv('x'), 'feedback')).toMatchObject({ kind: 'scored' })
})

test('a version that cannot be had is the fault of what it rests on', async () => {
  const inner = counting({ faults: 1, version: () => Promise.reject(new Error('ENOENT')) })
  expect(await new CachedGrader(inner).grade(task('a'), csv('x'), 'feedback')).toMatchObject({ kind: 'fault' })
})
