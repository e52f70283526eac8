/**
 * Position and percentile on a leaderboard (method.md section 1, golden G19): p = 1 + number of strictly better entries;
 * percentile = (N - p + 1) / N. Ties take the best place; worse than every entry gives 0.
 */
export function position(
  score: number,
  board: readonly number[],
  higherIsBetter: boolean,
): { position: number; percentile: number } {
  if (board.length === 0) throw new RangeError('a leaderboard without entries has no positions')
  let better = 0
  for (const b of board) if (higherIsBetter ? b > score : b < score) better++
  const p = 1 + better
  return { position: p, percentile: (board.length - p + 1) / board.length }
}

/** The paper's rule where one score meets several boards: the mean of the percentiles of those present. */
export function meanPercentile(score: number, boards: readonly (readonly number[])[], higherIsBetter: boolean): number {
  if (boards.length === 0) throw new RangeError('no board')
  return boards.reduce((s, b) => s + position(score, b, higherIsBetter).percentile, 0) / boards.length
}
