/** Mean gradient of all groups plus lambda times the anchors' mean of (executed - predicted): PPI at group level (golden G15). */
export function ppiGradient(
  predicted: readonly (readonly number[])[],
  anchors: readonly { index: number; executed: readonly number[] }[],
  lambda: number,
): number[] {
  const dims = predicted[0]?.length ?? 0
  return Array.from({ length: dims }, (_, k) => {
    const bulk = predicted.reduce((s, g) => s + g[k]!, 0) / predicted.length
    if (anchors.length === 0) return bulk
    const d = anchors.reduce((s, a) => s + a.executed[k]! - predicted[a.index]![k]!, 0) / anchors.length
    return bulk + lambda * d
  })
}

/**
 * The same as advantages: predicted groups keep A_W, an anchor group gets A_W + lambda (B/n)(A_E - A_W). Members without
 * an executed score must be null in `executed`; they keep A_W, and the caller took the same members in both means.
 */
export function correctedAdvantages(
  bulk: readonly (number | null)[],
  predicted: readonly (number | null)[],
  executed: readonly (number | null)[],
  lambda: number,
  groups: number,
  anchors: number,
): (number | null)[] {
  return bulk.map((a, i) => {
    if (a === null) return null
    const e = executed[i] ?? null
    const w = predicted[i] ?? null
    return e === null || w === null ? a : a + ((lambda * groups) / anchors) * (e - w)
  })
}

/** Power tuning for the nested form, from raw moments of anchor groups' gradients, clipped to [0,1] (golden G16). */
export function tunedLambda(
  executed: readonly (readonly number[])[],
  predicted: readonly (readonly number[])[],
): { c: number; vW: number; lambda: number } {
  const dot = (a: readonly number[], b: readonly number[]): number => a.reduce((s, v, i) => s + v * b[i]!, 0)
  const n = executed.length
  const c = executed.reduce((s, g, i) => s + dot(g, predicted[i]!), 0) / n
  const vW = predicted.reduce((s, g) => s + dot(g, g), 0) / n
  return { c, vW, lambda: vW > 0 ? Math.min(1, Math.max(0, c / vW)) : 0 }
}

/** lambda(H) = d2 / (d2 + (q - d2)/H) for squared bias d2 and mean squared correction q over H steps (golden G17). */
export function shrunkLambda(d2: number, q: number, horizon: number): number {
  const noise = (q - d2) / horizon
  return d2 + noise > 0 ? d2 / (d2 + noise) : 0
}

/** Squared bias from EMAs (beta .95) of the correction vector's squared norm |m|^2 and of its mean square q (golden G17). */
export function debiasedSquare(m2: number, q: number, beta = 0.95): number {
  const c1 = (1 - beta) / (1 + beta)
  return Math.max(0, (m2 - c1 * q) / (1 - c1))
}

/**
 * Doubly robust advantages where single members of a group were executed with probability pi: A_W plus
 * lambda (G-1)/G (r - f)/pi on those (golden G18, exact for one executed member).
 */
export function doublyRobust(
  f: readonly number[],
  executed: readonly { index: number; r: number; pi: number }[],
  lambda: number,
): number[] {
  const g = f.length
  const mean = f.reduce((a, b) => a + b, 0) / g
  const out = f.map((v) => v - mean)
  for (const e of executed) {
    if (!(e.pi >= 1 / 8)) throw new RangeError(`an inclusion probability of ${e.pi} weighs more than 8`)
    out[e.index]! += (lambda * ((g - 1) / g) * (e.r - f[e.index]!)) / e.pi
  }
  return out
}

/** Importance ratio of a replayed correction, clipped to [0,2] (golden G24). */
export function replayRatio(now: number, old: number): number {
  return Math.min(2, Math.max(0, now / old))
}
