import { describe, expect, test } from 'vitest'
import { gradeSubmission, readAnswers } from './grade.ts'
import { cardOf, TOY_IDS } from './testing.ts'

const bytes = (t: string): Uint8Array => new TextEncoder().encode(t)
const card = cardOf()
const feedback = readAnswers(card, TOY_IDS, bytes('id,y\n1,1.5\n2,2.5\n'))
const BOARD = [0.1, 0.5, 1, 2]
const csv = (a: number, b: number, c = 0, d = 0): Uint8Array => bytes(`id,y\n3,${c}\n1,${a}\n4,${d}\n2,${b}\n`)
const grade = (submission: Uint8Array, board: readonly number[] = BOARD) =>
  gradeSubmission(card, feedback, board, 'feedback', submission)

test('scores the rows of the scope alone', () => {
  expect(grade(csv(1.5, 2.5, 1e6, -1e6))).toEqual({ kind: 'scored', scope: 'feedback', score: 0, percentile: 1, n: 2 })
  expect(grade(csv(2, 2))).toMatchObject({ kind: 'scored', score: 0.5, percentile: 0.75 })
  expect(grade(csv(9, 9))).toMatchObject({ percentile: 0 })
})

test('the whole submission is checked, also the rows of the other scope', () => {
  expect(gradeSubmission(card, feedback, BOARD, 'feedback', bytes('id,y\n1,1.5\n2,2.5\n'))).toMatchObject({
    code: 'row-count',
  })
  expect(grade(bytes('id,y\n1,1.5\n2,2.5\n3,nan\n4,1\n'))).toMatchObject({ kind: 'invalid', code: 'not-finite' })
})

describe('trouble of ours is a fault, never a score', () => {
  test('a degenerate truth', () => {
    const r2 = cardOf({ metric: { name: 'r2', higherIsBetter: true } })
    const flat = readAnswers(r2, TOY_IDS, bytes('id,y\n1,2\n2,2\n'))
    expect(gradeSubmission(r2, flat, BOARD, 'feedback', csv(1, 2))).toMatchObject({ kind: 'fault', where: 'grader' })
  })
  test('a board of one', () => {
    expect(grade(csv(1, 2), [1])).toMatchObject({ kind: 'fault', where: 'board' })
    expect(grade(csv(1, 2), [])).toMatchObject({ kind: 'fault', where: 'board' })
  })
  test('an answer to no test row', () => {
    const odd = readAnswers(card, TOY_IDS, bytes('id,y\n1,2\n99,2\n'))
    expect(gradeSubmission(card, odd, BOARD, 'feedback', csv(1, 2))).toMatchObject({ kind: 'fault', where: 'answers' })
  })
})

describe('answers that cannot be read', () => {
  const cases: [string, Uint8Array, RegExp][] = [
    ['not UTF-8', new Uint8Array([0x69, 0x64, 0x2c, 0xff]), /not UTF-8/],
    ['without the target', bytes('id,z\n1,1\n'), /lack column y/],
    ['empty', bytes(''), /empty/],
    ['ragged', bytes('id,y\n1,2,3\n'), /row 1/],
  ]
  test.each(cases)('%s', (_, b, why) => {
    expect(() => readAnswers(card, TOY_IDS, b)).toThrow(why)
  })
})

test('no message holds an answer', () => {
  const secret = readAnswers(card, TOY_IDS, bytes('id,y\n1,4242.5\n2,4243.5\n'))
  const tries = [
    '',
    'id,y\n1,1\n',
    'id,y\n1,x\n2,1\n3,1\n4,1\n',
    'a,b\n1,2\n',
    'id,y\n1,1\n1,1\n3,1\n4,1\n',
    'id,y\n9,1\n2,1\n3,1\n4,1\n',
  ]
  for (const t of tries)
    expect(JSON.stringify(gradeSubmission(card, secret, BOARD, 'feedback', bytes(t)))).not.toContain('424')
})

test('-0 is 0', () => {
  const corr = cardOf({ metric: { name: 'spearman', higherIsBetter: true } })
  const g = gradeSubmission(corr, readAnswers(corr, TOY_IDS, bytes('id,y\n1,1\n2,1\n')), BOARD, 'feedback', csv(1, 2))
  expect(g.kind === 'scored' && Object.is(g.score, 0)).toBe(true)
})
