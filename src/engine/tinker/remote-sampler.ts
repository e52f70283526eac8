import { EngineError, type WeightsVersion } from '../../core/index.ts'
import type { EngineUsage, Sample, SampleRequest, Sampler, TokenSequence } from '../contract.ts'
import type { SampleResult, SamplingClient } from './sampling.ts'

/** Counts what was computed, for the cost ledger. */
export class Meter {
  promptTokens = 0
  sampledTokens = 0
  trainedTokens = 0
  get usage(): EngineUsage {
    return {
      promptTokens: this.promptTokens,
      sampledTokens: this.sampledTokens,
      trainedTokens: this.trainedTokens,
      cpuS: 0,
    }
  }
}

export interface RemoteSamplerOptions {
  readonly client: SamplingClient
  readonly version: WeightsVersion
  readonly context: number
  readonly meter: Meter
  /** Asked before each request. @throws EngineError where these weights can no longer be sampled. */
  readonly admit?: () => void
  /** Told of requests that run. */
  readonly running?: (change: 1 | -1) => void
}

/** A sampling session as the contract's sampler. Every sample is a request of its own: one straggler holds no group. */
export class RemoteSampler implements Sampler {
  readonly version: WeightsVersion
  readonly limits: { readonly context: number }
  constructor(private readonly o: RemoteSamplerOptions) {
    this.version = o.version
    this.limits = { context: o.context }
  }

  get usage(): EngineUsage {
    return this.o.meter.usage
  }

  sample(requests: readonly SampleRequest[], signal: AbortSignal): readonly Promise<Sample>[] {
    return requests.map((r) => {
      const p = this.#one(r, signal)
      // A caller that awaits them in order must not crash on a later one's failure first.
      p.catch(() => undefined)
      return p
    })
  }

  async #one(r: SampleRequest, signal: AbortSignal): Promise<Sample> {
    if (r.seeds.length !== r.count) throw new EngineError(`${r.seeds.length} seeds for ${r.count} samples`)
    if (r.topP !== undefined && r.topP !== 1)
      throw new EngineError('a server’s log-probabilities are those of the whole distribution: topP must be 1')
    const all = await Promise.all(
      r.seeds.map((seed) =>
        this.#ask(
          () =>
            this.o.client.sample(
              {
                prompt: r.prompt,
                maxTokens: r.maxTokens,
                seed,
                ...(r.stop.length > 0 ? { stop: r.stop } : {}),
                ...(r.greedy ? { temperature: 0 } : {}),
              },
              signal,
            ),
          r.prompt.length,
        ),
      ),
    )
    const sequences = all.map((a) => a.sequences[0]!)
    return {
      sequences: sequences.map((s) => ({ tokens: s.tokens, logprobs: s.logprobs, stopReason: s.stopReason })),
      version: this.version,
    }
  }

  async logprobs(seqs: readonly TokenSequence[], signal: AbortSignal): Promise<readonly Float32Array[]> {
    return Promise.all(
      seqs.map(async (tokens) => {
        const r = await this.#ask(
          () => this.o.client.sample({ prompt: tokens, maxTokens: 1, seed: 0, promptLogprobs: true }, signal),
          tokens.length,
        )
        return r.promptLogprobs!
      }),
    )
  }

  async #ask(f: () => Promise<SampleResult>, prompt: number): Promise<SampleResult> {
    this.o.admit?.()
    this.o.running?.(1)
    try {
      const r = await f()
      this.o.meter.promptTokens += prompt
      this.o.meter.sampledTokens += r.sequences.reduce((n, s) => n + s.tokens.length, 0)
      return r
    } finally {
      this.o.running?.(-1)
    }
  }
}
