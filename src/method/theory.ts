/** The paper's bounds and savings (method.md sections 1 and 6); a calculator, with constants of 1 in the O terms. */
export function worldModelBound(o: {
  m: number
  n: number
  vE: number
  sigma2: number
  b2: number
  gamma: number
  mu: number
  delta0: number
  steps: number
}): { c: number; vWm: number; decay: number; bound: number } {
  const c = (4 * o.m ** 2) / (o.n * o.vE)
  const vWm = (1 + c * o.sigma2) * o.vE
  const decay = (1 - (o.gamma * o.mu) / 4) ** o.steps
  return { c, vWm, decay, bound: decay * o.delta0 + o.m ** 2 * o.b2 + o.gamma * vWm }
}

/** With both corrections: bias falls as 1/(1 + T/T0), variance fuses. */
export function correctedBound(o: Parameters<typeof worldModelBound>[0] & { t0: number }): number {
  const w = worldModelBound(o)
  return w.decay * o.delta0 + (o.m ** 2 * o.b2) / (1 + o.steps / o.t0) + (o.gamma * w.vWm) / (1 + w.vWm / o.vE)
}

/** Speed-up of executing a fraction f where executions are a share x of all-real compute: 1/(1 - x(1-f)) (golden G23). */
export const speedUp = (x: number, f: number): number => 1 / (1 - x * (1 - f))
/** The executed fraction that a published speed-up implies. */
export const impliedFraction = (x: number, speed: number): number => 1 - (1 - 1 / speed) / x
