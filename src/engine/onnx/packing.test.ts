import fc from 'fast-check'
import { expect, it } from 'vitest'
import { MASKED, type Pack, packs, packTensors, rowIndex } from './packing.ts'

const lengths = fc.array(fc.integer({ min: 1, max: 600 }), { maxLength: 60 })

it('places every sequence once, without overlap, within its row', () => {
  fc.assert(
    fc.property(lengths, (ns) => {
      const all = packs(ns, 600)
      expect(all.flatMap((p) => p.placements.map((q) => q.item)).sort((a, b) => a - b)).toEqual(ns.map((_, i) => i))
      for (const { shape, placements } of all) {
        const used = new Set<number>()
        for (const q of placements) {
          expect(q.length).toBe(ns[q.item])
          expect(q.row).toBeLessThan(shape.batch)
          expect(q.start + q.length).toBeLessThanOrEqual(shape.length)
          for (let t = q.start; t < q.start + q.length; t++) {
            const at = rowIndex(shape, q.row, t)
            expect(used.has(at)).toBe(false)
            used.add(at)
          }
        }
      }
    }),
    { numRuns: 50 },
  )
})

it('makes few shapes of about 2048 tokens', () => {
  expect(packs(Array(100).fill(60), 512).map((p) => p.shape)).toEqual([
    { batch: 8, length: 256 },
    { batch: 8, length: 256 },
    { batch: 8, length: 256 },
    { batch: 1, length: 256 },
  ])
  expect(packs([300], 512)[0]!.shape).toEqual({ batch: 1, length: 512 })
  expect(packs([5], 24)[0]!.shape).toEqual({ batch: 1, length: 24 })
  expect(packs([], 24)).toEqual([])
  expect(packs([0, 3, 0], 24).flatMap((p) => p.placements.map((q) => q.item))).toEqual([1])
})

it('lets a token see its own sequence up to itself, padding only itself', () => {
  const pack: Pack = {
    shape: { batch: 2, length: 4 },
    placements: [
      { item: 0, row: 0, start: 0, length: 2 },
      { item: 1, row: 0, start: 2, length: 2 },
      { item: 2, row: 1, start: 0, length: 3 },
    ],
  }
  const { tokens, positions, mask } = packTensors(pack, [
    [1, 2],
    [3, 4],
    [5, 6, 7],
  ])
  expect([...tokens]).toEqual([1, 5, 2, 6, 3, 7, 4, 0])
  expect([...positions].map(Number)).toEqual([0, 0, 1, 1, 0, 2, 1, 0])
  const seen = Array.from({ length: 8 }, (_, r) => [...mask.subarray(4 * r, 4 * r + 4)].map((m) => (m === 0 ? 1 : 0)))
  expect(seen).toEqual([
    [1, 0, 0, 0],
    [1, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 1, 1],
    [1, 0, 0, 0],
    [1, 1, 0, 0],
    [1, 1, 1, 0],
    [0, 0, 0, 1],
  ])
  expect(Math.min(...mask)).toBe(MASKED)
})
