import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { InvalidCode } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'
import { type CheckedSubmission, canonicalLabel, checkSubmission, MAX_SUBMISSION_BYTES, type Refusal } from './check.ts'
import { cardOf, TOY_IDS } from './testing.ts'

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const check = (card: TaskCard, csv: string | Uint8Array): CheckedSubmission | Refusal =>
  checkSubmission(card, TOY_IDS, typeof csv === 'string' ? bytes(csv) : csv)

const value = cardOf()
const log = cardOf({
  metric: { name: 'rmsle', higherIsBetter: false },
})
const prob = cardOf({
  metric: { name: 'log_loss', higherIsBetter: false },
  submission: { kind: 'prob', idColumn: 'id', columns: ['y'] },
})
const rank = cardOf({
  metric: { name: 'auc', higherIsBetter: true },
  submission: { kind: 'prob', idColumn: 'id', columns: ['y'] },
})
const label = cardOf({
  metric: { name: 'accuracy', higherIsBetter: true },
  submission: { kind: 'label', idColumn: 'id', columns: ['y'], classes: ['0', '1', 'two'] },
})
const proba = cardOf({
  metric: { name: 'mc_log_loss', higherIsBetter: false },
  submission: { kind: 'proba', idColumn: 'id', columns: ['a', 'b'], classes: ['a', 'b'] },
})
const topk = cardOf({
  metric: { name: 'map_at_3', higherIsBetter: true },
  submission: { kind: 'topk', idColumn: 'id', columns: ['y'], classes: ['a', 'b', 'c', 'd'] },
})
const multi = cardOf({
  metric: { name: 'mcrmse', higherIsBetter: false },
  submission: { kind: 'multi', idColumn: 'id', columns: ['u', 'v'] },
  targets: ['u', 'v'],
})
const rows = (...cells: string[]): string => `id,y\n${cells.map((c, i) => `${i + 1},${c}`).join('\n')}\n`

/** What the message must name, beside the code. */
const refused: [string, TaskCard, string | Uint8Array, InvalidCode, RegExp][] = [
  ['too large', value, new Uint8Array(MAX_SUBMISSION_BYTES + 1), 'too-large', /larger than/],
  ['not UTF-8', value, new Uint8Array([0x69, 0x64, 0xff]), 'unreadable', /UTF-8/],
  ['an unclosed quote', value, 'id,y\n1,"2\n', 'unreadable', /submission\.csv/],
  ['a ragged row', value, 'id,y\n1,2\n2,3,4\n3,1\n4,1\n', 'unreadable', /row 2/],
  ['nothing', value, '', 'empty', /empty/],
  ['only line ends', value, '\n \n', 'empty', /empty/],
  ['a missing column', value, 'id\n1\n2\n3\n4\n', 'columns', /"y"/],
  ['another name', value, 'id,pred\n1,1\n2,1\n3,1\n4,1\n', 'columns', /"y"/],
  ['an extra column', value, 'id,y,z\n1,1,1\n2,1,1\n3,1,1\n4,1,1\n', 'columns', /"z"/],
  ['a column twice', value, 'id,y,y\n1,1,1\n2,1,1\n3,1,1\n4,1,1\n', 'columns', /twice/],
  ['only a header', value, 'id,y\n', 'row-count', /0 rows, expected 4/],
  ['a row too few', value, rows('1', '1', '1'), 'row-count', /3 rows.*"4" is missing/],
  ['all rows twice', value, `${rows('1', '1', '1', '1')}1,1\n2,1\n3,1\n4,1\n`, 'id-duplicate', /rows 1 and 5/],
  ['a repeated id', value, 'id,y\n1,1\n2,1\n2,1\n4,1\n', 'id-duplicate', /"2" stands in rows 2 and 3/],
  ['an unknown id', value, 'id,y\n1,1\n2,1\n9,1\n4,1\n', 'id-unknown', /row 3.*"9"/],
  ['an id of another form', value, 'id,y\n1.0,1\n2,1\n3,1\n4,1\n', 'id-unknown', /row 1.*"1\.0"/],
  ['no id', value, 'id,y\n1,1\n,1\n3,1\n4,1\n', 'id-missing', /row 2/],
  ['NaN', value, rows('1', 'NaN', '1', '1'), 'not-finite', /row 2, column "y"/],
  ['an empty cell', value, rows('1', '1', '', '1'), 'not-finite', /row 3, column "y"/],
  ['infinity', value, rows('1', '1', '1', 'inf'), 'not-finite', /row 4/],
  ['a number that overflows', value, rows('1', '1', '1', '1e999'), 'not-finite', /row 4/],
  ['text', value, rows('1', 'abc', '1', '1'), 'not-finite', /row 2/],
  ['hexadecimal', value, rows('0x10', '1', '1', '1'), 'not-finite', /row 1/],
  ['a negative under a logarithm', log, rows('1', '-1', '1', '1'), 'out-of-range', /row 2.*negative/],
  ['a probability above 1', prob, rows('0.1', '1.5', '0', '1'), 'out-of-range', /row 2/],
  ['a negative probability', prob, rows('0.1', '-0.5', '0', '1'), 'out-of-range', /row 2/],
  ['an unknown label', label, rows('0', '1', 'three', '0'), 'unknown-label', /row 3.*"three"/],
  ['an empty label', label, rows('0', '1', '', '0'), 'not-finite', /row 3/],
  ['NaN as a label', label, rows('0', 'nan', '1', '0'), 'unknown-label', /row 2/],
  ['an unknown guess', topk, rows('a b', 'a z', 'a', 'b'), 'unknown-label', /row 2.*"z"/],
  ['four guesses', topk, rows('a b c d', 'a', 'a', 'b'), 'out-of-range', /row 1/],
  ['no guess', topk, rows('a', '', 'a', 'b'), 'not-finite', /row 2/],
  ['a negative class column', proba, 'id,a,b\n1,1,0\n2,1,-1\n3,1,0\n4,0,1\n', 'out-of-range', /row 2, column "b"/],
  ['a row of zeros', proba, 'id,a,b\n1,1,0\n2,0,0\n3,1,0\n4,0,1\n', 'row-sum', /row 2/],
  ['a second target missing', multi, 'id,u\n1,1\n2,1\n3,1\n4,1\n', 'columns', /"v"/],
  ['a second target not finite', multi, 'id,u,v\n1,1,1\n2,1,nan\n3,1,1\n4,1,1\n', 'not-finite', /row 2, column "v"/],
]

