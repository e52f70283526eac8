import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The bytes of GPT-2's alphabet, each as a printable character. */
function byteAlphabet(): string[] {
  const printable = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  let n = 0
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : 256 + n++))
}

export const SPECIALS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
const PLAIN = ['<think>', '</think>']
const QWEN_LIKE = `{%- for m in messages %}{%- set last = loop.last -%}
{%- if m.role == 'assistant' -%}{%- set text = m.content.split('</think>')[-1] -%}{%- else -%}{%- set text = m.content -%}{%- endif -%}
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>' + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}`

/** A model's directory for tests: one token a byte, a template like Qwen3's. */
export function writeByteTokenizer(dir: string): void {
  const vocab = Object.fromEntries([...SPECIALS, ...byteAlphabet(), ...PLAIN].map((t, i) => [t, i]))
  writeFileSync(
    join(dir, 'tokenizer.json'),
    JSON.stringify({
      added_tokens: [...SPECIALS, ...PLAIN].map((content) => ({
        id: vocab[content],
        content,
        special: SPECIALS.includes(content),
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
      })),
      normalizer: null,
      pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
      post_processor: null,
      decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
      model: { type: 'BPE', vocab, merges: [] },
    }),
  )
  writeFileSync(
    join(dir, 'tokenizer_config.json'),
    JSON.stringify({ eos_token: '<|im_end|>', pad_token: { content: '<|endoftext|>' }, chat_template: QWEN_LIKE }),
  )
  writeFileSync(
    join(dir, 'config.json'),
    JSON.stringify({ text_config: { vocab_size: 320, max_position_embeddings: 4096, eos_token_id: 0 } }),
  )
}
