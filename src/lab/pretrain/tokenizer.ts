import { keyed } from '../../core/index.ts'
import { toSlots, trainBpe } from '../../engine/text/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import { brief } from '../corpus/examples.ts'
import { renderSpec } from '../grammar/render.ts'
import { sampleSpec } from '../grammar/sample.ts'

export const VOCABULARY = 2048

/** A line-level BPE over overviews, the grammar's programs and the corpus's error texts, with copy slots. */
export function makeTokenizer(cards: readonly TaskCard[], errorTexts: readonly string[], seed: number): object {
  const r = keyed('tokenizer', seed)
  const texts: string[] = []
  for (let k = 0; k < 9000; k++) {
    const card = r.pick(cards)
    const { text, names } = brief(card)
    texts.push(toSlots(text, names), toSlots(renderSpec(card, sampleSpec(card, r, { bug: 0.25 }), r), names))
  }
  return trainBpe([...texts, ...errorTexts.slice(0, 3000)], { vocab: VOCABULARY, maxLength: 100, minFrequency: 4 })
}
