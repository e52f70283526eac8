import {
  type Attempt,
  type Belief,
  keyed,
  keyedSeed,
  messageOf,
  type OutcomeKind,
  type Unscorable,
} from '../core/index.ts'
import type { ChatMessage, Completer, CompletionRequest } from '../engine/text/index.ts'
import { certain } from './certain.ts'
import type { Predictor } from './judge.ts'

export interface ChatVerdict {
  readonly outcome: OutcomeKind
  /** In [0,1]; read for `graded`. */
  readonly quality: number
  readonly feedback: string
}

export interface ChatPredictorOptions {
  readonly completer: Completer
  messages(attempt: Attempt & { readonly action: { readonly code: string } }): Promise<readonly ChatMessage[]>
  /** Undefined where an answer holds no verdict. */
  read(text: string): ChatVerdict | undefined
  readonly schema?: NonNullable<CompletionRequest['schema']>
  /** Python's own compile(): a check, not an execution; exact on both sides. */
  checkSyntax(code: string, signal: AbortSignal): Promise<{ type: string; message: string } | undefined>
  readonly maxTokens: number
  /** Answers a program; each is one alternative of the belief. */
  readonly draws: number
  readonly greedy?: boolean
  readonly seed: number
}

/** What became of the answers so far: a world model that is seldom understood must show. */
export interface ChatPredictorCounts {
  asked: number
  unreadable: number
  failed: number
}

type Predicted = { belief: Belief; tokens: number } | Unscorable

/**
 * A language model as a world model: it is asked in words and answers an object. The belief is made of its draws; draws that
 * hold no verdict are left out and counted, and without any the program is unscorable, never zero.
 */
export class ChatPredictor implements Predictor {
  readonly counts: ChatPredictorCounts = { asked: 0, unreadable: 0, failed: 0 }
  /** Times that an attempt was asked: a retry must not get the same answer again. */
  readonly #tries = new Map<string, number>()
  constructor(private readonly o: ChatPredictorOptions) {}

  predict(attempts: readonly Attempt[], signal: AbortSignal): readonly Promise<Predicted>[] {
    return attempts.map(async (a) => {
      try {
        return await this.#one(a, signal)
      } catch (e) {
        return { cause: signal.aborted ? 'cancelled' : 'prediction', detail: messageOf(e) } as const
      }
    })
  }

  async #one(a: Attempt, signal: AbortSignal): Promise<Predicted> {
    const code = a.action.code
    if (code === undefined) return certain('malformed')
    const fault = await this.o.checkSyntax(code, signal)
    if (fault) return certain('syntax-error', `${fault.type}: ${fault.message}`)
    const messages = await this.o.messages({ ...a, action: { code } })
    const again = this.#tries.get(a.id) ?? 0
    this.#tries.set(a.id, again + 1)
    const draws = await Promise.allSettled(
      Array.from({ length: this.o.draws }, (_, k) => {
        this.counts.asked++
        return this.o.completer.complete(
          {
            messages,
            maxTokens: this.o.maxTokens,
            seed: keyedSeed('predict', this.o.seed, a.id, again, k),
            ...(this.o.greedy && again === 0 ? { greedy: true } : {}),
            ...(this.o.schema ? { schema: this.o.schema } : {}),
          },
          signal,
        )
      }),
    )
    signal.throwIfAborted()
    let tokens = 0
    let trouble: string | undefined
    const verdicts: ChatVerdict[] = []
    for (const d of draws) {
      if (d.status === 'rejected') {
        this.counts.failed++
        trouble ??= messageOf(d.reason)
        continue
      }
      tokens += d.value.promptTokens + d.value.completionTokens
      const v = d.value.text === undefined ? undefined : this.o.read(d.value.text)
      if (v) verdicts.push(v)
      else {
        this.counts.unreadable++
        trouble ??= `an answer without a verdict: ${(d.value.text ?? '').slice(0, 80)}`
      }
    }
    if (verdicts.length === 0) return { cause: 'prediction', detail: trouble ?? 'no answer' }
    const alternatives = verdicts.map((v) => ({
      kind: v.outcome,
      p: 1 / verdicts.length,
      ...(v.outcome === 'graded' ? { percentile: v.quality } : {}),
      ...(v.outcome !== 'graded' && v.feedback !== '' ? { detail: v.feedback } : {}),
    }))
    return { belief: { alternatives, shown: keyed('shown', this.o.seed, a.id).int(verdicts.length) }, tokens }
  }
}
