import { describe, expect, test } from 'vitest'
import { cardOf } from '../grading/testing.ts'
import type { Task, TaskCard } from '../tasks/index.ts'
import { headroom, portablePrograms, programsFor } from './headroom.ts'
import type { ProgramScorer, RawResult } from './score-program.ts'

const label = { type: 'label', positive: false, skewed: false, rarest: 0.1 } as const
const cards: Record<string, TaskCard> = {
  table: cardOf({
    columns: [
      { name: 'c', type: 'category', levels: 4, missing: true },
      { name: 'd', type: 'date', missing: false },
    ],
  }),
  ordered: cardOf({
    metric: { name: 'qwk', higherIsBetter: true },
    submission: { kind: 'label', idColumn: 'id', columns: ['y'], classes: ['0', '1', '2'] },
  }),
  binary: cardOf({
    metric: { name: 'log_loss', higherIsBetter: false },
    submission: { kind: 'prob', idColumn: 'id', columns: ['y'] },
  }),
  survival: cardOf({
    metric: { name: 'cindex', higherIsBetter: true },
    submission: { kind: 'value', idColumn: 'id', columns: ['risk'] },
    extraTrainColumns: ['event'],
  }),
  several: cardOf({
    metric: { name: 'mcrmse', higherIsBetter: false },
    submission: { kind: 'multi', idColumn: 'id', columns: ['u', 'v'] },
    targets: ['u', 'v'],
  }),
  text: cardOf({
    modality: 'text',
    columns: [{ name: 't', type: 'text', missing: false }],
    metric: { name: 'map_at_3', higherIsBetter: true },
    submission: { kind: 'topk', idColumn: 'id', columns: ['y'], classes: ['a', 'b', 'c', 'd'] },
    target: label,
  }),
  image: cardOf({
    modality: 'image',
    images: 'zip',
    columns: [],
    metric: { name: 'mc_log_loss', higherIsBetter: false },
    submission: { kind: 'proba', idColumn: 'id', columns: ['a', 'b'], classes: ['a', 'b'] },
    target: label,
  }),
  series: cardOf({
    modality: 'signal',
    columns: [{ name: 'series', type: 'series', missing: false }],
    metric: { name: 'macro_f1', higherIsBetter: true },
    submission: { kind: 'label', idColumn: 'id', columns: ['y'], classes: ['a', 'b', 'c'] },
    target: label,
  }),
}
const tasks = Object.entries(cards).map(
  ([id, c]) => ({ card: { ...c, id }, ref: { suite: 'small', id, modality: c.modality, split: 'train' } }) as Task,
)
const boards = { scores: () => [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0] }

test('a portable program has one name everywhere and a form for every kind of task', () => {
  const names = portablePrograms().map((p) => p.name)
  expect(names.length).toBeGreaterThanOrEqual(60)
  expect(new Set(names).size).toBe(names.length)
  for (const t of tasks) {
    const programs = programsFor(t.card, 200)
    expect(new Set(programs.map((p) => p.code)).size).toBe(200)
    expect(programs.slice(0, names.length).map((p) => p.name)).toEqual(names)
    for (const p of programs) expect(p.code).toContain('submission.csv')
    expect(programsFor(t.card, 200)).toEqual(programs)
  }
})

test('what a task cannot take is replaced: no classifier without probabilities where they are asked for', () => {
  for (const id of ['binary', 'image'])
    for (const p of portablePrograms())
      expect(['svm', 'ridge', 'linearsvm']).not.toContain(p.spec(cards[id]!).model.family)
  for (const p of portablePrograms())
    expect(['lightgbm', 'histboost', 'svm', 'boosting']).not.toContain(p.spec(cards.several!).model.family)
})

describe('the head-room', () => {
  const signal = new AbortController().signal
  /** Scores by program name and task, as percentiles of the board. */
  const scorer = (f: (task: string, code: string) => RawResult): ProgramScorer => ({
    score: async (t, code) => f(t.card.id, code),
  })
  const valid = (feedback: number): RawResult => ({ kind: 'valid', scores: { feedback }, cpuS: 1, cached: false })
  const two = ['one', 'other'].map(
    (id) => ({ ...tasks[0]!, card: { ...cards.table!, id, metric: { name: 'r2', higherIsBetter: true } } }) as Task,
  )

  test('is the mean of the best less the mean of the best single program; what fails counts 0', async () => {
    const [first, second] = portablePrograms()
    const code = (t: Task, k: number): string => programsFor(t.card, 2)[k]!.code
    const h = await headroom(two, {
      programs: 2,
      width: 2,
      boards,
      signal,
      scorer: scorer((id, c) => {
        const t = two.find((x) => x.card.id === id)!
        // The first program is best on one task and fails on the other, the second is fair on both.
        if (c === code(t, 0))
          return id === two[0]!.card.id ? valid(0.9) : { kind: 'failed', text: 'error', cpuS: 1, cached: false }
        return valid(0.5)
      }),
    })
    expect(h.tasks.map((t) => [t.best, t.bestProgram, t.valid])).toEqual([
      [1, first!.name, 2],
      [0.6, second!.name, 1],
    ])
    expect(h.bestSingle.program).toBe(second!.name)
    expect(h.bestSingle.mean).toBeCloseTo(0.6, 12)
    expect(h.gap).toBeCloseTo(0.8 - 0.6, 12)
    expect(h.singles.map((s) => s.mean)).toEqual([expect.closeTo(0.6, 9), expect.closeTo(0.5, 9)])
  })

  test('trouble of ours is left out, not counted as 0', async () => {
    const h = await headroom(two.slice(0, 1), {
      programs: 3,
      width: 1,
      boards,
      signal,
      scorer: scorer((_, c) =>
        c === programsFor(two[0]!.card, 3)[0]!.code ? { kind: 'unscorable', detail: 'x' } : valid(0.5),
      ),
    })
    expect(h.tasks[0]).toMatchObject({ programs: 2, valid: 2 })
    expect(h.singles.map((x) => x.program)).toEqual(
      portablePrograms()
        .slice(1, 3)
        .map((p) => p.name),
    )
    const none = headroom(two.slice(0, 1), {
      programs: 3,
      width: 1,
      boards,
      signal,
      scorer: scorer(() => ({ kind: 'unscorable', detail: 'no sandbox' })),
    })
    await expect(none).rejects.toThrow('one: none of its programs could be executed: no sandbox')
    expect(h.bestSingle.mean).toBeCloseTo(0.6, 12)
  })

  test('stops at an abort', async () => {
    const abort = new AbortController()
    abort.abort(new Error('enough'))
    const o = { programs: 3, width: 1, boards, signal: abort.signal, scorer: scorer(() => valid(0.5)) }
    await expect(headroom(two, o)).rejects.toThrow('enough')
  })
})
