import ort from 'onnxruntime-node'
import { EngineError } from '../../core/index.ts'
import { Graph } from './graph.ts'
import { floats, Sessions, tensor } from './sessions.ts'

/**
 * Runs a graph of one addition on this machine, which proves that the library is there, loads and computes.
 * @returns its version and provider, in words
 * @throws whatever the library throws; an EngineError where it adds wrongly
 */
export async function probeOnnx(): Promise<string> {
  const sessions = new Sessions(1)
  try {
    const build = (): Uint8Array => {
      const g = new Graph()
      g.output('sum', g.op('Add', [g.input('a', 'float32', [2]), g.input('b', 'float32', [2])]), 'float32', [2])
      return g.model()
    }
    const feeds = { a: tensor(Float32Array.of(1, 2), [2]), b: tensor(Float32Array.of(10, 20), [2]) }
    const sum = floats(await sessions.run('probe', build, feeds), 'sum')
    if (sum[0] !== 11 || sum[1] !== 22) throw new EngineError(`1 + 10, 2 + 20 came out as ${sum.join(', ')}`)
    return `onnxruntime-node ${ort.env.versions.node ?? ort.env.versions.common}, provider cpu`
  } finally {
    await sessions.close()
  }
}
