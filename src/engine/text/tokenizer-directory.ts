import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Tokenizer } from '@huggingface/tokenizers'
import { z } from 'zod'
import { contentHash, EngineError, messageOf } from '../../core/index.ts'
import { ChatTemplate } from './chat-template.ts'

const token = z.union([z.string(), z.object({ content: z.string() }).transform((t) => t.content)])
const ids = z.union([
  z
    .number()
    .int()
    .transform((n) => [n]),
  z.array(z.number().int()),
])
const tokenizerConfig = z.object({
  eos_token: token.nullish(),
  bos_token: token.nullish(),
  pad_token: token.nullish(),
  unk_token: token.nullish(),
  chat_template: z.union([z.string(), z.array(z.object({ name: z.string(), template: z.string() }))]).nullish(),
})
const sizes = z.object({
  vocab_size: z.number().int().positive().nullish(),
  max_position_embeddings: z.number().int().positive().nullish(),
  eos_token_id: ids.nullish(),
})
const modelConfig = sizes.extend({ text_config: sizes.nullish() })

/** What a model's directory says of its text: tokenizer.json, tokenizer_config.json, chat template, config.json. */
export interface TokenizerDirectory {
  readonly tokenizer: Tokenizer
  readonly template: ChatTemplate
  /** Digest of the tokenizer's file. */
  readonly hash: string
  /** Ids that end a sequence, as far as the directory says. */
  readonly ends: readonly number[]
  /** Special tokens' texts: content must never turn into them. */
  readonly specials: readonly string[]
  /** Rows of the embedding: ids beyond it do not exist. Often more than the tokenizer has. */
  readonly vocab: number
  readonly context: number | undefined
}

/** @throws EngineError naming the file that is missing or unreadable. */
export function loadTokenizerDirectory(dir: string): TokenizerDirectory {
  const text = (name: string): string => {
    try {
      return readFileSync(join(dir, name), 'utf8')
    } catch (cause) {
      throw new EngineError(`${join(dir, name)} cannot be read (${messageOf(cause)})`, { cause })
    }
  }
  const parse = <T>(name: string, schema: z.ZodType<T>): T => {
    try {
      return schema.parse(JSON.parse(text(name)))
    } catch (cause) {
      if (cause instanceof EngineError) throw cause
      throw new EngineError(`${join(dir, name)} is not what it should be (${messageOf(cause)})`, { cause })
    }
  }
  const raw = text('tokenizer.json')
  const json = JSON.parse(raw) as {
    added_tokens?: { id: number; content: string; special?: boolean }[]
    model?: { vocab?: object }
  }
  const config = parse('tokenizer_config.json', tokenizerConfig)
  const model = existsSync(join(dir, 'config.json')) ? parse('config.json', modelConfig) : undefined
  const generation = existsSync(join(dir, 'generation_config.json'))
    ? parse('generation_config.json', z.object({ eos_token_id: ids.nullish() }))
    : undefined
  // The fields are the tokenizer's own; their types are its business.
  const tokenizer = new Tokenizer(json, JSON.parse(text('tokenizer_config.json')) as object)
  const template = existsSync(join(dir, 'chat_template.jinja'))
    ? text('chat_template.jinja')
    : typeof config.chat_template === 'string'
      ? config.chat_template
      : (config.chat_template?.find((t) => t.name === 'default') ?? config.chat_template?.[0])?.template
  if (template === undefined || template === '')
    throw new EngineError(`${dir} has no chat template (chat_template.jinja, or the key in tokenizer_config.json)`)
  const eos = config.eos_token ? tokenizer.token_to_id(config.eos_token) : undefined
  const named = Object.entries({
    bos_token: config.bos_token,
    eos_token: config.eos_token,
    pad_token: config.pad_token,
    unk_token: config.unk_token,
  }).flatMap(([k, v]) => (v ? [[k, v] as const] : []))
  const added = json.added_tokens ?? []
  const size = Math.max(Object.keys(json.model?.vocab ?? {}).length, ...added.map((t) => t.id + 1))
  const of = model?.text_config ?? model
  return {
    tokenizer,
    template: new ChatTemplate(template, Object.fromEntries(named)),
    hash: contentHash('tokenizer/1', raw),
    ends: [
      ...new Set([
        ...(eos === undefined ? [] : [eos]),
        ...(of?.eos_token_id ?? []),
        ...(generation?.eos_token_id ?? []),
      ]),
    ],
    specials: added.filter((t) => t.special !== false).map((t) => t.content),
    vocab: of?.vocab_size ?? model?.vocab_size ?? size,
    context: of?.max_position_embeddings ?? model?.max_position_embeddings ?? undefined,
  }
}
