import { readFileSync } from 'node:fs'
import { Tokenizer } from '@huggingface/tokenizers'
import { EngineError, messageOf } from '../../core/index.ts'
import { binToken, endToken, NANO_BINS, NANO_ENDS, NANO_MARKS } from './nano-tokens.ts'
import { fromSlots, toSlots } from './slots.ts'

/** Longest error text that the nano format keeps, in characters. */
export const NANO_DETAIL = 40

/**
 * The embedded agent's format, one for both roles: <|task|>brief<|code|>program<|end|><|obs|>outcome<|end|><|code|>...
 * The outcome's first token is one of 20 percentile bins or 6 ends, so that a world model's belief is one softmax.
 */
export class NanoCodec {
  readonly ids: {
    readonly task: number
    readonly code: number
    readonly obs: number
    readonly end: number
    readonly pad: number
  }
  /** Ids of the percentile bins, lowest first. */
  readonly bins: readonly number[]
  /** Ids of the other ends, in the order of NANO_ENDS. */
  readonly ends: readonly { readonly kind: (typeof NANO_ENDS)[number][0]; readonly id: number }[]
  readonly vocab: number
  private readonly tokenizer: Tokenizer

  constructor(json: object) {
    this.tokenizer = new Tokenizer(json, {})
    const id = (t: string): number => {
      const k = this.tokenizer.token_to_id(t)
      if (k === undefined) throw new EngineError(`the tokenizer lacks ${t}; rebuild it with: npm run pretrain`)
      return k
    }
    this.ids = {
      task: id(NANO_MARKS.task),
      code: id(NANO_MARKS.code),
      obs: id(NANO_MARKS.obs),
      end: id(NANO_MARKS.end),
      pad: id(NANO_MARKS.pad),
    }
    this.bins = Array.from({ length: NANO_BINS }, (_, b) => id(binToken(b)))
    this.ends = NANO_ENDS.map(([kind]) => ({ kind, id: id(endToken(kind)) }))
    this.vocab = Object.keys((json as { model: { vocab: object } }).model.vocab).length
  }

  /** @throws EngineError when the file is missing or no tokenizer. */
  static load(path: string): NanoCodec {
    try {
      return new NanoCodec(JSON.parse(readFileSync(path, 'utf8')) as object)
    } catch (cause) {
      throw new EngineError(`${path}: ${messageOf(cause)}`, { cause })
    }
  }

  private encode(text: string): number[] {
    return text === '' ? [] : [...this.tokenizer.encode(text, { add_special_tokens: false }).ids]
  }

  countTokens(text: string, names: readonly string[]): number {
    return this.encode(toSlots(text, names)).length
  }

  /** <|task|>brief<|code|> */
  prompt(brief: string, names: readonly string[]): number[] {
    return [this.ids.task, ...this.encode(toSlots(brief, names)), this.ids.code]
  }

  /** program<|end|> */
  program(code: string, names: readonly string[]): number[] {
    return [...this.encode(toSlots(code, names)), this.ids.end]
  }

  /** Restores a program from sampled tokens; special tokens other than slots are dropped. */
  decodeProgram(tokens: readonly number[], names: readonly string[]): string {
    // Ids up to the last end are marks and outcomes; slots and text come after them.
    const text = tokens.filter((t) => t > this.ends[this.ends.length - 1]!.id)
    if (text.length === 0) return ''
    return fromSlots(
      this.tokenizer.decode(text, { skip_special_tokens: false, clean_up_tokenization_spaces: false }),
      names,
    )
  }

  /** <|obs|>outcome[detail]<|end|>, from the one renderer's text. @throws RangeError for a text it cannot have made. */
  observation(text: string, names: readonly string[]): number[] {
    return [this.ids.obs, ...this.outcome(text, names), this.ids.end]
  }

  /** The outcome tokens of an observation's text. */
  outcome(text: string, names: readonly string[]): number[] {
    const valid = /^valid: better than (\d\.\d\d) of the board$/.exec(text)
    if (valid) return [this.bins[Math.round(Number(valid[1]) * NANO_BINS)]!]
    const end = NANO_ENDS.map(([, words], i) => ({ words, i })).find(
      (e) => text === e.words || text.startsWith(`${e.words}: `),
    )
    if (!end) throw new RangeError(`not an observation: ${text.slice(0, 60)}`)
    const detail = text.slice(end.words.length + 2, end.words.length + 2 + NANO_DETAIL)
    return [this.ends[end.i]!.id, ...this.encode(toSlots(detail, names))]
  }

  /** Text of tokens that a world model wrote after an end's token. */
  decodeDetail(tokens: readonly number[], names: readonly string[]): string {
    return this.decodeProgram(
      tokens.filter((t) => t !== this.ids.end),
      names,
    )
  }
}
