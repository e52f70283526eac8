import type { Random } from '../core/index.ts'

/** Rounds halves to the even neighbour, as Python and IEEE do. */
export function roundHalfEven(x: number): number {
  const f = Math.floor(x)
  return x - f === 0.5 ? (f % 2 === 0 ? f : f + 1) : Math.round(x)
}

/** Groups to execute of B: max(1, round_half_even(share * B)), less those in flight under a cap (golden G21). */
export function anchorCount(share: number, groups: number, opts: { cap?: number; inFlight?: number } = {}): number {
  const wanted = Math.max(1, roundHalfEven(share * groups))
  const free = opts.cap === undefined ? wanted : Math.max(0, opts.cap - (opts.inFlight ?? 0))
  return Math.min(wanted, free, groups)
}

/** `count` of `groups` indices, uniformly without replacement, ascending. Each has inclusion probability count/groups. */
export function chooseUniform(groups: number, count: number, r: Random): number[] {
  return r
    .shuffle(Array.from({ length: groups }, (_, i) => i))
    .slice(0, count)
    .sort((a, b) => a - b)
}

/**
 * `count` indices with inclusion probabilities proportional to `size` but none below `floor`, by systematic sampling, so
 * that 1/pi weights keep the estimate unbiased; the sum of the probabilities is `count`.
 */
export function chooseBySize(
  size: readonly number[],
  count: number,
  floor: number,
  r: Random,
): { chosen: number[]; pi: number[] } {
  const pi = inclusion(size, count, floor)
  const u = r.next()
  const chosen: number[] = []
  // Points u, u + 1, … on the line of cumulated probabilities; the last end is `count` itself, whatever the sum rounds to.
  let from = 0
  for (let i = 0; i < pi.length; i++) {
    const to = i === pi.length - 1 ? count : from + pi[i]!
    if (Math.ceil(to - u) > Math.ceil(from - u)) chosen.push(i)
    from = to
  }
  return { chosen, pi }
}

/** What a sum of probabilities may be off by. */
const ROUNDING = 1e-12

function inclusion(size: readonly number[], count: number, floor: number): number[] {
  const n = size.length
  if (count >= n) return size.map(() => 1)
  if (floor * n > count * (1 + 1e-9))
    throw new RangeError(`a floor of ${floor} for ${n} groups exceeds ${count} anchors`)
  const certain = new Set<number>()
  for (;;) {
    const rest = size.map((_, i) => i).filter((i) => !certain.has(i))
    const mass = count - certain.size - floor * rest.length
    const total = rest.reduce((s, i) => s + size[i]!, 0)
    const pi = size.map((s, i) => (certain.has(i) ? 1 : floor + (total > 0 ? (mass * s) / total : mass / rest.length)))
    const over = rest.filter((i) => pi[i]! > 1 + ROUNDING)
    if (over.length === 0) return pi.map((p) => Math.min(1, p))
    for (const i of over) certain.add(i)
  }
}
