import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { GraderError, type TaskRef } from '../core/index.ts'
import { FileBoards, ScoreBoards } from './boards.ts'

const dir = mkdtempSync(join(tmpdir(), 'wmrl-boards-'))
mkdirSync(join(dir, 'builtin'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const entry = (feedback: number, final: number) => ({
  recipe: `r${feedback}`,
  family: 'f',
  strength: 'plain',
  feedback,
  final,
})
const board = (change: object = {}) => ({
  schema: 'wmrl-board/1',
  task: 't',
  metric: 'rmse',
  higherIsBetter: false,
  correlation: 0.98,
  entries: [entry(2, 1), entry(1, 3), entry(3, 2)],
  left: [],
  ...change,
})
let n = 0
/** A board file with this text, under an id of its own. */
function written(text: string): TaskRef {
  const id = `board-${++n}`
  writeFileSync(join(dir, 'builtin', `${id}.json`), text)
  return { suite: 'builtin', id, modality: 'tabular', split: 'train' }
}
const scores = (ref: TaskRef) => new FileBoards(dir).scores(ref, 'feedback')

test('scores come best first, each scope by itself', () => {
  const low = written(JSON.stringify(board()))
  expect(scores(low)).toEqual([1, 2, 3])
  expect(new FileBoards(dir).scores(low, 'final')).toEqual([1, 2, 3])
  expect(scores(written(JSON.stringify(board({ higherIsBetter: true }))))).toEqual([3, 2, 1])
})

const broken: [string, string, RegExp][] = [
  ['one entry', JSON.stringify(board({ entries: [entry(1, 1)] })), /at least two entries/],
  ['no entry', JSON.stringify(board({ entries: [] })), /at least two entries/],
  ['cut off', JSON.stringify(board()).slice(0, 90), /JSON/],
  ['a pointer of git-lfs', 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n', /JSON/],
  [
    'a score that is no number',
    JSON.stringify(board({ entries: [entry(1, 1), { ...entry(2, 2), final: null }] })),
    /entries\.1\.final/,
  ],
  ['another schema', JSON.stringify(board({ schema: 'wmrl-board/9' })), /schema/],
]
test.each(broken)('%s: one line that names the file and the fix', (_, text, why) => {
  const ref = written(text)
  expect(() => scores(ref)).toThrow(GraderError)
  try {
    scores(ref)
  } catch (e) {
    const message = (e as Error).message
    expect(message).toMatch(why)
    expect(message).toContain(join(dir, 'builtin', `${ref.id}.json`))
    expect(message).toContain(`run: wmrl tasks boards ${ref.id}`)
    expect(message).not.toContain('\n')
  }
})

test('no file', () => {
  expect(() => scores({ suite: 'builtin', id: 'nowhere', modality: 'text', split: 'dev' })).toThrow(
    /nowhere\.json.*wmrl tasks boards/,
  )
})

const small = (id: string): TaskRef => ({ suite: 'small', id, modality: 'tabular', split: 'train' })
const scoresAt = (name: string, text: string): ScoreBoards => {
  writeFileSync(join(dir, name), text)
  return new ScoreBoards(join(dir, name))
}

test('boards of a whole suite: feedback best first, no final board, unknown tasks and broken files in one line', () => {
  const file = {
    schema: 'wmrl-scores/1',
    suite: 'small',
    tasks: { up: { higherIsBetter: true, feedback: [1, 3, 2] }, down: { higherIsBetter: false, feedback: [2, 1] } },
  }
  const b = scoresAt('small.json', JSON.stringify(file))
  expect(b.ids()).toEqual(['down', 'up'])
  expect(b.scores(small('up'), 'feedback')).toEqual([3, 2, 1])
  expect(b.scores(small('down'), 'feedback')).toEqual([1, 2])
  expect(() => b.scores(small('up'), 'final')).toThrow(/no final leaderboard.*evaluate on builtin/)
  expect(() => b.scores(small('other'), 'feedback')).toThrow(/other has no feedback leaderboard/)
  expect(new ScoreBoards(join(dir, 'none.json')).ids()).toEqual([])
  expect(() => scoresAt('cut.json', '{"sch').ids()).toThrow(/cut\.json.*run: wmrl lab corpus$/)
  const one = { ...file, tasks: { t: { higherIsBetter: true, feedback: [1] } } }
  expect(() => scoresAt('one.json', JSON.stringify(one)).ids()).toThrow(/tasks\.t\.feedback.*at least two entries/)
})
