import { keyed, type Random } from '../../core/index.ts'
import type { SampledSequence, SampleRequest } from '../contract.ts'
import { SlotCache } from './cache.ts'
import { decodeGraph } from './decode-graph.ts'
import { drawToken, mostProbable } from './draw-token.ts'
import type { Meter } from './meter.ts'
import { type Prefilled, prefill, prefillGroup } from './prefill.ts'
import { floats, type Sessions, tensor } from './sessions.ts'
import { type WeightSet, weightFeeds } from './weight-set.ts'

/** Slot counts that decoding is compiled for. */
const SLOT_COUNTS = [8, 32, 64] as const

interface Running {
  readonly request: number
  readonly sample: number
  readonly random: Random
  readonly tokens: number[]
  readonly logprobs: number[]
}

/**
 * Samples in lock step: every run advances all slots by one token, a slot that ends takes the next waiting sample in
 * request order. Who sits where follows from the tokens alone, and a sample's draws come from its own seed, so the same
 * requests give the same tokens. `done` is called once a request, when its last sample ends; requests must have been
 * checked by `checkRequest`.
 */
export async function decode(
  sessions: Sessions,
  set: WeightSet,
  requests: readonly SampleRequest[],
  meter: Meter,
  signal: AbortSignal,
  done: (request: number, sequences: readonly SampledSequence[]) => void,
): Promise<void> {
  const { config } = set
  const weights = weightFeeds(config, set.weights)
  const total = requests.reduce((n, r) => n + r.count, 0)
  const slots = SLOT_COUNTS.find((n) => n >= total) ?? SLOT_COUNTS.at(-1)!
  const cache = new SlotCache(config, slots)
  const running: (Running | undefined)[] = Array.from({ length: slots })
  const results = requests.map((): (SampledSequence | undefined)[] => [])
  const waiting = requests.flatMap((r, i) => Array.from({ length: r.count }, (_, j) => ({ request: i, sample: j })))
  const prompts = new Map<number, Prefilled>()
  let computed = 0

  /** Takes the next token of a slot's sample; true when that ended it. */
  const advance = (slot: number, p: Float32Array): boolean => {
    const s = running[slot]!
    const r = requests[s.request]!
    const { token, logprob } = r.greedy ? mostProbable(p) : drawToken(p, s.random.next(), r.topP ?? 1)
    s.tokens.push(token)
    s.logprobs.push(logprob)
    const stopped = r.stop.includes(token)
    if (!stopped && s.tokens.length < Math.min(r.maxTokens, config.context - r.prompt.length)) return false
    const list = results[s.request]!
    list[s.sample] = { tokens: s.tokens, logprobs: s.logprobs, stopReason: stopped ? 'stop' : 'length' }
    meter.add({ sampledTokens: s.tokens.length })
    running[slot] = undefined
    cache.clear(slot)
    if (list.filter(Boolean).length === r.count) {
      prompts.delete(s.request)
      done(s.request, list as SampledSequence[])
    }
    return true
  }

  const refill = async (): Promise<void> => {
    for (let slot = 0; slot < slots; slot++) {
      while (!running[slot] && waiting.length > 0) {
        const next = waiting[0]!
        if (!prompts.has(next.request)) {
          signal.throwIfAborted()
          const rest = requests.slice(computed).map((r) => r.prompt)
          const group = prefillGroup(rest, config.context)
          const filled = await prefill(sessions, set, rest.slice(0, group))
          filled.forEach((f, i) => {
            prompts.set(computed + i, f)
          })
          computed += group
          meter.add({ promptTokens: rest.slice(0, group).reduce((n, p) => n + p.length, 0) })
        }
        waiting.shift()
        const prompt = prompts.get(next.request)!
        const seed = requests[next.request]!.seeds[next.sample]!
        running[slot] = { ...next, random: keyed('sample', seed), tokens: [], logprobs: [] }
        if (!advance(slot, prompt.probabilities)) cache.place(slot, prompt.cache)
      }
    }
  }

  const tokens = new Int32Array(slots)
  const positions = new BigInt64Array(slots)
  const layers = Array.from({ length: config.layers }, (_, l) => l)
  for (;;) {
    await refill()
    const active = running.flatMap((s, slot) => (s ? [slot] : []))
    if (active.length === 0) return
    signal.throwIfAborted()
    cache.shrink()
    tokens.fill(0)
    positions.fill(0n)
    for (const slot of active) {
      tokens[slot] = running[slot]!.tokens.at(-1)!
      positions[slot] = BigInt(cache.count(slot))
    }
    const out = await sessions.run(`decode ${slots}`, () => decodeGraph(config, slots), {
      ...weights,
      ...cache.feeds(),
      tokens: tensor(tokens, [slots]),
      positions: tensor(positions, [slots, 1]),
    })
    cache.append(
      active,
      layers.map((l) => floats(out, `key.${l}`)),
      layers.map((l) => floats(out, `value.${l}`)),
    )
    const p = floats(out, 'probabilities')
    for (const slot of active) advance(slot, p.subarray(slot * config.vocab, (slot + 1) * config.vocab))
  }
}
