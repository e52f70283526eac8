import type { Graph, Value } from './graph.ts'
import type { Tape } from './tape.ts'

/**
 * The differentiable layers of the transformer. Rows are time-major (row t * batch + b), because a batched product can
 * then read heads in place and only attention's results need transposing. Without a tape only the forward part is
 * emitted.
 */
export interface Building {
  readonly graph: Graph
  readonly tape?: Tape | undefined
  readonly batch: number
  readonly length: number
  readonly dModel: number
  readonly heads: number
}

const NORM_EPSILON = 1e-5

/** x [n, i] @ w [i, o], added to `onto` [n, o] when given. */
export function linear(b: Building, x: Value, w: Value, onto?: Value): Value {
  const y = b.graph.op('Gemm', onto === undefined ? [x, w] : [x, w, onto])
  b.tape?.record(() => {
    const tape = b.tape!
    const dy = tape.gradient(y)
    tape.add(w, b.graph.op('Gemm', [x, dy], { transA: 1 }))
    tape.addProduct(x, dy, w)
    if (onto !== undefined) tape.add(onto, dy)
  })
  return y
}

/** x / rms(x), without a learned gain: the next product's weights can hold one. */
export function rmsNorm(b: Building, x: Value): Value {
  const g = b.graph
  const gain = g.constant(new Float32Array(b.dModel).fill(1), [b.dModel])
  const [y, inverse] = g.ops('SimplifiedLayerNormalization', [x, gain], 2, {
    axis: -1,
    epsilon: { float: NORM_EPSILON },
  }) as [Value, Value]
  b.tape?.record(() => {
    // dx = (dy - y * mean(dy * y)) / rms
    const dy = b.tape!.gradient(y)
    const mean = g.op('ReduceMean', [g.op('Mul', [dy, y]), g.ints(-1)], { keepdims: 1 })
    b.tape!.add(x, g.op('Mul', [g.op('Sub', [dy, g.op('Mul', [y, mean])]), inverse]))
  })
  return y
}

/** down(relu(up(x))^2) added to `onto`. The squared ReLU (Primer, So et al. 2021) needs one product to go back. */
export function feedForward(b: Building, x: Value, up: Value, down: Value, onto: Value): Value {
  const g = b.graph
  const r = g.op('Relu', [g.op('Gemm', [x, up])])
  const a = g.op('Mul', [r, r])
  const y = g.op('Gemm', [a, down, onto])
  b.tape?.record(() => {
    const tape = b.tape!
    const dy = tape.gradient(y)
    tape.add(down, g.op('Gemm', [a, dy], { transA: 1 }))
    const du = g.op('Mul', [g.op('Gemm', [dy, down], { transB: 1, alpha: { float: 2 } }), r])
    tape.add(up, g.op('Gemm', [x, du], { transA: 1 }))
    tape.addProduct(x, du, up)
    tape.add(onto, dy)
  })
  return y
}

/** Rotary tables [context, headWidth / 2]; a scale folded into both scales the rotated vector. */
export interface Rotary {
  readonly positions: Value
  readonly cos: Value
  readonly sin: Value
  readonly minusSin: Value
}

export function rotary(g: Graph, positions: Value, context: number, headWidth: number, scale: number): Rotary {
  const half = headWidth / 2
  const tables = { cos: new Float32Array(context * half), sin: new Float32Array(context * half) }
  for (let t = 0; t < context; t++) {
    for (let i = 0; i < half; i++) {
      const angle = t * 10_000 ** (-i / half)
      tables.cos[t * half + i] = scale * Math.cos(angle)
      tables.sin[t * half + i] = scale * Math.sin(angle)
    }
  }
  return {
    positions,
    cos: g.constant(tables.cos, [context, half]),
    sin: g.constant(tables.sin, [context, half]),
    minusSin: g.constant(
      tables.sin.map((x) => -x),
      [context, half],
    ),
  }
}

/** Rotates each head of x [n, d]; the gradient is rotated back. */
export function rotate(b: Building, x: Value, r: Rotary): Value {
  const g = b.graph
  const n = b.batch * b.length
  const apply = (value: Value, sin: Value): Value => {
    const rotated = g.contrib('RotaryEmbedding', [g.reshape(value, n, 1, b.dModel), r.positions, r.cos, sin], {
      num_heads: b.heads,
    })
    return g.reshape(rotated, n, b.dModel)
  }
  const y = apply(x, r.sin)
  b.tape?.record(() => b.tape!.add(x, apply(b.tape!.gradient(y), r.minusSin)))
  return y
}

/**
 * softmax(q k^T + mask) v over heads; q carries the 1/sqrt(width) already. q, k, v are [n, d], the mask
 * [batch, 1, length, length] is 0 where a query may look and very negative elsewhere.
 */
export function attention(b: Building, q: Value, k: Value, v: Value, mask: Value): Value {
  const g = b.graph
  const n = b.batch * b.length
  const width = b.dModel / b.heads
  const rows = b.batch * b.heads
  /** Time-major [length, batch * heads, width]; `transBatch` reads it as [batch * heads, length, width]. */
  const split = (x: Value): Value => g.reshape(x, b.length, rows, width)
  const merge = (x: Value): Value => g.reshape(g.op('Transpose', [x], { perm: [1, 0, 2] }), n, b.dModel)
  const q3 = split(q)
  const k3 = split(k)
  const v3 = split(v)
  const scores = g.contrib('FusedMatMul', [q3, k3], { transBatchA: 1, transBatchB: 1, transB: 1 })
  const masked = g.op('Add', [g.reshape(scores, b.batch, b.heads, b.length, b.length), mask])
  const p = g.reshape(g.op('Softmax', [masked], { axis: -1 }), rows, b.length, b.length)
  const y = merge(g.contrib('FusedMatMul', [p, v3], { transBatchB: 1 }))
  b.tape?.record(() => {
    const tape = b.tape!
    const dy = tape.gradient(y)
    const dy3 = split(dy)
    tape.add(v, merge(g.contrib('FusedMatMul', [p, dy3], { transA: 1, transBatchB: 1 })))
    // Softmax backward: dS = P * (dP - rowsum(dP * P)), and the row sum equals sum(dy * y) over a head's width.
    const product = g.reshape(g.op('Mul', [dy, y]), b.length, rows, width)
    const rowSum = g.op('Transpose', [g.op('ReduceSum', [product, g.ints(-1)], { keepdims: 1 })], { perm: [1, 0, 2] })
    const dp = g.contrib('FusedMatMul', [dy3, v3], { transBatchA: 1, transBatchB: 1, transB: 1 })
    const ds = g.op('Mul', [p, g.op('Sub', [dp, rowSum])])
    tape.add(q, merge(g.contrib('FusedMatMul', [ds, k3], { transBatchB: 1 })))
    tape.add(k, merge(g.contrib('FusedMatMul', [ds, q3], { transA: 1, transBatchB: 1 })))
  })
  return y
}
