/**
 * Pool adjacent violators: the non-decreasing fit to `y` with weights `w` that minimises the weighted squared error.
 * Values come back per point; neighbours with equal values are kept as they are. Idempotent, preserves the weighted mean.
 * @throws RangeError on unequal lengths, non-finite values or weights that are not positive.
 */
export function pav(y: readonly number[], w: readonly number[] = y.map(() => 1)): number[] {
  if (y.length !== w.length) throw new RangeError(`pav: ${y.length} values, ${w.length} weights`)
  const pools: { sum: number; weight: number; count: number }[] = []
  for (let i = 0; i < y.length; i++) {
    const yi = y[i]!
    const wi = w[i]!
    if (!Number.isFinite(yi) || !Number.isFinite(wi) || wi <= 0)
      throw new RangeError(`pav: point ${i} is (${yi}, weight ${wi})`)
    pools.push({ sum: yi * wi, weight: wi, count: 1 })
    for (;;) {
      const b = pools[pools.length - 1]!
      const a = pools[pools.length - 2]
      if (!a || a.sum / a.weight <= b.sum / b.weight) break
      a.sum += b.sum
      a.weight += b.weight
      a.count += b.count
      pools.pop()
    }
  }
  return pools.flatMap((p) => new Array<number>(p.count).fill(p.sum / p.weight))
}
