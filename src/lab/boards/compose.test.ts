import { describe, expect, it } from 'vitest'
import { keyed } from '../../core/index.ts'
import { CRIPPLED_SHARE, composeBoard, correlation, type Scored } from './compose.ts'

const noise = (k: number, n = 300): Float64Array => {
  const r = keyed('compose', k)
  return Float64Array.from({ length: n }, () => r.next() - 0.5)
}
const entry = (name: string, errors: Float64Array, strength: 'strong' | 'plain' | 'crippled' = 'strong'): Scored => ({
  recipe: { name, family: 'f', strength, code: name },
  feedback: 1,
  final: 1,
  errors,
})

describe('composing a board', () => {
  it('leaves out whoever errs like one already there', () => {
    const list = Array.from({ length: 90 }, (_, k) => entry(`r${k}`, noise(k)))
    const twin = entry(
      'twin',
      noise(3).map((v) => v * 2),
    )
    const c = composeBoard([...list, twin])
    expect(c.correlation).toBe(0.98)
    expect(c.kept.length).toBe(90)
    expect(c.left).toEqual([{ recipe: 'twin', why: 'its errors are those of r3' }])
  })
  it('raises the bound, and says so, where noise makes all models err alike', () => {
    const shared = noise(1000)
    const list = Array.from({ length: 80 }, (_, k) => {
      const own = noise(k)
      return entry(
        `r${k}`,
        shared.map((v, i) => v + 0.1 * own[i]!),
      )
    })
    const c = composeBoard(list)
    expect(c.correlation).toBeGreaterThan(0.98)
    expect(c.kept.length).toBeGreaterThanOrEqual(70)
  })
  it('keeps the crippled to a fifth', () => {
    const c = composeBoard([
      ...Array.from({ length: 72 }, (_, k) => entry(`s${k}`, noise(k))),
      ...Array.from({ length: 60 }, (_, k) => entry(`c${k}`, noise(500 + k), 'crippled')),
    ])
    expect(c.kept.filter((k) => k.recipe.strength === 'crippled').length / c.kept.length).toBeLessThanOrEqual(
      CRIPPLED_SHARE,
    )
  })
  it('knows constants', () => {
    expect(correlation(new Float64Array(5), new Float64Array(5))).toBe(1)
    expect(correlation(new Float64Array(5), Float64Array.from([1, 2, 3, 4, 5]))).toBe(0)
  })
})
