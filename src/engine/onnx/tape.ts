import type { Graph, Value } from './graph.ts'

/**
 * Reverse-mode differentiation over a graph under construction: each differentiable layer records how to emit its
 * backward nodes, `backward` replays the records last to first.
 */
export class Tape {
  readonly #records: (() => void)[] = []
  readonly #gradients = new Map<Value, Value>()

  constructor(readonly graph: Graph) {}

  record(emit: () => void): void {
    this.#records.push(emit)
  }

  /** The gradient collected for a value; asking for one that nothing contributed to is a bug. */
  gradient(of: Value): Value {
    const g = this.#gradients.get(of)
    if (g === undefined) throw new Error(`no gradient reached ${of}`)
    return g
  }

  add(to: Value, gradient: Value): void {
    const before = this.#gradients.get(to)
    this.#gradients.set(to, before === undefined ? gradient : this.graph.op('Add', [before, gradient]))
  }

  /** Adds dy @ w^T, letting the matrix product do the sum. */
  addProduct(to: Value, dy: Value, w: Value): void {
    const before = this.#gradients.get(to)
    const inputs = before === undefined ? [dy, w] : [dy, w, before]
    this.#gradients.set(to, this.graph.op('Gemm', inputs, { transB: 1 }))
  }

  backward(): void {
    for (let emit = this.#records.pop(); emit; emit = this.#records.pop()) emit()
  }
}
