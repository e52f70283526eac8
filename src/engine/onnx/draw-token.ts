export interface Drawn {
  readonly token: number
  /** Under the distribution drawn from. */
  readonly logprob: number
}

/** The most probable token, the lowest id among equals; its log-probability is that of the whole distribution. */
export function mostProbable(p: Float32Array): Drawn {
  let token = 0
  for (let i = 1; i < p.length; i++) if (p[i]! > p[token]!) token = i
  return { token, logprob: Math.log(p[token]!) }
}

/**
 * Draws by the uniform number u from the nucleus of mass `topP` (Holtzman et al. 2020): the fewest most probable tokens
 * whose mass reaches it, ties by id. `topP` 1 draws from the whole distribution.
 */
export function drawToken(p: Float32Array, u: number, topP: number): Drawn {
  if (topP >= 1) {
    const token = scan(p.length, (i) => p[i]!, u)
    return { token, logprob: Math.log(p[token]!) }
  }
  // Tokens under this bound sum to less than 1 - topP, so none of them is in the nucleus; few are left to sort.
  const bound = (1 - topP) / p.length
  const ids: number[] = []
  for (let i = 0; i < p.length; i++) if (p[i]! >= bound) ids.push(i)
  ids.sort((a, b) => p[b]! - p[a]! || a - b)
  let mass = 0
  let size = 0
  while (size < ids.length && mass < topP) mass += p[ids[size++]!]!
  const token = ids[scan(size, (i) => p[ids[i]!]!, u * mass)]!
  return { token, logprob: Math.log(p[token]! / mass) }
}

/** Index where the cumulative sum passes u; rounding at the end falls on the last index with any mass. */
function scan(n: number, at: (i: number) => number, u: number): number {
  let sum = 0
  let last = 0
  for (let i = 0; i < n; i++) {
    const x = at(i)
    if (x > 0) last = i
    sum += x
    if (sum > u) return i
  }
  return last
}
