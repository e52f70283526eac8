import { checkSample, type ModelLimits, type SampleCall, sampleRequest, strict } from './checks.ts'
import { TinkerError } from './failure.ts'
import { readSample } from './responses.ts'
import type { TinkerSession } from './session.ts'
import type { WireRequest } from './transport.ts'
import type { SampleOutput, WireSequence } from './wire/messages.ts'

export interface SampleResult {
  readonly sequences: readonly (WireSequence & { readonly logprobs: readonly number[] })[]
  /** One entry a prompt token; the first, and what the server left out, is NaN. Only where they were asked for. */
  readonly promptLogprobs?: Float32Array
  /** How many entries the server sent for them. */
  readonly promptEntries?: number
}

const NEVER = new AbortController().signal

/**
 * A sampling session: weights frozen when it was made (on servers that isolate samplers; probe it). Log-probabilities are
 * the server's own and are checked: missing, cut or all-zero vectors are refused.
 */
export class SamplingClient {
  #seq = 0
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(
    private readonly session: TinkerSession,
    readonly id: string,
    /** Base model, model id or path that it samples from. */
    readonly of: string,
    readonly limits: ModelLimits,
  ) {}

  async sample(call: SampleCall, signal: AbortSignal = NEVER): Promise<SampleResult> {
    const what = `asample of ${this.of}`
    const s = strict(what, sampleRequest, call)
    checkSample(what, s, this.limits)
    this.session.check()
    await this.#enter(signal)
    try {
      return await this.#sample(s, what, signal)
    } finally {
      this.#running--
      this.#waiting.shift()?.()
    }
  }

  /** Log-probability of every token of a sequence; entry 0 is NaN. */
  async logprobs(tokens: readonly number[], signal: AbortSignal = NEVER): Promise<Float32Array> {
    const r = await this.sample({ prompt: tokens, maxTokens: 1, seed: 0, promptLogprobs: true }, signal)
    return r.promptLogprobs!
  }

  async #sample(s: SampleCall, what: string, signal: AbortSignal): Promise<SampleResult> {
    const count = s.count ?? 1
    const body = {
      sampling_session_id: this.id,
      seq_id: this.#seq++,
      num_samples: count,
      prompt: { chunks: [{ type: 'encoded_text', tokens: s.prompt }] },
      sampling_params: {
        max_tokens: s.maxTokens,
        ...(s.seed === undefined ? {} : { seed: s.seed }),
        ...(s.stop && s.stop.length > 0 ? { stop: s.stop } : {}),
        temperature: s.temperature ?? 1,
        top_p: s.topP ?? 1,
        top_k: s.topK ?? -1,
      },
      ...(s.promptLogprobs ? { prompt_logprobs: true } : {}),
      type: 'sample',
    }
    const request: WireRequest = {
      what,
      method: 'POST',
      path: '/asample',
      body: Buffer.from(JSON.stringify(body)),
      headers: { 'X-Tinker-Sampling-Backpressure': '1' },
      // A second sample costs tokens and changes nothing.
      repeatable: true,
    }
    const { id } = await this.session.client.submit(request, signal)
    const out = await this.session.client.retrieve(id, request, 'Sample', readSample, signal)
    return checked(what, out, count, s)
  }

  async #enter(signal: AbortSignal): Promise<void> {
    const most = this.session.client.options.concurrency ?? 64
    while (this.#running >= most) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
      signal.throwIfAborted()
    }
    this.#running++
  }
}

function checked(what: string, out: SampleOutput, count: number, s: SampleCall): SampleResult {
  const bad = (detail: string): never => {
    throw new TinkerError(what, { kind: 'not-finite', detail })
  }
  // A server may answer a request for prompt log-probabilities without a generated token.
  if (out.sequences.length !== count && !(s.promptLogprobs && out.sequences.length === 0))
    throw new TinkerError(what, { kind: 'unreadable', detail: `${out.sequences.length} samples for ${count}` })
  const sequences = out.sequences.map((q) => {
    const lp = q.logprobs ?? []
    if (lp.length !== q.tokens.length) bad(`${lp.length} log-probabilities for ${q.tokens.length} tokens`)
    if (lp.some((v) => !Number.isFinite(v))) bad('a log-probability is not finite')
    // One certain token may well have log-probability 0; a whole vector of zeros is a server that did not measure.
    if (lp.length > 1 && lp.every((v) => v === 0) && (s.temperature ?? 1) > 0) bad('all log-probabilities are 0')
    return { ...q, logprobs: lp }
  })
  if (!s.promptLogprobs) return { sequences }
  return {
    sequences,
    promptLogprobs: aligned(what, out.promptLogprobs, s.prompt.length),
    promptEntries: out.promptLogprobs?.length ?? 0,
  }
}

/** One entry a token: servers send N, the first empty, or N-1 without it. */
export function aligned(what: string, sent: readonly (number | null)[] | null, n: number): Float32Array {
  const out = new Float32Array(n).fill(Number.NaN)
  if (n === 1) return out
  if (!sent || (sent.length !== n && sent.length !== n - 1))
    throw new TinkerError(what, {
      kind: 'unreadable',
      detail: `${sent?.length ?? 0} prompt log-probabilities for ${n} tokens`,
    })
  const shift = n - sent.length
  for (let i = 1; i < n; i++) {
    const v = sent[i - shift]
    if (v === null || v === undefined || !Number.isFinite(v))
      throw new TinkerError(what, { kind: 'not-finite', detail: `the log-probability of prompt token ${i} is ${v}` })
    out[i] = v
  }
  return out
}
