import { contentHash, type WeightsVersion, weightsVersion } from '../../core/index.ts'
import { type ModelConfig, parameterSpecs, type Weights } from './model-config.ts'
import { type Tensors, tensor } from './sessions.ts'

/** Weights that do not change any more, with the digest that names them. */
export interface WeightSet {
  readonly config: ModelConfig
  readonly weights: Weights
  readonly version: WeightsVersion
}

/** Digest of configuration and weights: the same function of tokens has the same version. */
export function versionOf(config: ModelConfig, weights: Weights): WeightsVersion {
  const { layers, dModel, heads, vocab, context, logitScale } = config
  const parts: (string | Uint8Array)[] = [JSON.stringify([layers, dModel, heads, vocab, context, logitScale])]
  for (const { name } of parameterSpecs(config)) {
    const w = weights.get(name)!
    parts.push(name, new Uint8Array(w.buffer, w.byteOffset, w.byteLength))
  }
  return weightsVersion(contentHash(...parts))
}

export function copyWeights(weights: Weights): Map<string, Float32Array> {
  return new Map([...weights].map(([name, w]) => [name, w.slice()]))
}

export function weightSet(config: ModelConfig, weights: Weights): WeightSet {
  return { config, weights, version: versionOf(config, weights) }
}

/** The weights as inputs of a graph, without a copy. */
export function weightFeeds(config: ModelConfig, weights: Weights): Tensors {
  return Object.fromEntries(parameterSpecs(config).map((s) => [s.name, tensor(weights.get(s.name)!, s.dims)]))
}
