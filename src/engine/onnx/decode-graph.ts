import { Graph, type Value } from './graph.ts'
import { type Building, feedForward, linear, rmsNorm, rotary, rotate } from './layers.ts'
import type { ModelConfig } from './model-config.ts'
import { weightInputs } from './transformer.ts'

/**
 * One token for each of `slots` sequences against caches [slots, heads, c, width] of earlier keys and values, which the
 * caller keeps: outputs are `probabilities` [slots, vocab] and only the token's own `key.l`, `value.l` [slots, d].
 * `mask` [slots, 1, 1, c] is 0 on a slot's cached positions and very negative beyond them.
 */
export function decodeGraph(config: ModelConfig, slots: number): Uint8Array {
  const g = new Graph()
  const { dModel, heads } = config
  const width = dModel / heads
  const weight = weightInputs(g, config)
  const tokens = g.input('tokens', 'int32', [slots])
  const positions = g.input('positions', 'int64', [slots, 1])
  const mask = g.input('mask', 'float32', [slots, 1, 1, 'c'])
  const b: Building = { graph: g, batch: slots, length: 1, dModel, heads }
  // The scale sits in the query's rotation: ONNX Runtime's fast vector product wants a factor of exactly 1.
  const forQuery = rotary(g, positions, config.context, width, 1 / Math.sqrt(width))
  const forKey = rotary(g, positions, config.context, width, 1)
  const split = (x: Value): Value => g.reshape(x, slots, heads, 1, width)
  let h = g.op('Gather', [weight('wte'), tokens], { axis: 0 })
  for (let l = 0; l < config.layers; l++) {
    const w = (part: string): Value => weight(`layers.${l}.${part}`)
    const cachedKeys = g.input(`pastKey.${l}`, 'float32', [slots, heads, 'c', width])
    const cachedValues = g.input(`pastValue.${l}`, 'float32', [slots, heads, 'c', width])
    const x = rmsNorm(b, h)
    const q = rotate(b, linear(b, x, w('query')), forQuery)
    const k = rotate(b, linear(b, x, w('key')), forKey)
    const v = linear(b, x, w('value'))
    g.output(`key.${l}`, k, 'float32', [slots, dModel])
    g.output(`value.${l}`, v, 'float32', [slots, dModel])
    const past = g.op('Add', [g.contrib('FusedMatMul', [split(q), cachedKeys], { transB: 1 }), mask])
    const self = g.op('ReduceSum', [g.op('Mul', [split(q), split(k)]), g.ints(-1)], { keepdims: 1 })
    const p = g.op('Softmax', [g.op('Concat', [past, self], { axis: 3 })], { axis: -1 })
    const ofPast = g.op('Slice', [p, g.ints(0), g.ints(-1), g.ints(3)])
    const ofSelf = g.op('Slice', [p, g.ints(-1), g.ints(Number.MAX_SAFE_INTEGER), g.ints(3)])
    const mixed = g.op('Add', [g.op('MatMul', [ofPast, cachedValues]), g.op('Mul', [ofSelf, split(v)])])
    h = linear(b, g.reshape(mixed, slots, dModel), w('output'), h)
    h = feedForward(b, rmsNorm(b, h), w('up'), w('down'), h)
  }
  const logits = g.op('Gemm', [rmsNorm(b, h), weight('wte')], { transB: 1, alpha: { float: config.logitScale } })
  g.output('probabilities', g.op('Softmax', [logits], { axis: -1 }), 'float32', [slots, config.vocab])
  return g.model()
}
