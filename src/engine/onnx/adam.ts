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
 * A typed-array loop, not a graph: ONNX Runtime would copy three times the parameters out of every step.
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
  const epsilon = adam.epsilon ?? 1e-8
  const step = ++state.step
  const rate = adam.learningRate / (1 - beta1 ** step)
  const second = 1 / (1 - beta2 ** step)
  const keep = 1 - adam.learningRate * (adam.weightDecay ?? 0)
  for (const [name, w] of weights) {
    updateOne(w, gradients.get(name)!, state.first.get(name)!, state.second.get(name)!)
  }

  function updateOne(w: Float32Array, g: Float32Array, m: Float32Array, v: Float32Array): void {
    for (let i = 0; i < w.length; i++) {
      const x = g[i]! * scale
      const mi = beta1 * m[i]! + (1 - beta1) * x
      const vi = beta2 * v[i]! + (1 - beta2) * x * x
      m[i] = mi
      v[i] = vi
      w[i] = w[i]! * keep - (rate * mi) / (Math.sqrt(vi * second) + epsilon)
    }
  }
}
