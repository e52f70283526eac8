import type { AdamParams } from '../contract.ts'
import type { Weights } from './model-config.ts'

/** Optimiser state of one model; `step` counts applied updates. */
export interface AdamState {
  readonly first: Weights
  readonly second: Weights
  step: number
}

export function freshAdam(weights: Weights): AdamState {
  const zeros = (): Map<string, Float32Array> => new Map([...weights].map(([k, w]) => [k, new Float32Array(w.length)]))
  return { first: zeros(), second: zeros(), step: 0 }
}

/** Euclidean norm over all parameters, summed in their fixed order in double precision; NaN or infinite when one is. */
export function gradientNorm(gradients: Weights): number {
  let sum = 0
  for (const g of gradients.values()) for (let i = 0; i < g.length; i++) sum += g[i]! * g[i]!
  return Math.sqrt(sum)
}

/**
 * AdamW (Loshchilov and Hutter 2019) in place, with decoupled weight decay; every parameter is a matrix, so all decay.
 * A typed-array loop on one thread. As a second graph on two threads it took as long and twice the CPU time, and would
 * copy weights and both moments out of every step.
 */
export function adamStep(
  weights: Weights,
  gradients: Weights,
  state: AdamState,
  adam: AdamParams,
  scale: number,
): void {
  const beta1 = adam.beta1 ?? 0.9
  const beta2 = adam.beta2 ?? 0.95
  const step = ++state.step
  const plan: UpdatePlan = {
    scale,
    beta1,
    beta2,
    rate: adam.learningRate / (1 - beta1 ** step),
    second: 1 / (1 - beta2 ** step),
    epsilon: adam.epsilon ?? 1e-8,
    keep: 1 - adam.learningRate * (adam.weightDecay ?? 0),
  }
  for (const [name, w] of weights) {
    update(w, gradients.get(name)!, state.first.get(name)!, state.second.get(name)!, plan)
  }
}

interface UpdatePlan {
  readonly scale: number
  readonly beta1: number
  readonly beta2: number
  /** Learning rate with the first moment's bias correction. */
  readonly rate: number
  /** Bias correction of the second moment. */
  readonly second: number
  readonly epsilon: number
  /** What weight decay leaves. */
  readonly keep: number
}

function update(w: Float32Array, g: Float32Array, m: Float32Array, v: Float32Array, plan: UpdatePlan): void {
  // Locals: read from the object in the loop, they cost half as much again.
  const { scale, beta1, beta2, rate, second, epsilon, keep } = plan
  for (let i = 0; i < w.length; i++) {
    const x = g[i]! * scale
    const mi = beta1 * m[i]! + (1 - beta1) * x
    const vi = beta2 * v[i]! + (1 - beta2) * x * x
    m[i] = mi
    v[i] = vi
    w[i] = w[i]! * keep - (rate * mi) / (Math.sqrt(vi * second) + epsilon)
  }
}
