import type { Graph, Value } from './graph.ts'
import { attention, type Building, feedForward, linear, rmsNorm, rotary, rotate } from './layers.ts'
import { type ModelConfig, parameterSpecs } from './model-config.ts'
import type { Tape } from './tape.ts'

/** A fixed shape of packed rows: `batch` rows of `length` tokens, time-major. */
export interface PackShape {
  readonly batch: number
  readonly length: number
}

export interface PackedInputs {
  readonly tokens: Value
  readonly positions: Value
  readonly mask: Value
}

export interface Trunk {
  /** Normalised last hidden state [n, d]. */
  readonly hidden: Value
  /** Embedded tokens [n, d]. */
  readonly embedded: Value
  /** Rotated keys and values of each layer [n, d]. */
  readonly keys: readonly Value[]
  readonly values: readonly Value[]
}

/** Weights are inputs, so that one session serves every version of them. */
export function weightInputs(g: Graph, config: ModelConfig): (name: string) => Value {
  const known = new Map(parameterSpecs(config).map((s) => [s.name, g.input(s.name, 'float32', s.dims)]))
  return (name) => known.get(name)!
}

export function packedInputs(g: Graph, shape: PackShape): PackedInputs {
  const n = shape.batch * shape.length
  return {
    tokens: g.input('tokens', 'int32', [n]),
    positions: g.input('positions', 'int64', [n, 1]),
    mask: g.input('mask', 'float32', [shape.batch, 1, shape.length, shape.length]),
  }
}

/**
 * Pre-norm decoder without biases: RMS norms without gains, rotary positions, squared ReLU. Everything up to the last
 * norm; the head is the caller's.
 */
export function trunk(
  g: Graph,
  config: ModelConfig,
  shape: PackShape,
  inputs: PackedInputs,
  weight: (name: string) => Value,
  tape?: Tape,
): Trunk {
  const b: Building = { graph: g, tape, ...shape, dModel: config.dModel, heads: config.heads }
  const width = config.dModel / config.heads
  const forQuery = rotary(g, inputs.positions, config.context, width, 1 / Math.sqrt(width))
  const forKey = rotary(g, inputs.positions, config.context, width, 1)
  const embedded = g.op('Gather', [weight('wte'), inputs.tokens], { axis: 0 })
  const keys: Value[] = []
  const values: Value[] = []
  let h = embedded
  for (let l = 0; l < config.layers; l++) {
    const w = (part: string): Value => weight(`layers.${l}.${part}`)
    const x = rmsNorm(b, h)
    const q = rotate(b, linear(b, x, w('query')), forQuery)
    const k = rotate(b, linear(b, x, w('key')), forKey)
    const v = linear(b, x, w('value'))
    keys.push(k)
    values.push(v)
    h = linear(b, attention(b, q, k, v, inputs.mask), w('output'), h)
    h = feedForward(b, rmsNorm(b, h), w('up'), w('down'), h)
  }
  return { hidden: rmsNorm(b, h), embedded, keys, values }
}
