import { Template } from '@huggingface/jinja'
import { contentHash, EngineError, messageOf } from '../../core/index.ts'

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
}

/** A model's own template of a dialogue. A wrong one trains without a word and badly: its hash belongs in the run's record. */
export class ChatTemplate {
  readonly hash: string
  private readonly template: Template

  constructor(
    readonly source: string,
    /** Names that the template may use, such as bos_token. */
    private readonly names: Readonly<Record<string, string>> = {},
  ) {
    this.hash = contentHash('chat-template/1', source)
    try {
      this.template = new Template(source)
    } catch (cause) {
      throw new EngineError(`the chat template cannot be read (${messageOf(cause)})`, { cause })
    }
  }

  /** @throws EngineError where the template itself objects. */
  render(messages: readonly ChatMessage[], o: { readonly generate: boolean; readonly thinking: boolean }): string {
    try {
      return this.template.render({
        ...this.names,
        messages: messages.map((m) => ({ ...m })),
        add_generation_prompt: o.generate,
        // Qwen3's name for it; templates that do not know it ignore it.
        enable_thinking: o.thinking,
      })
    } catch (cause) {
      throw new EngineError(`the chat template failed (${messageOf(cause)})`, { cause })
    }
  }
}
