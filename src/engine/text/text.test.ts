import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { render, shownOf } from '../../core/index.ts'
import { fromSlots, NANO_BINS, NanoCodec, toSlots, trainBpe } from './index.ts'

const LINES = [
  'import numpy as np',
  'import pandas as pd',
  'train = pd.read_csv("train.csv")',
  'y = train["<n0>"]',
  'model = Ridge(alpha=0.1)',
  'model = Ridge(alpha=10)',
  'model.fit(X, y)',
  'sub["<n0>"] = p',
]
let codec: NanoCodec
beforeAll(() => {
  const texts = Array.from({ length: 40 }, (_, k) => `${LINES.slice(k % 3).join('\n')}\n`)
  codec = new NanoCodec(trainBpe(texts, { vocab: 400, maxLength: 60, minFrequency: 2 }))
})

describe('copy slots', () => {
  const names = ['price', 'id', 'weird name-1']
  it('are one token a name and come back', () => {
    const code = 'y = train["price"]\nz = train[\'weird name-1\']\nprint("other")\n'
    const s = toSlots(code, names)
    expect(s).toBe('y = train["<n0>"]\nz = train[\'<n2>\']\nprint("other")\n')
    expect(fromSlots(s, names)).toBe(code)
  })
  it('of another task become a name that no table has', () => {
    expect(fromSlots('x["<n9>"]', names)).toBe('x["column_9"]')
  })
})

describe('the nano codec', () => {
  it('restores programs, also text it has never seen', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (s) => {
        // Slot-like text is the one thing that is not kept.
        fc.pre(!/<n\d+>|<\|/.test(s))
        const t = codec.program(s, [])
        expect(t[t.length - 1]).toBe(codec.ids.end)
        expect(codec.decodeProgram(t, [])).toBe(s)
      }),
    )
  })
  it('makes frequent lines single tokens and keeps numbers apart', () => {
    const a = codec.program('import pandas as pd\n', [])
    expect(a.length).toBeLessThanOrEqual(3)
    const b = codec.program('model = Ridge(alpha=10)\n', [])
    const c = codec.program('model = Ridge(alpha=0.1)\n', [])
    expect(b.length).toBe(c.length)
  })
  it('gives every outcome that the renderer can write its own first token', () => {
    const texts = [
      ...Array.from(
        { length: NANO_BINS },
        (_, k) =>
          render(shownOf({ kind: 'graded', score: 1, percentile: (k + 0.5) / NANO_BINS, scope: 'feedback' })).text,
      ),
      ...(['timed-out', 'out-of-memory', 'malformed'] as const).map((kind) => render({ kind }).text),
      ...(['crashed', 'syntax-error', 'invalid-submission'] as const).map(
        (kind) => render({ kind, detail: 'ValueError: bad' }).text,
      ),
    ]
    const first = texts.map((t) => codec.outcome(t, [])[0]!)
    expect(new Set(first).size).toBe(texts.length)
    expect(first.slice(0, NANO_BINS)).toEqual([...codec.bins])
    expect(() => codec.outcome('reward 0.9', [])).toThrow(RangeError)
  })
})

it('every name on a line with empty quotes becomes a slot', () => {
  const line = 'a = d["word"].fillna("") + " " + d["gloss"].fillna("") + " " + d["example"].fillna("")'
  const names = ['y', 'id', 'word', 'gloss', 'example']
  const slots = toSlots(line, names)
  expect(slots).toBe('a = d["<n2>"].fillna("") + " " + d["<n3>"].fillna("") + " " + d["<n4>"].fillna("")')
  expect(fromSlots(slots, names)).toBe(line)
})
