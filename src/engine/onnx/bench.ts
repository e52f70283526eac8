import { keyed } from '../../core/index.ts'
import type { Datum, SampleRequest } from '../contract.ts'
import { decode } from './decode.ts'
import { Graph } from './graph.ts'
import { Meter } from './meter.ts'
import { initialWeights, type ModelConfig, parameterCount } from './model-config.ts'
import { Sessions, type Tensors, tensor } from './sessions.ts'
import { Trainer } from './trainer.ts'
import { copyWeights, weightSet } from './weight-set.ts'

export interface EngineBench {
  readonly parameters: number
  readonly threads: number
  /** Best rate of a 512^3 float matrix product of the same library on the same threads, between the other runs. */
  readonly ceilingGflops: number
  readonly train: WorkRate
  readonly decode: WorkRate
}

export interface WorkRate {
  /** Of the best run; the median says how quiet the machine was. */
  readonly tokensPerS: number
  readonly medianTokensPerS: number
  /** What the mathematics needs, nothing recomputed or padded. */
  readonly flopsPerToken: number
  /** Best run over best matrix product; means something on free threads only. */
  readonly ratioToCeiling: number
  /** Median over runs of its rate over that of the products just before and after: fair on a busy machine too. */
  readonly ratioBeside: number
  readonly runs: number
}

/** About 3.4M parameters, all in matrices. */
const config: ModelConfig = { layers: 4, dModel: 256, heads: 4, vocab: 1024, context: 256, logitScale: 1 }
const SIDE = 512
const SEQUENCES = 32
const PROMPT = 16
/** Products between two runs last this long, so that they meet the same neighbours on the machine. */
const BURST_MS = 100

/**
 * Trains (forward, loss, backward, AdamW on 8 sequences of 256) and samples (32 sequences to 256 tokens), each through
 * the code that the engine runs, with matrix products in between, until `seconds` have passed. It blocks the calling
 * thread.
 */
export async function benchEngine(options: {
  readonly threads: number
  readonly seconds: number
  readonly signal?: AbortSignal
}): Promise<EngineBench> {
  const sessions = new Sessions(options.threads)
  const signal = options.signal ?? new AbortController().signal
  const weights = initialWeights(config, 1)
  const set = weightSet(config, copyWeights(weights))
  const trainer = new Trainer(config, weights, undefined, sessions)
  const data = sequences()
  const request: SampleRequest = {
    prompt: data[0]!.tokens.slice(0, PROMPT),
    count: SEQUENCES,
    maxTokens: config.context - PROMPT,
    stop: [],
    seeds: Array.from({ length: SEQUENCES }, (_, i) => i),
  }
  const product = productFeeds()
  const products: number[] = []
  /** Mean seconds of a product in each burst. */
  const bursts: number[] = []
  const runs: { readonly kind: 'train' | 'decode'; readonly seconds: number; readonly burst: number }[] = []
  const burst = async (): Promise<void> => {
    const start = performance.now()
    let n = 0
    for (; performance.now() - start < BURST_MS; n++) {
      signal.throwIfAborted()
      products.push(await timed(() => sessions.run('ceiling', productGraph, product)))
    }
    bursts.push((performance.now() - start) / 1000 / n)
  }
  const run = async (kind: 'train' | 'decode', work: () => Promise<void>): Promise<void> => {
    runs.push({ kind, seconds: await timed(work), burst: bursts.length - 1 })
    await burst()
  }
  const train = async (): Promise<void> => {
    await trainer.forwardBackward(data, { kind: 'cross_entropy' }, signal)
    trainer.optimStep({ learningRate: 1e-4, weightDecay: 0.1, gradClip: 1 })
  }
  const sample = (): Promise<void> => decode(sessions, set, [request], new Meter(), signal, () => undefined)
  // Sessions are made, and the JavaScript compiled, before anything counts.
  await train()
  await sample()
  const end = performance.now() + 1000 * options.seconds
  await burst()
  do {
    for (let i = 0; i < 4; i++) await run('train', train)
    await run('decode', sample)
  } while (performance.now() < end)
  await sessions.close()

  const parameters = parameterCount(config)
  const { layers, dModel, context } = config
  const flopsPerProduct = 2 * SIDE ** 3
  const ceiling = flopsPerProduct / Math.min(...products)
  const rate = (kind: 'train' | 'decode', tokens: number, flopsPerToken: number): WorkRate => {
    const mine = runs.filter((r) => r.kind === kind)
    const best = tokens / Math.min(...mine.map((r) => r.seconds))
    const beside = mine.map((r) => {
      const product = (bursts[r.burst]! + bursts[r.burst + 1]!) / 2
      return (tokens * flopsPerToken * product) / (r.seconds * flopsPerProduct)
    })
    return {
      tokensPerS: best,
      medianTokensPerS: tokens / median(mine.map((r) => r.seconds)),
      flopsPerToken,
      ratioToCeiling: (best * flopsPerToken) / ceiling,
      ratioBeside: median(beside),
      runs: mine.length,
    }
  }
  const sampled = config.context - PROMPT
  // Token j of a sample looks at the prompt and the j tokens before it, itself among them.
  const meanContext = PROMPT + (sampled - 1) / 2
  return {
    parameters,
    threads: options.threads,
    ceilingGflops: ceiling / 1e9,
    train: rate(
      'train',
      data.reduce((n, d) => n + d.tokens.length - 1, 0),
      6 * parameters + 12 * layers * context * dModel,
    ),
    decode: rate('decode', SEQUENCES * sampled, 2 * parameters + 4 * layers * meanContext * dModel),
  }
}

function sequences(): Datum[] {
  const random = keyed('bench engine')
  const tokens = (): number[] => Array.from({ length: config.context }, () => random.int(config.vocab))
  return Array.from({ length: 8 }, () => {
    const t = tokens()
    return { tokens: t, mask: t.map((_, i) => (i === 0 ? 0 : 1)), advantage: 1 }
  })
}

function productGraph(): Uint8Array {
  const g = new Graph()
  const a = g.input('a', 'float32', [SIDE, SIDE])
  const b = g.input('b', 'float32', [SIDE, SIDE])
  // One number leaves the graph: copying the product out would be timed too.
  g.output('largest', g.op('ReduceMax', [g.op('MatMul', [a, b])], { keepdims: 0 }), 'float32', [])
  return g.model()
}

function productFeeds(): Tensors {
  const random = keyed('bench product')
  const matrix = (): Tensors[string] =>
    tensor(
      Float32Array.from({ length: SIDE * SIDE }, () => random.next()),
      [SIDE, SIDE],
    )
  return { a: matrix(), b: matrix() }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await work()
  return (performance.now() - start) / 1000
}

function median(xs: readonly number[]): number {
  return [...xs].sort((a, b) => a - b)[xs.length >> 1]!
}
