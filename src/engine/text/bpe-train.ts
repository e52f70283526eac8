import { NANO_SPECIALS } from './nano-tokens.ts'

/** Lines are cut first, then numbers that follow "=": a whole line of Python can become one token, its numbers stay apart. */
export const LINE_PATTERN = '[^\\n]*\\n|[^\\n]+'
export const NUMBER_PATTERN = '(?<==)[0-9]+(?:\\.[0-9]+)?'

export interface BpeOptions {
  readonly vocab: number
  /** Longest token in bytes. */
  readonly maxLength: number
  /** Pairs seen less often are not merged. */
  readonly minFrequency: number
}

/**
 * Trains a byte-level BPE on texts and returns the contents of a tokenizer.json. Special tokens are isolated before the
 * merges are counted, so that no merge crosses a copy slot.
 */
export function trainBpe(texts: Iterable<string>, opts: BpeOptions): object {
  const bytes = byteAlphabet()
  const counts = new Map<string, number>()
  for (const t of texts) for (const p of pieces(t)) counts.set(p, (counts.get(p) ?? 0) + 1)
  const vocab: string[] = [...NANO_SPECIALS, ...[...new Set(bytes.values())].sort()]
  const id = new Map(vocab.map((v, i) => [v, i]))
  const words = [...counts]
    .sort((a, b) => (a[0] < b[0] ? -1 : 1))
    .map(([p, n]) => ({ symbols: [...Buffer.from(p, 'utf8')].map((b) => bytes.get(b)!), n }))
  const merges: string[] = []
  while (vocab.length < opts.vocab) {
    const best = bestPair(words, opts)
    if (!best) break
    const [a, b] = best
    const joined = a + b
    merges.push(`${a} ${b}`)
    if (!id.has(joined)) {
      id.set(joined, vocab.length)
      vocab.push(joined)
    }
    for (const w of words) w.symbols = mergeIn(w.symbols, a, b, joined)
  }
  return tokenizerJson(vocab, merges)
}

/** The pieces that BPE sees of a text: special tokens taken out, lines, numbers. */
export function pieces(text: string): string[] {
  const out: string[] = []
  const special = new RegExp(NANO_SPECIALS.map((s) => s.replace(/[|\\{}()[\]^$+*?.]/g, '\\$&')).join('|'), 'g')
  for (const part of text.split(special)) {
    for (const line of part.match(new RegExp(LINE_PATTERN, 'g')) ?? []) {
      let at = 0
      for (const m of line.matchAll(new RegExp(NUMBER_PATTERN, 'g'))) {
        if (m.index > at) out.push(line.slice(at, m.index))
        out.push(m[0])
        at = m.index + m[0].length
      }
      if (at < line.length) out.push(line.slice(at))
    }
  }
  return out
}

function bestPair(words: readonly { symbols: string[]; n: number }[], opts: BpeOptions): [string, string] | undefined {
  const counts = new Map<string, number>()
  for (const w of words) {
    for (let i = 0; i + 1 < w.symbols.length; i++) {
      const k = `${w.symbols[i]} ${w.symbols[i + 1]}`
      counts.set(k, (counts.get(k) ?? 0) + w.n)
    }
  }
  let best: string | undefined
  let top = opts.minFrequency - 1
  for (const [k, n] of counts) {
    if (k.length - 1 > opts.maxLength) continue
    if (n > top || (n === top && best !== undefined && k < best)) {
      best = k
      top = n
    }
  }
  if (best === undefined) return undefined
  const cut = best.indexOf(' ')
  return [best.slice(0, cut), best.slice(cut + 1)]
}

function mergeIn(s: string[], a: string, b: string, joined: string): string[] {
  if (!s.includes(a)) return s
  const out: string[] = []
  for (let i = 0; i < s.length; i++) {
    if (s[i] === a && s[i + 1] === b) {
      out.push(joined)
      i++
    } else out.push(s[i]!)
  }
  return out
}

/** Byte to printable character, the table of GPT-2's byte-level tokenizers. */
export function byteAlphabet(): Map<number, string> {
  const out = new Map<number, string>()
  let next = 256
  const plain = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255)
  for (let b = 0; b < 256; b++) out.set(b, String.fromCharCode(plain(b) ? b : next++))
  return out
}

function tokenizerJson(vocab: readonly string[], merges: readonly string[]): object {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: NANO_SPECIALS.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: LINE_PATTERN }, behavior: 'Isolated', invert: false },
        { type: 'Split', pattern: { Regex: NUMBER_PATTERN }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(vocab.map((v, i) => [v, i])),
      merges,
    },
  }
}
