import type { Capabilities, Datum } from './contract.ts'

/**
 * What undoes a server's own mean over a sequence's action tokens and then over data; 1 where it sums.
 */
export const undoReduction = (reduction: Capabilities['reduction'], actionTokens: number, data: number): number =>
  reduction === 'sum' ? 1 : actionTokens * data

/**
 * Advantages for a server that reduces the loss by itself. `Datum.advantage` is the coefficient of the *sum* of a
 * trajectory's token scores over B*G: a server that sums gets it divided by B*G, one that averages over a sequence's
 * action tokens and then over data gets that average undone first (design.md). Use it with `normaliser: 1`; the
 * embedded engine takes `normaliser: B*G` instead. A datum without action tokens keeps its advantage: nothing weighs it.
 */
export function rescaleForReduction(
  data: readonly Datum[],
  reduction: Capabilities['reduction'],
  trajectories: number,
): Datum[] {
  return data.map((d) => {
    const tokens = d.mask.reduce((n, m) => n + m, 0)
    const undo = undoReduction(reduction, tokens, data.length)
    return { ...d, advantage: tokens === 0 ? d.advantage : (d.advantage * undo) / trajectories }
  })
}