describe('refused, with the row or column at fault', () => {
  test.each(refused)('%s', (_, card, csv, code, names) => {
    const r = check(card, csv)
    expect(r).toMatchObject({ code })
    expect((r as Refusal).message).toMatch(names)
  })

  test('every code that a check can give occurs', () => {
    const ours: InvalidCode[] = [
      'unreadable',
      'empty',
      'columns',
      'row-count',
      'id-unknown',
      'id-missing',
      'id-duplicate',
      'not-finite',
      'out-of-range',
      'row-sum',
      'unknown-label',
      'too-large',
    ]
    // `missing` is said where there is no file, `grader-refused` by a benchmark's own grader.
    expect(new Set(refused.map((r) => r[3]))).toEqual(new Set(ours))
  })
})

const accepted: [string, TaskCard, string, string[][]][] = [
  ['as asked', value, rows('1', '2', '3', '4'), [['1', '2', '3', '4']]],
  ['in another order', value, 'id,y\n4,4\n2,2\n1,1\n3,3\n', [['1', '2', '3', '4']]],
  ['columns in another order', value, 'y,id\n4,4\n2,2\n1,1\n3,3\n', [['1', '2', '3', '4']]],
  ['byte-order mark and CRLF', value, '\ufeffid,y\r\n1,1\r\n2,2\r\n3,3\r\n4,4\r\n', [['1', '2', '3', '4']]],
  ['quoted cells', value, '"id","y"\n"1","1"\n2,2\n3,3\n4,4\n', [['1', '2', '3', '4']]],
  [
    'scores that are no probabilities where only ranks count',
    rank,
    rows('-3', '7', '0', '1e9'),
    [['-3', '7', '0', '1e9']],
  ],
  ['whole numbers written as decimals', label, rows('0.0', '1.0', 'two', '0'), [['0', '1', 'two', '0']]],
  ['fewer than three guesses', topk, rows('a', 'b a', 'd c a', 'b'), [['a', 'b a', 'd c a', 'b']]],
  [
    'class columns that do not sum to 1',
    proba,
    'id,b,a\n1,1,2\n2,0,1\n3,5,0\n4,1,1\n',
    [
      ['2', '1', '0', '1'],
      ['1', '0', '5', '1'],
    ],
  ],
]

describe('accepted, in the order of the ids', () => {
  test.each(accepted)('%s', (_, card, csv, predicted) => {
    expect(check(card, csv)).toEqual({ predicted })
  })
})

test('labels are canonical', () => {
  expect(['3.0', '3.', '-2.00', '3.5', 'a.0', '03'].map(canonicalLabel)).toEqual(['3', '3', '-2', '3.5', 'a.0', '03'])
})

test('no submission throws or is both accepted and not finite', () => {
  const cell = fc.oneof(fc.double().map(String), fc.string(), fc.constantFrom('', 'NaN', '1', '-inf', '"', '1e3'))
  const csv = fc
    .tuple(
      fc.constantFrom('id,y', 'y,id', 'id', 'id,y,z'),
      fc.array(fc.tuple(fc.constantFrom(...TOY_IDS), cell), { maxLength: 6 }),
    )
    .map(([h, rs]) => `${h}\n${rs.map((r) => r.join(',')).join('\n')}`)
  fc.assert(
    fc.property(csv, (text) => {
      const r = check(value, text)
      if ('code' in r) expect(r.message.length).toBeLessThan(400)
      else for (const c of r.predicted) for (const v of c) expect(Number.isFinite(Number(v))).toBe(true)
    }),
    { numRuns: 300 },
  )
})
