import type { Sampler } from '../contract.ts'
import type { ChatDialogue } from './chat-dialogue.ts'
import type { ChatMessage } from './chat-template.ts'

export interface Completion {
  /** The answer without its thinking; undefined where there is none. */
  readonly text: string | undefined
  readonly promptTokens: number
  readonly completionTokens: number
}

export interface CompletionRequest {
  readonly messages: readonly ChatMessage[]
  readonly maxTokens: number
  readonly seed: number
  readonly greedy?: boolean
  /** JSON schema of the answer, for those who can hold a model to one. */
  readonly schema?: { readonly name: string; readonly schema: object }
}

/** Port: whoever completes a dialogue, a frozen backbone or an endpoint elsewhere. */
export interface Completer {
  complete(r: CompletionRequest, signal: AbortSignal): Promise<Completion>
}

/** A frozen sampler as a completer. The schema stands in the prompt alone: this protocol guides no decoding. */
export function samplerCompleter(sampler: Sampler, dialogue: ChatDialogue, thinking: boolean): Completer {
  return {
    async complete(r, signal) {
      const prompt = dialogue.prompt(r.messages, { thinking })
      if (prompt.length + r.maxTokens > sampler.limits.context)
        throw new RangeError(
          `${prompt.length} prompt tokens and ${r.maxTokens} new ones do not fit a context of ${sampler.limits.context}`,
        )
      const [sample] = sampler.sample(
        [
          {
            prompt,
            count: 1,
            maxTokens: r.maxTokens,
            stop: dialogue.stop,
            seeds: [r.seed],
            ...(r.greedy ? { greedy: true } : {}),
          },
        ],
        signal,
      )
      const tokens = (await sample!).sequences[0]!.tokens
      return {
        text: dialogue.read(tokens).answer,
        promptTokens: prompt.length,
        completionTokens: tokens.length,
      }
    },
  }
}
