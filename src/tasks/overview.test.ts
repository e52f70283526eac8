import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cardOf } from '../grading/testing.ts'
import { overview, slotNames } from './overview.ts'

const words = (t: string): number => t.split(/\s+/).filter((w) => w !== '').length
const wide = cardOf({
  columns: Array.from({ length: 80 }, (_, i) => ({ name: `col_${i}`, type: 'number' as const, missing: i === 3 })),
  story: 'A long story about y. '.repeat(20),
  submission: { kind: 'value', idColumn: 'row_id', columns: ['y'] },
})
const text = cardOf({
  modality: 'text',
  columns: [{ name: 'passage', type: 'text', missing: false }],
  metric: { name: 'macro_f1', higherIsBetter: true },
  submission: { kind: 'label', idColumn: 'id', columns: ['kind'], classes: ['a', 'b', 'c'] },
  targets: ['kind'],
  target: { type: 'label', positive: false, skewed: false, rarest: 0.02 },
})

/** What must be there whatever is cut. */
const CONTRACT = /columns row_id, y.*every id of test\.csv once/s

describe('the full text', () => {
  test('says everything where there is room', () => {
    const t = overview(wide, { style: 'full', budget: 10_000, count: words, files: [{ path: 'train.csv', bytes: 9 }] })
    expect(t).toMatch(CONTRACT)
    expect(t).toContain('col_79')
    expect(t).toContain('train.csv (9 bytes)')
    expect(t).toContain('A long story')
    expect(t).toContain('col_3: number, has gaps')
  })
  test('fits any budget that holds the contract; columns go first, prose next, the contract last', () => {
    const full = words(overview(wide, { style: 'full', budget: 10_000, count: words }))
    const least = (() => {
      for (let b = 1; ; b++) {
        try {
          overview(wide, { style: 'full', budget: b, count: words })
          return b
        } catch {}
      }
    })()
    expect(least).toBeLessThan(60)
    fc.assert(
      fc.property(fc.integer({ min: least, max: full + 5 }), (budget) => {
        const t = overview(wide, { style: 'full', budget, count: words })
        expect(words(t)).toBeLessThanOrEqual(budget)
        expect(t).toMatch(CONTRACT)
        // Prose is only cut once no column is left.
        if (!t.includes('A long story')) expect(t).not.toContain('col_0')
      }),
    )
    expect(() => overview(wide, { style: 'full', budget: least - 1, count: words })).toThrow(
      /cannot hold the submission contract of toy/,
    )
  })
})

describe('the brief text', () => {
  test('names what a program quotes', () => {
    const t = overview(text, { style: 'brief', budget: 1000, count: words })
    expect(t).toMatch(/^text label macro_f1\ntarget "kind" label classes=3 rare\nid "id"\n"passage" text\n/)
    expect(slotNames(text)).toEqual(['kind', 'id', 'passage'])
  })
  test('keeps the contract when the facts are cut', () => {
    const whole = overview(text, { style: 'brief', budget: 1000, count: words })
    const contract = words('text label macro_f1 target "kind" label classes=3 rare id "id" "passage" text')
    const cut = overview(text, { style: 'brief', budget: contract, count: words })
    expect(whole.startsWith(cut.trimEnd())).toBe(true)
    expect(words(cut)).toBe(contract)
    expect(() => overview(text, { style: 'brief', budget: contract - 1, count: words })).toThrow(RangeError)
  })
  test('tells of a survival task its event and its risk column', () => {
    const c = cardOf({
      metric: { name: 'cindex', higherIsBetter: true },
      submission: { kind: 'value', idColumn: 'id', columns: ['risk'] },
      targets: ['time'],
      extraTrainColumns: ['event'],
    })
    expect(overview(c, { style: 'brief', budget: 1000, count: words })).toContain('column "risk" event "event"')
    expect(slotNames(c)).toEqual(['time', 'id', 'risk'])
  })
})
