import { EngineError } from '../../core/index.ts'
import type { ChatMessage } from './chat-template.ts'
import type { TokenizerDirectory } from './tokenizer-directory.ts'

export interface DialogueOptions {
  /** Whether the model thinks before it answers (Qwen3: a block in <think> tags). */
  readonly thinking: boolean
}

/** Stands for an action or an observation while a template is rendered; no tokenizer's special token. */
const ACTION = 'wmrlactionplaceholder'
const SEEN = 'wmrlobservationplaceholder'

/**
 * A dialogue whose tokens are the record: the first prompt is rendered and encoded once, what was sampled stays as it was
 * sampled (its thinking too, though templates drop earlier thoughts), and a later turn appends exactly what the template
 * writes between an action and the next one.
 */
export class ChatDialogue {
  /** Ids after which a turn is over: the template's own end of a turn first, then the model's. */
  readonly stop: readonly number[]
  readonly #end: number
  /** What the template writes around an observation, from the end of the action to the next action. */
  readonly #before: string
  readonly #after: string

  constructor(
    readonly directory: TokenizerDirectory,
    private readonly o: DialogueOptions,
  ) {
    const whole = directory.template.render(
      [
        { role: 'user', content: 'x' },
        { role: 'assistant', content: ACTION },
        { role: 'user', content: SEEN },
      ],
      { generate: true, thinking: o.thinking },
    )
    const action = whole.indexOf(ACTION)
    const seen = whole.indexOf(SEEN)
    if (action < 0 || seen < action) throw new EngineError('the chat template loses an action or what follows it')
    this.#before = whole.slice(action + ACTION.length, seen)
    this.#after = whole.slice(seen + SEEN.length)
    const end = this.encode(this.#before)[0]
    if (end === undefined) throw new EngineError('the chat template does not end a turn')
    this.#end = end
    this.stop = [...new Set([end, ...directory.ends])]
  }

  /** Ids of text in which special tokens count as such. */
  encode(text: string): number[] {
    return text === '' ? [] : [...this.directory.tokenizer.encode(text, { add_special_tokens: false }).ids]
  }

  count(text: string): number {
    return this.encode(this.plain(text)).length
  }

  /** Text without special tokens: a program's output must not end a turn or begin another. */
  plain(text: string): string {
    let out = text
    for (const s of this.directory.specials) {
      if (s.length > 1 && out.includes(s)) out = out.replaceAll(s, `${s[0]} ${s.slice(1)}`)
    }
    return out
  }

  /** The first prompt, up to where the first answer begins. */
  prompt(messages: readonly ChatMessage[], o: Partial<DialogueOptions> = {}): number[] {
    const clean = messages.map((m) => ({ ...m, content: this.plain(m.content) }))
    return this.encode(
      this.directory.template.render(clean, { generate: true, thinking: o.thinking ?? this.o.thinking }),
    )
  }

  /**
   * What follows a sampled turn: the end of the turn (unless it was sampled), an observation, the beginning of the next
   * answer. Observations above `limit` tokens keep head and tail.
   */
  observe(last: number | undefined, content: string, limit: number): number[] {
    const before = this.encode(this.#before)
    // A turn that was cut by its length has no end yet; another end (end of text) takes its place.
    const sampled = last !== undefined && this.stop.includes(last)
    const inner = this.encode(this.plain(content))
    const head = Math.ceil(limit / 2)
    const kept =
      inner.length <= limit ? inner : [...inner.slice(0, head), ...inner.slice(inner.length - (limit - head))]
    return [...(sampled ? before.slice(1) : before), ...kept, ...this.encode(this.#after)]
  }

  get end(): number {
    return this.#end
  }

  /** Thought and answer of sampled tokens. */
  read(tokens: readonly number[]): Answer {
    const text = this.directory.tokenizer.decode([...tokens], {
      skip_special_tokens: true,
      clean_up_tokenization_spaces: false,
    })
    return splitThinking(text)
  }
}

export interface Answer {
  readonly thinking: string
  /** Undefined where the thought was never finished. */
  readonly answer: string | undefined
}

/**
 * Splits a thinking block off. A template that begins the block itself leaves only its end in the sample; a model that thinks
 * and never ends the block has not answered.
 */
export function splitThinking(text: string): Answer {
  const end = text.lastIndexOf('</think>')
  if (end >= 0) {
    const thought = text.slice(0, end).replace(/^\s*<think>/, '')
    return { thinking: thought.trim(), answer: text.slice(end + '</think>'.length).trim() }
  }
  if (/^\s*<think>/.test(text)) return { thinking: text.replace(/^\s*<think>/, '').trim(), answer: undefined }
  return { thinking: '', answer: text.trim() }
}
