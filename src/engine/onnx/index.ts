export { OnnxEngine, OnnxModel, OnnxSampler, OnnxSnapshot, openOnnxEngine } from './engine.ts'
export { checkConfig, type ModelConfig, parameterCount } from './model-config.ts'
export type { Backbone, BackboneOptions, OpenOptions } from './protocol.ts'
