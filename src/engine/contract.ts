import type { WeightsVersion } from '../core/index.ts'

export type TokenSequence = readonly number[]

/** One request gives `count` samples of the same prompt; the prompt is computed once. */
export interface SampleRequest {
  readonly prompt: TokenSequence
  /** Samples wanted of this prompt. */
  readonly count: number
  readonly maxTokens: number
  /** Sampling ends after any of these ids; the id is part of the sample. */
  readonly stop: readonly number[]
  /** One keyed seed a sample, `count` of them. */
  readonly seeds: readonly number[]
  /** Nucleus mass in (0,1]; 1 samples the whole distribution. Log-probabilities are those of the truncated one. */
  readonly topP?: number
  /** Takes the most probable token; log-probabilities stay those of the full distribution. */
  readonly greedy?: boolean
}

export interface SampledSequence {
  readonly tokens: TokenSequence
  /** Log-probability of each token under the distribution sampled from; same length as `tokens`. */
  readonly logprobs: readonly number[]
  readonly stopReason: 'stop' | 'length'
}

export interface Sample {
  readonly sequences: readonly SampledSequence[]
  readonly version: WeightsVersion
}

/** What was computed, for the cost ledger. */
export interface EngineUsage {
  readonly promptTokens: number
  readonly sampledTokens: number
  readonly trainedTokens: number
  readonly cpuS: number
}

/**
 * One training sequence. `mask[i]` is 1 where token i was produced by the policy (token 0 never is). `advantage` is the
 * coefficient of the *sum* of the trajectory's token scores over B*G; `logprobs[i]` the one recorded at sampling.
 */
export interface Datum {
  readonly tokens: TokenSequence
  readonly mask: readonly number[]
  readonly advantage: number
  /** Recorded at sampling; needed by the ratio losses, ignored by cross-entropy. */
  readonly logprobs?: readonly number[]
  /** Extra weight a token (cross-entropy: outcome tokens may weigh more); default 1 where the mask is 1. */
  readonly weights?: readonly number[]
  /** Log-probabilities of the frozen backbone for the k3 KL term; needed when `kl` is not 0. */
  readonly reference?: readonly number[]
}

/**
 * loss = (1/normaliser) * sum over data and tokens of
 *   cross_entropy:        -weight * log p
 *   importance_sampling:  -advantage * exp(log p - old) * weight
 *   ppo:                  -min(ratio * advantage, clip(ratio, 1-low, 1+high) * advantage) * weight
 * minus entropyBonus * exact token entropy, plus kl * k3(reference) on tokens with mask 1.
 * The normaliser is the number of data for the ratio losses (B*G of a step that is handed over at once) and the sum of
 * weights for cross-entropy, unless given; give it when a step is spread over several calls.
 */
export type Loss = {
  readonly kind: 'cross_entropy' | 'importance_sampling' | 'ppo'
  readonly clipLow?: number
  readonly clipHigh?: number
  readonly entropyBonus?: number
  readonly kl?: number
  readonly normaliser?: number
  /**
   * importance_sampling on tokens of older weights: ratios above it count as it, in the gradient too. Only engines that
   * sample ahead take it.
   */
  readonly truncate?: number
}

export interface LossReport {
  readonly loss: number
  /** Log-probability of every token of every datum; entry 0 is NaN. */
  readonly logprobs: readonly Float32Array[]
  /** Mean exact entropy in nats over mask-1 tokens. */
  readonly entropy: number
  readonly tokens: number
}

export interface AdamParams {
  readonly learningRate: number
  readonly beta1?: number
  readonly beta2?: number
  readonly epsilon?: number
  readonly weightDecay?: number
  /** Gradients are scaled down to this global norm; absent means no clipping. */
  readonly gradClip?: number
}

export interface StepReport {
  readonly version: WeightsVersion
  readonly gradNorm: number
  /** False when the step was refused because a gradient was not finite; weights are then unchanged. */
  readonly applied: boolean
}

export interface Checkpoint {
  readonly name: string
  /** Where the engine finds it again: a path for the embedded engine, a server URI otherwise. */
  readonly location: string
  readonly version: WeightsVersion
}

export interface Capabilities {
  readonly name: string
  readonly losses: readonly Loss['kind'][]
  readonly context: number
  /** How the server reduces a loss over tokens and data; the caller rescales advantages accordingly. */
  readonly reduction: 'sum' | 'sequence-mean'
  readonly seedsHonoured: boolean
  readonly entropyBonus: boolean
  readonly kl: boolean
}

export interface Sampler {
  readonly version: WeightsVersion
  readonly limits: { readonly context: number }
  /** What it computed so far, where that is known; a model's snapshots report their model's. */
  readonly usage?: EngineUsage
  /** One promise a request, in order. */
  sample(requests: readonly SampleRequest[], signal: AbortSignal): readonly Promise<Sample>[]
  /** Teacher-forced log-probability of each token; entry 0 is NaN. */
  logprobs(seqs: readonly TokenSequence[], signal: AbortSignal): Promise<readonly Float32Array[]>
  /**
   * Log-probabilities of the next token after each prefix, over the given ids (log-softmax of the full vocabulary).
   * What an expectation over outcomes is read from. Absent where a server cannot do it.
   */
  next?(
    prefixes: readonly TokenSequence[],
    ids: readonly number[],
    signal: AbortSignal,
  ): Promise<readonly Float32Array[]>
}

/** Disposing of it gives its weights back to the engine. */
export interface Model extends AsyncDisposable {
  /** An immutable sampler of the present weights. */
  snapshot(signal: AbortSignal): Promise<Sampler & AsyncDisposable>
  forwardBackward(data: readonly Datum[], loss: Loss, signal: AbortSignal): Promise<LossReport>
  optimStep(adam: AdamParams, signal: AbortSignal): Promise<StepReport>
  save(name: string, signal: AbortSignal): Promise<Checkpoint>
  readonly usage: EngineUsage
}

export interface Engine extends AsyncDisposable {
  readonly capabilities: Capabilities
  /** The backbone before training; the world model samples from it. */
  frozen(signal: AbortSignal): Promise<Sampler>
  open(from: 'frozen' | Checkpoint, signal: AbortSignal): Promise<Model>
}
