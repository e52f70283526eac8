import { describe, expect, it } from 'vitest'
import { keyed } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import { recipes } from '../boards/recipes.ts'
import { CLASSES } from './families.ts'
import { renderSpec } from './render.ts'
import { modalityOf, mutateSpec, sampleSpec } from './sample.ts'

const base: TaskCard = {
  schema: 'wmrl-task/2',
  id: 'hand-made',
  suite: 'builtin',
  title: 't',
  modality: 'tabular',
  split: 'train',
  trainable: true,
  metric: { name: 'rmsle', higherIsBetter: false },
  submission: { kind: 'value', idColumn: 'id', columns: ['price'] },
  targets: ['price'],
  columns: [
    { name: 'size', type: 'number', missing: true },
    { name: 'town', type: 'category', levels: 9, missing: false },
    { name: 'day', type: 'date', missing: false },
  ],
  extraTrainColumns: [],
  rows: { train: 100, test: 50, feedback: 15, final: 35 },
  target: { type: 'number', positive: true, skewed: true },
  story: '',
  metricFormula: '',
  splitRule: 'row',
  notes: [],
  source: { registry: 'pypi', package: 'p', item: 'i', sha256: null },
  licence: 'x',
  leakChecks: {},
}
const CARDS: Record<string, TaskCard> = {
  table: base,
  text: {
    ...base,
    id: 'text',
    modality: 'text',
    metric: { name: 'map_at_3', higherIsBetter: true },
    submission: { kind: 'topk', idColumn: 'id', columns: ['field'], classes: ['a', 'b', 'c', 'd'] },
    targets: ['field'],
    columns: [{ name: 'gloss', type: 'text', missing: false }],
    target: { type: 'label', positive: false, skewed: false, rarest: 0.2 },
  },
  image: {
    ...base,
    id: 'pix',
    modality: 'image',
    metric: { name: 'qwk', higherIsBetter: true },
    submission: { kind: 'label', idColumn: 'id', columns: ['sum'], classes: ['0', '1', '2'] },
    targets: ['sum'],
    columns: [{ name: 'p0_00', type: 'number', missing: false }],
    pixels: { height: 8, width: 8, white: 16 },
    target: { type: 'integer', positive: false, skewed: false, rarest: 0.1 },
  },
  series: {
    ...base,
    id: 'ser',
    modality: 'signal',
    metric: { name: 'mc_log_loss', higherIsBetter: false },
    submission: { kind: 'proba', idColumn: 'id', columns: ['x', 'y', 'z'], classes: ['x', 'y', 'z'] },
    targets: ['kind'],
    columns: [{ name: 'series', type: 'series', missing: false }],
    target: { type: 'label', positive: false, skewed: false, rarest: 0.3 },
  },
}
const NAMES = new Set(
  Object.values(CLASSES).flatMap((c) => [c.regress?.name, c.classify?.name].filter((n) => n !== undefined)),
)

describe.each(Object.entries(CARDS))('programs on a %s task', (kind, card) => {
  it('import every class above its use, read and write the files of the contract', () => {
    expect(modalityOf(card)).toBe(kind)
    for (let k = 0; k < 150; k++) {
      const r = keyed('grammar-test', kind, k)
      const code = renderSpec(card, sampleSpec(card, r, { bug: 0 }), r)
      for (const name of NAMES) {
        const use = code.search(new RegExp(`\\b${name}\\(`))
        if (use < 0) continue
        const at = code.search(new RegExp(`from [a-z_.]+ import ${name}\\n`))
        expect(at, code).toBeGreaterThanOrEqual(0)
        expect(at, code).toBeLessThan(use)
      }
      expect(code).toContain('pd.read_csv("sample_submission.csv")')
      expect(code.endsWith('sub.to_csv("submission.csv", index=False)\n')).toBe(true)
    }
  })
  it('are the same for the same key, and mutation changes them without a mistake', () => {
    for (let k = 0; k < 40; k++) {
      const spec = sampleSpec(card, keyed(kind, k), { bug: 1 })
      expect(sampleSpec(card, keyed(kind, k), { bug: 1 })).toEqual(spec)
      const next = mutateSpec(card, keyed(kind, 'm', k), spec)
      expect(next.bug).toBeUndefined()
      expect({ ...next, bug: undefined }).not.toEqual({ ...spec, bug: undefined })
    }
  })
  it('make a population of at least 25 strong recipes from 5 families, without repeats', () => {
    const all = recipes(card)
    const strong = all.filter((x) => x.strength === 'strong')
    expect(strong.length).toBeGreaterThanOrEqual(25)
    expect(new Set(strong.map((x) => x.family)).size).toBeGreaterThanOrEqual(5)
    expect(new Set(all.map((x) => x.code)).size).toBe(all.length)
    expect(new Set(all.map((x) => x.name)).size).toBe(all.length)
  })
})
