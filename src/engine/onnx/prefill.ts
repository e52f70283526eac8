import type { TokenSequence } from '../contract.ts'
import type { PromptCache } from './cache.ts'
import { forwardGraph } from './forward-graph.ts'
import { packFeeds } from './pack-feeds.ts'
import { bucket, type Pack, powerOfTwo, rowIndex } from './packing.ts'
import { floats, type Sessions, tensor } from './sessions.ts'
import { type WeightSet, weightFeeds } from './weight-set.ts'

export interface Prefilled {
  readonly cache: PromptCache
  /** Distribution of the first token after the prompt [vocab]. */
  readonly probabilities: Float32Array
}

const LEAST_LENGTH = 32
const TOKENS_PER_RUN = 1024
const MOST_ROWS = 16

/** How many of the first prompts are computed in one run; each has a row of its own. */
export function prefillGroup(prompts: readonly TokenSequence[], context: number): number {
  let longest = 0
  let n = 0
  while (n < Math.min(prompts.length, MOST_ROWS)) {
    longest = Math.max(longest, prompts[n]!.length)
    if (n > 0 && powerOfTwo(n + 1) * bucket(longest, LEAST_LENGTH, context) > TOKENS_PER_RUN) break
    n++
  }
  return n
}

export async function prefill(
  sessions: Sessions,
  set: WeightSet,
  prompts: readonly TokenSequence[],
): Promise<readonly Prefilled[]> {
  const { config } = set
  const length = bucket(Math.max(...prompts.map((p) => p.length)), LEAST_LENGTH, config.context)
  const shape = { batch: powerOfTwo(prompts.length), length }
  const pack: Pack = {
    shape,
    placements: prompts.map((p, i) => ({ item: i, row: i, start: 0, length: p.length })),
  }
  const select = Int32Array.from(prompts, (p, i) => rowIndex(shape, i, p.length - 1))
  const out = await sessions.run(`prefill ${shape.batch}x${shape.length}`, () => forwardGraph(config, shape, 'cache'), {
    ...weightFeeds(config, set.weights),
    ...packFeeds(pack, prompts),
    select: tensor(select, [select.length]),
  })
  const layers = Array.from({ length: config.layers }, (_, l) => l)
  const keys = layers.map((l) => floats(out, `key.${l}`))
  const values = layers.map((l) => floats(out, `value.${l}`))
  const probabilities = floats(out, 'probabilities')
  return prompts.map((p, i) => ({
    cache: { keys, values, stride: shape.batch, row: i, length: p.length },
    probabilities: probabilities.subarray(i * config.vocab, (i + 1) * config.vocab),
  }))
}
