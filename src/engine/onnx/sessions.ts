import type { InferenceSession as Session } from 'onnxruntime-node'
import ort from 'onnxruntime-node'
import { boundary, EngineError } from '../../core/index.ts'

export type Tensors = Readonly<Record<string, ort.Tensor>>
type Data = Float32Array | Int32Array | BigInt64Array

/** Sessions kept at once; each holds an arena as large as its activations. */
const MAX_SESSIONS = 24

export function tensor(data: Data, dims: readonly number[]): ort.Tensor {
  if (data instanceof Float32Array) return new ort.Tensor('float32', data, dims)
  if (data instanceof Int32Array) return new ort.Tensor('int32', data, dims)
  return new ort.Tensor('int64', data, dims)
}

export function floats(outputs: Tensors, name: string): Float32Array {
  return outputs[name]!.data as Float32Array
}

/**
 * ONNX Runtime sessions by graph, built on first use; the least recently used one goes when there are too many. For one
 * caller at a time.
 */
export class Sessions {
  readonly #known = new Map<string, Session>()

  constructor(readonly threads: number) {}

  async run(key: string, build: () => Uint8Array, feeds: Tensors): Promise<Tensors> {
    return await boundary(EngineError, `running the ${key} graph`, async () => {
      const session = this.#known.get(key) ?? (await this.#create(build()))
      // Re-entering it makes it the most recently used.
      this.#known.delete(key)
      this.#known.set(key, session)
      await this.#trim()
      return await session.run(feeds)
    })
  }

  async close(): Promise<void> {
    const sessions = [...this.#known.values()]
    this.#known.clear()
    for (const s of sessions) await s.release()
  }

  #create(model: Uint8Array): Promise<Session> {
    return ort.InferenceSession.create(model, {
      intraOpNumThreads: this.threads,
      interOpNumThreads: 1,
      logSeverityLevel: 3,
      // Two threads that spin between nodes starve each other and everything else on two cores.
      extra: { session: { intra_op: { allow_spinning: '0' } } },
    })
  }

  async #trim(): Promise<void> {
    for (const [key, session] of this.#known) {
      if (this.#known.size <= MAX_SESSIONS) return
      this.#known.delete(key)
      await session.release()
    }
  }
}
