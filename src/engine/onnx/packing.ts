import type { TokenSequence } from '../contract.ts'
import type { PackShape } from './transformer.ts'

/** Where a sequence of a pack lies: `start`..`start + length` of a row. */
export interface Placement {
  /** Index in the list that was packed. */
  readonly item: number
  readonly row: number
  readonly start: number
  readonly length: number
}

/** Rows of one fixed shape; sequences in a row do not see each other. */
export interface Pack {
  readonly shape: PackShape
  readonly placements: readonly Placement[]
}

/** Rows are at least this long where the context allows: several short sequences then share one. */
const USUAL_LENGTH = 256
const TOKENS_PER_PACK = 2048
/** Exact zero weight after the softmax in float32. */
export const MASKED = -1e9

/** Time-major index of a position of a row. */
export const rowIndex = (shape: PackShape, row: number, position: number): number => position * shape.batch + row

/**
 * First-fit in decreasing length, ties by index: placement depends on the lengths alone, so the same call computes the
 * same bits. Lengths must lie in 1..context. Shapes are few (a power of two of rows), as each costs a session.
 */
export function packs(lengths: readonly number[], context: number): readonly Pack[] {
  const order = lengths.map((_, i) => i).filter((i) => lengths[i]! > 0)
  if (order.length === 0) return []
  order.sort((a, b) => lengths[b]! - lengths[a]! || a - b)
  const length = bucket(lengths[order[0]!]!, USUAL_LENGTH, context)
  const used: number[] = []
  const placed = order.map((item): Placement => {
    const n = lengths[item]!
    let row = used.findIndex((u) => u + n <= length)
    if (row < 0) row = used.push(0) - 1
    const start = used[row]!
    used[row] = start + n
    return { item, row, start, length: n }
  })
  const rowsPerPack = Math.max(1, Math.floor(TOKENS_PER_PACK / length))
  const out: Pack[] = []
  for (let first = 0; first < used.length; first += rowsPerPack) {
    const rows = Math.min(rowsPerPack, used.length - first)
    const batch = Math.min(rowsPerPack, powerOfTwo(rows))
    const placements = placed
      .filter((p) => p.row >= first && p.row < first + rows)
      .map((p) => ({ ...p, row: p.row - first }))
    out.push({ shape: { batch, length }, placements })
  }
  return out
}

/** The smallest of least, 2 * least, 4 * least, ..., context that holds n. */
export function bucket(n: number, least: number, context: number): number {
  let size = Math.min(least, context)
  while (size < n) size *= 2
  return Math.min(size, context)
}

export function powerOfTwo(n: number): number {
  let size = 1
  while (size < n) size *= 2
  return size
}

export interface PackTensors {
  readonly tokens: Int32Array
  /** int64 of one rotary position a row. */
  readonly positions: BigInt64Array
  /** [batch, 1, length, length], block-diagonal and causal. */
  readonly mask: Float32Array
}

/** Fills a pack's inputs; unused positions hold token 0, position 0, and look at themselves only. */
export function packTensors(pack: Pack, sequences: readonly TokenSequence[]): PackTensors {
  const { batch, length } = pack.shape
  const tokens = new Int32Array(batch * length)
  const positions = new BigInt64Array(batch * length)
  const low = new Int32Array(positions.buffer)
  const mask = new Float32Array(batch * length * length).fill(MASKED)
  for (let row = 0; row < batch; row++) {
    for (let t = 0; t < length; t++) mask[(row * length + t) * length + t] = 0
  }
  for (const p of pack.placements) {
    const sequence = sequences[p.item]!
    for (let i = 0; i < p.length; i++) {
      const at = rowIndex(pack.shape, p.row, p.start + i)
      tokens[at] = sequence[i]!
      low[2 * at] = i
      const maskRow = (p.row * length + p.start + i) * length
      mask.fill(0, maskRow + p.start, maskRow + p.start + i + 1)
    }
  }
  return { tokens, positions, mask }
}
