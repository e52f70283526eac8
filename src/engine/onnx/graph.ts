import { ProtoWriter } from './protobuf.ts'

/** Name of a tensor inside a graph. */
export type Value = string & { readonly __value: unique symbol }
export type ElementType = 'float32' | 'int32' | 'int64'
/** A number fixes a dimension, a string names one that a run decides. */
export type Dims = readonly (number | string)[]
type Attribute = number | string | readonly number[] | { readonly float: number }

/** Codes of onnx.proto's TensorProto.DataType. */
const elementCode = { float32: 1, int32: 6, int64: 7 } as const
const IR_VERSION = 10
const OPSET = 21

/**
 * Collects nodes, constants, inputs and outputs of an ONNX graph and writes it as a model. Operators come from opset 21
 * of ONNX and version 1 of `com.microsoft`; shapes are the caller's business, ONNX Runtime checks them.
 */
export class Graph {
  readonly #nodes: ProtoWriter[] = []
  readonly #constants: ProtoWriter[] = []
  readonly #inputs: ProtoWriter[] = []
  readonly #outputs: ProtoWriter[] = []
  readonly #known = new Map<string, Value>()
  #count = 0

  input(name: string, type: ElementType, dims: Dims): Value {
    this.#inputs.push(valueInfo(name, type, dims))
    return name as Value
  }

  /** Publishes a value under a name. */
  output(name: string, value: Value, type: ElementType, dims: Dims): void {
    this.#node('Identity', [value], [name], {}, '')
    this.#outputs.push(valueInfo(name, type, dims))
  }

  constant(data: Float32Array | Int32Array | BigInt64Array, dims: readonly number[]): Value {
    const name = `c${this.#count++}`
    const type = data instanceof Float32Array ? 'float32' : data instanceof Int32Array ? 'int32' : 'int64'
    const tensor = new ProtoWriter()
    for (const d of dims) tensor.varint(1, d)
    tensor.varint(2, elementCode[type]).string(8, name)
    tensor.bytes(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    this.#constants.push(tensor)
    return name as Value
  }

  scalar(x: number): Value {
    return this.#once(`scalar ${x}`, () => this.constant(Float32Array.of(x), []))
  }

  /** A vector of int64, as shapes, axes and the like are given. */
  ints(...xs: readonly number[]): Value {
    return this.#once(`ints ${xs}`, () => this.constant(BigInt64Array.from(xs, BigInt), [xs.length]))
  }

  op(type: string, inputs: readonly Value[], attributes: Readonly<Record<string, Attribute>> = {}): Value {
    return this.ops(type, inputs, 1, attributes)[0]!
  }

  /** An operator of ONNX Runtime's own domain. */
  contrib(type: string, inputs: readonly Value[], attributes: Readonly<Record<string, Attribute>> = {}): Value {
    const out = `t${this.#count++}` as Value
    this.#node(type, inputs, [out], attributes, 'com.microsoft')
    return out
  }

  ops(
    type: string,
    inputs: readonly Value[],
    outputs: number,
    attributes: Readonly<Record<string, Attribute>> = {},
  ): readonly Value[] {
    const names = Array.from({ length: outputs }, () => `t${this.#count++}` as Value)
    this.#node(type, inputs, names, attributes, '')
    return names
  }

  reshape(value: Value, ...dims: readonly number[]): Value {
    return this.op('Reshape', [value, this.ints(...dims)])
  }

  /** The model's bytes, a ModelProto. */
  model(): Uint8Array {
    const graph = new ProtoWriter()
    for (const n of this.#nodes) graph.message(1, n)
    graph.string(2, 'wmrl')
    for (const c of this.#constants) graph.message(5, c)
    for (const i of this.#inputs) graph.message(11, i)
    for (const o of this.#outputs) graph.message(12, o)
    const model = new ProtoWriter().varint(1, IR_VERSION).message(7, graph)
    model.message(8, new ProtoWriter().string(1, '').varint(2, OPSET))
    model.message(8, new ProtoWriter().string(1, 'com.microsoft').varint(2, 1))
    return model.finish()
  }

  #once(key: string, make: () => Value): Value {
    let value = this.#known.get(key)
    if (value === undefined) {
      value = make()
      this.#known.set(key, value)
    }
    return value
  }

  #node(
    type: string,
    inputs: readonly string[],
    outputs: readonly string[],
    attributes: Readonly<Record<string, Attribute>>,
    domain: string,
  ): void {
    const node = new ProtoWriter()
    for (const i of inputs) node.string(1, i)
    for (const o of outputs) node.string(2, o)
    node.string(3, `${type}_${this.#nodes.length}`).string(4, type)
    for (const [name, value] of Object.entries(attributes)) node.message(5, attributeProto(name, value))
    if (domain) node.string(7, domain)
    this.#nodes.push(node)
  }
}

/** AttributeProto; field 20 says which of the others holds the value. */
function attributeProto(name: string, value: Attribute): ProtoWriter {
  const out = new ProtoWriter().string(1, name)
  if (typeof value === 'number') return out.varint(3, value).varint(20, 2)
  if (typeof value === 'string') return out.string(4, value).varint(20, 3)
  if ('float' in value) return out.float(2, value.float).varint(20, 1)
  for (const x of value) out.varint(8, x)
  return out.varint(20, 7)
}

function valueInfo(name: string, type: ElementType, dims: Dims): ProtoWriter {
  const shape = new ProtoWriter()
  for (const d of dims) {
    shape.message(1, typeof d === 'string' ? new ProtoWriter().string(2, d) : new ProtoWriter().varint(1, d))
  }
  const tensor = new ProtoWriter().varint(1, elementCode[type]).message(2, shape)
  return new ProtoWriter().string(1, name).message(2, new ProtoWriter().message(1, tensor))
}
