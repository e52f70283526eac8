import type { WeightsVersion } from '../../core/index.ts'
import type {
  AdamParams,
  Checkpoint,
  Datum,
  EngineUsage,
  Loss,
  LossReport,
  SampledSequence,
  SampleRequest,
  StepReport,
  TokenSequence,
} from '../contract.ts'
import type { ModelConfig } from './model-config.ts'

/** What main thread and worker say to each other. One call is one `CallMessage`, any `part`s, and one reply. */
export interface OpenOptions {
  readonly backbone: Backbone
  readonly checkpointDir: string
  readonly threads: number
}

/** A safetensors file whose metadata holds the configuration, or a fresh model. */
export type Backbone = string | { readonly config: ModelConfig; readonly seed: number }

/** A sampler or model inside the worker. */
export type Handle = number

export interface Calls {
  open(options: OpenOptions): { config: ModelConfig; frozen: Handle; version: WeightsVersion }
  openModel(from: 'frozen' | Checkpoint): { model: Handle }
  closeModel(model: Handle): null
  snapshot(model: Handle): { sampler: Handle; version: WeightsVersion }
  closeSampler(sampler: Handle): null
  forwardBackward(model: Handle, data: readonly Datum[], loss: Loss): LossReport
  optimStep(model: Handle, adam: AdamParams): StepReport
  save(model: Handle, name: string): Checkpoint
  saveBackbone(model: Handle, path: string, options: BackboneOptions): { bytes: number }
  /** Sends a `SamplePart` for each request that ends, well or not. */
  sample(sampler: Handle, requests: readonly SampleRequest[]): null
  logprobs(sampler: Handle, sequences: readonly TokenSequence[]): readonly Float32Array[]
  next(sampler: Handle, prefixes: readonly TokenSequence[], ids: readonly number[]): readonly Float32Array[]
  close(): null
}

export interface BackboneOptions {
  /** Replaces the model's logit scale, which is how a chosen sharpening is folded in. */
  readonly logitScale?: number
  readonly metadata?: Readonly<Record<string, string>>
}

export type Method = keyof Calls

export interface SamplePart {
  readonly request: number
  readonly sequences: readonly SampledSequence[]
}

export type ToWorker =
  | { readonly type: 'call'; readonly id: number; readonly method: Method; readonly args: readonly unknown[] }
  | { readonly type: 'abort'; readonly id: number }

export type FromWorker =
  /** `usage` is of the handle that the call works on, since that was opened. */
  | { readonly type: 'part'; readonly id: number; readonly part: SamplePart; readonly usage: EngineUsage | undefined }
  | { readonly type: 'done'; readonly id: number; readonly value: unknown; readonly usage: EngineUsage | undefined }
  | { readonly type: 'failed'; readonly id: number; readonly error: WireError; readonly usage: EngineUsage | undefined }

export interface WireError {
  readonly kind: 'aborted' | 'engine' | 'config' | 'other'
  readonly message: string
  readonly path: string
  readonly stack: string
}
