import type { TokenSequence } from '../contract.ts'
import { forwardGraph } from './forward-graph.ts'
import type { Meter } from './meter.ts'
import { packFeeds } from './pack-feeds.ts'
import { type Pack, packs, rowIndex } from './packing.ts'
import { floats, type Sessions, type Tensors, tensor } from './sessions.ts'
import { type WeightSet, weightFeeds } from './weight-set.ts'

/** Teacher-forced log-probabilities of each token; entry 0 is NaN. Sequences must fit the model. */
export async function sequenceLogprobs(
  sessions: Sessions,
  set: WeightSet,
  sequences: readonly TokenSequence[],
  meter: Meter,
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const out = sequences.map((s) => new Float32Array(s.length).fill(Number.NaN))
  const inputs = sequences.map((s) => s.slice(0, -1))
  await overPacks(set, inputs, signal, async (pack, feeds) => {
    const spots = pack.placements.flatMap((p) => Array.from({ length: p.length }, (_, i) => ({ p, i })))
    const select = Int32Array.from(spots, ({ p, i }) => rowIndex(pack.shape, p.row, p.start + i))
    const targets = Int32Array.from(spots, ({ p, i }) => sequences[p.item]![i + 1]!)
    const lp = floats(await score(sessions, set, pack, feeds, select, targets, [0]), 'logprob')
    spots.forEach(({ p, i }, k) => {
      out[p.item]![i + 1] = lp[k]!
    })
  })
  meter.add({ promptTokens: sequences.reduce((n, s) => n + s.length, 0) })
  return out
}

/** Log-softmax at `ids` of the token after each prefix. */
export async function nextLogprobs(
  sessions: Sessions,
  set: WeightSet,
  prefixes: readonly TokenSequence[],
  ids: readonly number[],
  meter: Meter,
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const out: Float32Array[] = prefixes.map(() => new Float32Array(ids.length))
  if (ids.length === 0) return out
  await overPacks(set, prefixes, signal, async (pack, feeds) => {
    const select = Int32Array.from(pack.placements, (p) => rowIndex(pack.shape, p.row, p.start + p.length - 1))
    const scored = await score(sessions, set, pack, feeds, select, new Int32Array(select.length), ids)
    const next = floats(scored, 'next')
    pack.placements.forEach((p, k) => {
      out[p.item] = next.slice(k * ids.length, (k + 1) * ids.length)
    })
  })
  meter.add({ promptTokens: prefixes.reduce((n, s) => n + s.length, 0) })
  return out
}

async function overPacks(
  set: WeightSet,
  inputs: readonly TokenSequence[],
  signal: AbortSignal,
  each: (pack: Pack, feeds: Tensors) => Promise<void>,
): Promise<void> {
  const lengths = inputs.map((s) => s.length)
  for (const pack of packs(lengths, set.config.context)) {
    signal.throwIfAborted()
    await each(pack, { ...weightFeeds(set.config, set.weights), ...packFeeds(pack, inputs) })
  }
}

function score(
  sessions: Sessions,
  set: WeightSet,
  pack: Pack,
  feeds: Tensors,
  select: Int32Array,
  targets: Int32Array,
  ids: readonly number[],
): Promise<Tensors> {
  const { batch, length } = pack.shape
  return sessions.run(`score ${batch}x${length}`, () => forwardGraph(set.config, pack.shape, 'scores'), {
    ...feeds,
    select: tensor(select, [select.length]),
    targets: tensor(targets, [targets.length, 1]),
    ids: tensor(Int32Array.from(ids), [ids.length]),
  })
}
