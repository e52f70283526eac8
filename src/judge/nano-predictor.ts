import {
  type Attempt,
  type Belief,
  binCentre,
  keyed,
  messageOf,
  type OutcomeKind,
  type TaskRef,
  type Unscorable,
} from '../core/index.ts'
import type { Sampler } from '../engine/index.ts'
import { NANO_BINS, NANO_DETAIL, type NanoCodec } from '../engine/text/index.ts'
import { certain } from './certain.ts'
import type { Predictor } from './judge.ts'

export interface NanoPredictorOptions {
  readonly sampler: Sampler
  readonly codec: NanoCodec
  /** Brief overview and slot names of a task, as the agent gets them. */
  brief(task: TaskRef): Promise<{ text: string; names: readonly string[] }>
  /** Python's own compile(): a check, not an execution; exact on both sides. */
  checkSyntax(code: string, signal: AbortSignal): Promise<{ type: string; message: string } | undefined>
  readonly seed: number
  /** Logit scale folded into the checkpoint for sampling (default 1): beliefs are read without it, as they were learnt. */
  readonly sharpening?: number
  /** Whether to write an error's text for failures that the agent will read (costs a short decode). */
  readonly details: boolean
}

type Predicted = { belief: Belief; tokens: number } | Unscorable

/**
 * The frozen backbone as a world model: it reads overview and program, and one softmax over the outcome tokens is the
 * belief. What the parser knows exactly (no program, a syntax error) is not asked of it. A program is never cut: one that
 * does not fit the context is unscorable.
 */
export class NanoPredictor implements Predictor {
  private readonly kinds: readonly { kind: OutcomeKind; percentile?: number; id: number }[]
  constructor(private readonly o: NanoPredictorOptions) {
    const ends = o.codec.ends.filter((e) => e.kind !== 'syntax-error' && e.kind !== 'malformed')
    this.kinds = [
      ...Array.from({ length: NANO_BINS }, (_, b) => ({
        kind: 'graded' as const,
        percentile: binCentre(b),
        id: o.codec.bins[b]!,
      })),
      ...ends.map((e) => ({ kind: e.kind, id: e.id })),
    ]
  }

  predict(attempts: readonly Attempt[], signal: AbortSignal): readonly Promise<Predicted>[] {
    const batch = this.batch(attempts, signal)
    return attempts.map(async (_, i) => {
      try {
        return (await batch)[i]!
      } catch (e) {
        return { cause: signal.aborted ? 'cancelled' : 'prediction', detail: messageOf(e) } as const
      }
    })
  }

  private async batch(attempts: readonly Attempt[], signal: AbortSignal): Promise<Predicted[]> {
    const out = new Array<Predicted>(attempts.length)
    const asked: { at: number; prefix: number[]; names: readonly string[] }[] = []
    await Promise.all(
      attempts.map(async (a, at) => {
        const code = a.action.code
        if (code === undefined) {
          out[at] = certain('malformed')
          return
        }
        const fault = await this.o.checkSyntax(code, signal)
        if (fault) {
          out[at] = certain('syntax-error', `${fault.type}: ${fault.message}`)
          return
        }
        const { text, names } = await this.o.brief(a.task)
        const { codec, sampler } = this.o
        const prefix = [...codec.prompt(text, names), ...codec.program(code, names), codec.ids.obs]
        if (prefix.length + 1 > sampler.limits.context) {
          out[at] = {
            cause: 'prediction',
            detail: `${prefix.length} tokens do not fit a context of ${sampler.limits.context}`,
          }
          return
        }
        asked.push({ at, prefix, names })
      }),
    )
    asked.sort((a, b) => a.at - b.at)
    if (asked.length > 0) await this.ask(attempts, asked, out, signal)
    return out
  }

  private async ask(
    attempts: readonly Attempt[],
    asked: readonly { at: number; prefix: number[]; names: readonly string[] }[],
    out: Predicted[],
    signal: AbortSignal,
  ): Promise<void> {
    const { sampler, codec } = this.o
    if (!sampler.next)
      throw new Error('this engine cannot score outcome tokens; set prediction.score to mean, greedy or sample')
    const rows = await sampler.next(
      asked.map((a) => a.prefix),
      this.kinds.map((k) => k.id),
      signal,
    )
    const needsText: { k: number; prompt: number[] }[] = []
    const beliefs = asked.map((a, k) => {
      const belief = this.belief(rows[k]!, attempts[a.at]!)
      const shown = belief?.alternatives[belief.shown]
      if (belief && shown && (shown.kind === 'crashed' || shown.kind === 'invalid-submission') && this.o.details) {
        needsText.push({ k, prompt: [...a.prefix, this.kinds[belief.shown]!.id] })
      }
      return belief
    })
    const texts = new Map<number, string>()
    const room = needsText.filter((n) => n.prompt.length + 16 <= sampler.limits.context)
    const samples = sampler.sample(
      room.map((n) => ({ prompt: n.prompt, count: 1, maxTokens: 14, stop: [codec.ids.end], seeds: [0], greedy: true })),
      signal,
    )
    await Promise.all(
      samples.map(async (s, i) => {
        const { sequences } = await s
        texts.set(room[i]!.k, codec.decodeDetail(sequences[0]!.tokens, asked[room[i]!.k]!.names).slice(0, NANO_DETAIL))
      }),
    )
    asked.forEach((a, k) => {
      const b = beliefs[k]
      if (!b) {
        out[a.at] = { cause: 'prediction', detail: 'the world model gave no probability to any outcome' }
        return
      }
      const detail = texts.get(k)
      const alternatives =
        detail === undefined ? b.alternatives : b.alternatives.map((x, i) => (i === b.shown ? { ...x, detail } : x))
      out[a.at] = { belief: { alternatives, shown: b.shown }, tokens: a.prefix.length }
    })
  }

  /** Softmax over the outcome tokens and the keyed draw; undefined where nothing finite came back. */
  private belief(logprobs: Float32Array, a: Attempt): Belief | undefined {
    const top = Math.max(...logprobs)
    if (!Number.isFinite(top)) return undefined
    const scale = this.o.sharpening ?? 1
    const w = this.kinds.map((_, i) => Math.exp((logprobs[i]! - top) / scale))
    const total = w.reduce((s, v) => s + v, 0)
    if (!Number.isFinite(total)) return undefined
    const alternatives = this.kinds.map((k, i) => ({
      kind: k.kind,
      ...(k.percentile === undefined ? {} : { percentile: k.percentile }),
      p: w[i]! / total,
    }))
    return { alternatives, shown: draw(alternatives, keyed('shown', this.o.seed, a.id).next()) }
  }
}

function draw(alternatives: readonly { p: number }[], u: number): number {
  let left = u
  for (let i = 0; i < alternatives.length; i++) {
    left -= alternatives[i]!.p
    if (left < 0) return i
  }
  return alternatives.length - 1
}
