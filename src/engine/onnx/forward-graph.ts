import { Graph } from './graph.ts'
import type { ModelConfig } from './model-config.ts'
import { type PackShape, packedInputs, trunk, weightInputs } from './transformer.ts'

/**
 * Forward pass over packed rows, read out at the rows `select` [m] only. With `scores` it gives `logprob` [m, 1] of
 * `targets` and `next` [m, k], the log-softmax at `ids`. With `cache` it gives `probabilities` [m, vocab] and each
 * layer's keys and values [n, d], from which decoding goes on.
 */
export function forwardGraph(config: ModelConfig, shape: PackShape, readout: 'scores' | 'cache'): Uint8Array {
  const g = new Graph()
  const rows = shape.batch * shape.length
  const weight = weightInputs(g, config)
  const { hidden, keys, values } = trunk(g, config, shape, packedInputs(g, shape), weight)
  const chosen = g.op('Gather', [hidden, g.input('select', 'int32', ['m'])], { axis: 0 })
  const logits = g.op('Gemm', [chosen, weight('wte')], { transB: 1, alpha: { float: config.logitScale } })
  if (readout === 'scores') {
    const lp = g.op('LogSoftmax', [logits], { axis: -1 })
    const targets = g.input('targets', 'int32', ['m', 1])
    const ids = g.input('ids', 'int32', ['k'])
    g.output('logprob', g.op('GatherElements', [lp, targets], { axis: 1 }), 'float32', ['m', 1])
    g.output('next', g.op('Gather', [lp, ids], { axis: 1 }), 'float32', ['m', 'k'])
  } else {
    g.output('probabilities', g.op('Softmax', [logits], { axis: -1 }), 'float32', ['m', config.vocab])
    keys.forEach((k, l) => {
      g.output(`key.${l}`, k, 'float32', [rows, config.dModel])
      g.output(`value.${l}`, values[l]!, 'float32', [rows, config.dModel])
    })
  }
  return g.model()
}
