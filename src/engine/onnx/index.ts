import type { EngineBench } from './bench.ts'

export type { EngineBench, WorkRate } from './bench.ts'
export { OnnxEngine, OnnxModel, OnnxSampler, OnnxSnapshot, openOnnxEngine } from './engine.ts'
export { checkConfig, type ModelConfig, parameterCount } from './model-config.ts'
export type { Backbone, BackboneOptions, OpenOptions } from './protocol.ts'

/** See bench.ts; loaded on use, as it brings ONNX Runtime onto the calling thread. */
export async function benchEngine(options: {
  readonly threads: number
  readonly seconds: number
  readonly signal?: AbortSignal
}): Promise<EngineBench> {
  return (await import('./bench.ts')).benchEngine(options)
}

/** See probe.ts; loaded on use, too. */
export async function probeOnnx(): Promise<string> {
  return (await import('./probe.ts')).probeOnnx()
}
