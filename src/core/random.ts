import { createHash } from 'node:crypto'

/** A stream of uniform numbers in [0,1), 53 bits each; the same key gives the same stream on every machine. */
export interface Random {
  next(): number
  /** Integer in [0, n). */
  int(n: number): number
  pick<T>(xs: readonly T[]): T
  /** A new array in random order (Fisher-Yates). */
  shuffle<T>(xs: readonly T[]): T[]
}

/**
 * Keyed randomness (invariant 6): every draw is named by what it is for, never by when it happens.
 * @example keyed(seed, 'step', 3, 'group', 1, 'anchor').next()
 */
export function keyed(...key: readonly (string | number)[]): Random {
  const digest = createHash('sha256').update(JSON.stringify(key)).digest()
  return sfc32(digest.readUInt32LE(0), digest.readUInt32LE(4), digest.readUInt32LE(8), digest.readUInt32LE(12))
}

/** A 31-bit seed for parts that want an integer (samplers, Python). */
export function keyedSeed(...key: readonly (string | number)[]): number {
  return createHash('sha256').update(JSON.stringify(key)).digest().readUInt32LE(0) & 0x7fffffff
}

/** Chris Doty-Humphrey's small fast counter generator (PractRand), 128 bits of state. */
function sfc32(a0: number, b0: number, c0: number, d0: number): Random {
  let a = a0 | 0
  let b = b0 | 0
  let c = c0 | 0
  let d = d0 | 0
  const u32 = (): number => {
    const t = (((a + b) | 0) + d) | 0
    d = (d + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (c << 21) | (c >>> 11)
    c = (c + t) | 0
    return t >>> 0
  }
  for (let i = 0; i < 12; i++) u32()
  const next = (): number => (u32() * 0x200000 + (u32() >>> 11)) / 0x20000000000000
  const int = (n: number): number => {
    if (!Number.isInteger(n) || n < 1) throw new RangeError(`int(n) needs a positive integer, got ${n}`)
    return Math.floor(next() * n)
  }
  return {
    next,
    int,
    pick: (xs) => {
      if (xs.length === 0) throw new RangeError('pick from nothing')
      return xs[int(xs.length)]!
    },
    shuffle: (xs) => {
      const out = [...xs]
      for (let i = out.length - 1; i > 0; i--) {
        const j = int(i + 1)
        const t = out[i]!
        out[i] = out[j]!
        out[j] = t
      }
      return out
    },
  }
}
