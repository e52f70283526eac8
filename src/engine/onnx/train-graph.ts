import { Graph } from './graph.ts'
import { lossGraph } from './loss-graph.ts'
import { type ModelConfig, parameterSpecs } from './model-config.ts'
import { Tape } from './tape.ts'
import { type PackShape, packedInputs, trunk, weightInputs } from './transformer.ts'

/**
 * Forward, loss and backward for one packed shape. Outputs `logprob`, `entropy` and `rowLoss` a row, `d.<parameter>`,
 * and `d.embedded` [n, d], whose rows the caller adds to the gradient of `wte` at their tokens: ONNX Runtime's parallel
 * scatter does not promise an order of additions.
 */
export function trainGraph(config: ModelConfig, shape: PackShape, withBonus: boolean): Uint8Array {
  const g = new Graph()
  const tape = new Tape(g)
  const rows = shape.batch * shape.length
  const weight = weightInputs(g, config)
  const { hidden, embedded } = trunk(g, config, shape, packedInputs(g, shape), weight, tape)
  const scale = { alpha: { float: config.logitScale } }
  const wte = weight('wte')
  const logits = g.op('Gemm', [hidden, wte], { transB: 1, ...scale })
  const loss = lossGraph(g, logits, rows, withBonus)
  tape.add(wte, g.op('Gemm', [loss.dLogits, hidden], { transA: 1, ...scale }))
  tape.add(hidden, g.op('Gemm', [loss.dLogits, wte], scale))
  tape.backward()
  g.output('logprob', loss.logprob, 'float32', [rows, 1])
  g.output('entropy', loss.entropy, 'float32', [rows, 1])
  g.output('rowLoss', loss.rowLoss, 'float32', [rows, 1])
  g.output('d.embedded', tape.gradient(embedded), 'float32', [rows, config.dModel])
  for (const spec of parameterSpecs(config)) {
    g.output(`d.${spec.name}`, tape.gradient(weight(spec.name)), 'float32', spec.dims)
  }
  return g.model()
}
