import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EngineError } from '../../core/index.ts'
import { fromHalf, toHalf } from './half.ts'
import { decodeTensors, encodeTensors } from './safetensors.ts'

describe('half precision', () => {
  it('equals known values', () => {
    const pairs: [number, number][] = [
      [0, 0x0000],
      [-0, 0x8000],
      [1, 0x3c00],
      [-2, 0xc000],
      [65504, 0x7bff],
      [65520, 0x7c00],
      [2 ** -14, 0x0400],
      [2 ** -24, 0x0001],
      [2 ** -25, 0x0000],
      [1.5 * 2 ** -24, 0x0002],
      [1 + 2 ** -11, 0x3c00],
      [1 + 3 * 2 ** -11, 0x3c02],
      [Number.POSITIVE_INFINITY, 0x7c00],
    ]
    expect([...toHalf(Float32Array.from(pairs, ([x]) => x))]).toEqual(pairs.map(([, h]) => h))
  })

  it('brings every half back', () => {
    const all = Uint16Array.from({ length: 65536 }, (_, i) => i).filter((h) => (h & 0x7fff) <= 0x7c00)
    expect(toHalf(fromHalf(all))).toEqual(all)
  })

  it('rounds to the nearest', () => {
    fc.assert(
      fc.property(fc.float({ min: -60000, max: 60000, noNaN: true }), (x) => {
        const y = fromHalf(toHalf(Float32Array.of(x)))[0]!
        return Math.abs(y - x) <= Math.max(2 ** -25, Math.abs(x) * 2 ** -11)
      }),
    )
  })
})

describe('safetensors', () => {
  const file = {
    metadata: { kind: 'test' },
    tensors: new Map([
      ['a', { dims: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) }],
      ['b', { dims: [1], data: Float32Array.of(-0.5) }],
    ]),
  }

  it.each(['F32', 'F16'] as const)('reads what it wrote: %s', (precision) => {
    expect(decodeTensors(encodeTensors(file, precision), 'x', 'y')).toEqual(file)
  })

  it('starts the data on an eight-byte boundary', () => {
    expect(Buffer.from(encodeTensors(file, 'F32')).readBigUInt64LE() % 8n).toBe(0n)
  })

  it('fails by name at every length that it may be cut to', () => {
    const whole = encodeTensors(file, 'F32')
    for (let n = 0; n < whole.length; n++) {
      expect(() => decodeTensors(whole.subarray(0, n), '/run/c.safetensors', 'do this')).toThrow(EngineError)
    }
    expect(() => decodeTensors(whole.subarray(0, 100), '/run/c.safetensors', 'do this')).toThrow(
      /^\/run\/c\.safetensors is truncated.*; do this$/,
    )
  })
})
