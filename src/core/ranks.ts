/** Average ranks from 1; equal values share the mean of their places. */
export function averageRanks(x: readonly number[]): number[] {
  const order = x.map((_, i) => i).sort((a, b) => x[a]! - x[b]!)
  const out = new Array<number>(x.length)
  for (let i = 0; i < order.length; ) {
    let j = i
    while (j < order.length && x[order[j]!] === x[order[i]!]) j++
    for (let k = i; k < j; k++) out[order[k]!] = (i + j + 1) / 2
    i = j
  }
  return out
}

/** Pearson correlation of average ranks (Spearman); undefined where either side is constant. Both of one length. */
export function rankCorrelation(a: readonly number[], b: readonly number[]): number | undefined {
  const x = averageRanks(a)
  const y = averageRanks(b)
  const middle = (x.length + 1) / 2
  let sxy = 0
  let sxx = 0
  let syy = 0
  for (let i = 0; i < x.length; i++) {
    sxy += (x[i]! - middle) * (y[i]! - middle)
    sxx += (x[i]! - middle) ** 2
    syy += (y[i]! - middle) ** 2
  }
  return sxx === 0 || syy === 0 ? undefined : sxy / Math.sqrt(sxx * syy)
}
