import { mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EngineError, weightsVersion } from '../../core/index.ts'
import type { AdamParams, Datum, Model, SampleRequest } from '../contract.ts'
import { type OnnxEngine, openOnnxEngine } from './engine.ts'
import type { ModelConfig } from './model-config.ts'

const config: ModelConfig = { layers: 2, dModel: 32, heads: 2, vocab: 50, context: 96, logitScale: 2.5 }
const signal = new AbortController().signal
const adam: AdamParams = { learningRate: 3e-3, weightDecay: 0.01, gradClip: 1 }
let dir: string
let engine: OnnxEngine

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'wmrl-engine-'))
  engine = await openOnnxEngine({ backbone: { config, seed: 5 }, checkpointDir: join(dir, 'checkpoints'), threads: 2 })
})
afterAll(async () => {
  await engine[Symbol.asyncDispose]()
  await rm(dir, { recursive: true })
})

const request = (prompt: readonly number[], count: number, more: Partial<SampleRequest> = {}): SampleRequest => ({
  prompt,
  count,
  maxTokens: 20,
  stop: [],
  seeds: Array.from({ length: count }, (_, i) => 1000 * prompt.length + i),
  ...more,
})
const requests = [request([1, 2, 3], 5), request([4, 5, 6, 7, 8, 9, 10, 11], 4), request([12], 3, { maxTokens: 60 })]

const taught = (tokens: readonly number[]): Datum => ({
  tokens,
  mask: tokens.map((_, i) => (i === 0 ? 0 : 1)),
  advantage: 1,
})
const corpus = [taught([1, 2, 3, 4, 5, 6, 7, 8]), taught([9, 8, 7, 6, 5]), taught([20, 21, 22, 20, 21, 22])]

async function train(model: Model, steps: number): Promise<string> {
  let version = ''
  for (let i = 0; i < steps; i++) {
    await model.forwardBackward(corpus, { kind: 'cross_entropy' }, signal)
    version = (await model.optimStep(adam, signal)).version
  }
  return version
}

describe('sampling', () => {
  it('reports the log-probabilities that a recomputation gives', async () => {
    const sampler = await engine.frozen(signal)
    const samples = await Promise.all(sampler.sample(requests, signal))
    const all = samples.flatMap((s, i) => s.sequences.map((q) => ({ prompt: requests[i]!.prompt, q })))
    expect(all).toHaveLength(12)
    const again = await sampler.logprobs(
      all.map(({ prompt, q }) => [...prompt, ...q.tokens]),
      signal,
    )
    all.forEach(({ prompt, q }, i) => {
      expect(again[i]![0]).toBeNaN()
      q.logprobs.forEach((lp, t) => {
        expect(Math.abs(lp - again[i]![prompt.length + t]!)).toBeLessThan(1e-4)
      })
    })
    expect(samples[0]!.version).toBe(sampler.version)
  })

  it('agrees with the log-probabilities of training', async () => {
    const sampler = await engine.frozen(signal)
    await using model = await engine.open('frozen', signal)
    const tokens = corpus.map((d) => d.tokens)
    const { logprobs } = await model.forwardBackward(corpus, { kind: 'cross_entropy' }, signal)
    const scored = await sampler.logprobs(tokens, signal)
    scored.forEach((s, i) => {
      s.slice(1).forEach((lp, t) => {
        expect(lp).toBeCloseTo(logprobs[i]![t + 1]!, 5)
      })
    })
  })

  it('gives the same samples for the same requests, bit for bit', async () => {
    const sampler = await engine.frozen(signal)
    const twice = [
      await Promise.all(sampler.sample(requests, signal)),
      await Promise.all(sampler.sample(requests, signal)),
    ]
    expect(twice[0]).toEqual(twice[1])
  })

  it('does not let a sample depend on those beside it', async () => {
    const sampler = await engine.frozen(signal)
    const together = await Promise.all(sampler.sample(requests, signal))
    for (const [i, r] of requests.entries()) {
      const alone = await sampler.sample([r], signal)[0]!
      expect(alone.sequences.map((s) => s.tokens)).toEqual(together[i]!.sequences.map((s) => s.tokens))
    }
  })

  it('serves more samples than slots, in order and with their own seeds', async () => {
    const sampler = await engine.frozen(signal)
    const many = Array.from({ length: 30 }, (_, i) => request([1 + i, 2, 3], 3, { maxTokens: 2 + (i % 7) }))
    const samples = await Promise.all(sampler.sample(many, signal))
    samples.forEach((s, i) => {
      expect(s.sequences.map((q) => q.tokens.length)).toEqual(Array(3).fill(2 + (i % 7)))
    })
    const alone = await sampler.sample([many[29]!], signal)[0]!
    expect(alone.sequences.map((q) => q.tokens)).toEqual(samples[29]!.sequences.map((q) => q.tokens))
  })

  it('stops at a stop token, which it keeps, and at the length', async () => {
    const sampler = await engine.frozen(signal)
    const free = await sampler.sample([request([1, 2, 3], 1)], signal)[0]!
    const stop = free.sequences[0]!.tokens[6]!
    const first = free.sequences[0]!.tokens.indexOf(stop)
    const stopped = await sampler.sample([request([1, 2, 3], 1, { stop: [stop] })], signal)[0]!
    expect(stopped.sequences[0]).toMatchObject({
      tokens: free.sequences[0]!.tokens.slice(0, first + 1),
      stopReason: 'stop',
    })
    expect(free.sequences[0]).toMatchObject({ stopReason: 'length' })
    const long = await sampler.sample([request(Array(90).fill(3), 1, { maxTokens: 1000 })], signal)[0]!
    expect(long.sequences[0]!.tokens).toHaveLength(6)
  })

  it('takes the most probable token when greedy', async () => {
    const sampler = await engine.frozen(signal)
    const { sequences } = await sampler.sample([request([7, 8], 2, { greedy: true })], signal)[0]!
    expect(sequences[0]).toEqual(sequences[1])
    const all = Array.from({ length: config.vocab }, (_, i) => i)
    const next = (await sampler.next([[7, 8]], all, signal))[0]!
    expect(next.indexOf(Math.max(...next))).toBe(sequences[0]!.tokens[0])
    expect(sequences[0]!.logprobs[0]).toBeCloseTo(Math.max(...next), 5)
  })

  it('draws within the nucleus, renormalised', async () => {
    const sampler = await engine.frozen(signal)
    const prompt = [7, 8]
    const all = Array.from({ length: config.vocab }, (_, i) => i)
    const p = [...(await sampler.next([prompt], all, signal))[0]!].map(Math.exp)
    const order = [...all].sort((a, b) => p[b]! - p[a]!)
    let size = 0
    let mass = 0
    while (mass < 0.5) mass += p[order[size++]!]!
    const { sequences } = await sampler.sample([request(prompt, 40, { topP: 0.5, maxTokens: 1 })], signal)[0]!
    for (const s of sequences) {
      const token = s.tokens[0]!
      expect(order.slice(0, size)).toContain(token)
      expect(s.logprobs[0]).toBeCloseTo(Math.log(p[token]! / mass), 4)
    }
  })

  it('draws with the frequencies of the distribution', async () => {
    const sampler = await engine.frozen(signal)
    const all = Array.from({ length: config.vocab }, (_, i) => i)
    const p = [...(await sampler.next([[7, 8]], all, signal))[0]!].map(Math.exp)
    const n = 4000
    const { sequences } = await sampler.sample([request([7, 8], n, { maxTokens: 1 })], signal)[0]!
    const seen = new Array<number>(config.vocab).fill(0)
    for (const s of sequences) seen[s.tokens[0]!]!++
    const chi2 = p.reduce((sum, q, i) => sum + (seen[i]! - n * q) ** 2 / (n * q), 0)
    // 49 degrees of freedom: mean 49, standard deviation 9.9.
    expect(chi2).toBeLessThan(49 + 4 * 9.9)
  })

  it('reads the next token after many prefixes', async () => {
    const sampler = await engine.frozen(signal)
    const prefixes = Array.from({ length: 40 }, (_, i) => Array.from({ length: 1 + (i % 9) }, (_, j) => (i * j) % 50))
    const ids = [3, 14, 49]
    const next = await sampler.next(prefixes, ids, signal)
    const scored = await sampler.logprobs(
      prefixes.map((p) => [...p, 14]),
      signal,
    )
    next.forEach((n, i) => {
      expect(n).toHaveLength(3)
      expect(n[1]).toBeCloseTo(scored[i]!.at(-1)!, 5)
    })
  })

  it('rejects a bad request alone', async () => {
    const sampler = await engine.frozen(signal)
    const [good, bad] = sampler.sample([request([1], 1), request([1, 50], 1)], signal)
    expect((await good!).sequences).toHaveLength(1)
    await expect(bad).rejects.toThrow('request 1: token 50 is outside the vocabulary of 50')
  })

  it('ends when aborted, with the reason, and goes on afterwards', async () => {
    const sampler = await engine.frozen(signal)
    const controller = new AbortController()
    const reason = new Error('enough')
    const promises = sampler.sample(
      Array.from({ length: 200 }, (_, i) => request([1 + (i % 40)], 8, { maxTokens: 90 })),
      controller.signal,
    )
    setTimeout(() => controller.abort(reason), 30)
    await expect(promises.at(-1)).rejects.toBe(reason)
    expect((await sampler.sample([request([1], 1)], signal)[0]!).sequences).toHaveLength(1)
  })
})

describe('models', () => {
  it('collect nothing from a call that was aborted between packs', async () => {
    await using model = await engine.open('frozen', signal)
    const controller = new AbortController()
    const many = Array.from({ length: 4000 }, (_, i) => taught([1 + (i % 40), 2, 3, 4, 5, 6]))
    const call = model.forwardBackward(many, { kind: 'cross_entropy' }, controller.signal)
    setTimeout(() => controller.abort(), 20)
    await expect(call).rejects.toThrow('aborted')
    await expect(model.optimStep(adam, signal)).rejects.toThrow('call forwardBackward first')
    await expect(train(model, 1)).resolves.toMatch(/^[0-9a-f]{64}$/)
  })

  it('end their waiting calls when the engine is disposed', async () => {
    const other = await openOnnxEngine({ backbone: { config, seed: 1 }, checkpointDir: dir, threads: 1 })
    const sampler = await other.frozen(signal)
    const waiting = sampler.sample([request([1, 2], 64, { maxTokens: 90 })], signal)[0]!
    await other[Symbol.asyncDispose]()
    await expect(waiting).rejects.toThrow()
    await expect(other.open('frozen', signal)).rejects.toThrow('the engine is closed')
  })

  it('are not changed by each other, snapshots not by training', async () => {
    const frozen = await engine.frozen(signal)
    await using model = await engine.open('frozen', signal)
    await using before = await model.snapshot(signal)
    expect(before.version).toBe(frozen.version)
    const version = await train(model, 3)
    await using after = await model.snapshot(signal)
    expect(after.version).toBe(version)
    expect(version).not.toBe(before.version)
    const sequence = [corpus[0]!.tokens]
    expect(await before.logprobs(sequence, signal)).toEqual(await frozen.logprobs(sequence, signal))
    expect(await after.logprobs(sequence, signal)).not.toEqual(await frozen.logprobs(sequence, signal))
  })

  it('learn a batch that greedy sampling then repeats', async () => {
    await using model = await engine.open('frozen', signal)
    await train(model, 80)
    await using sampler = await model.snapshot(signal)
    const { sequences } = await sampler.sample([request([9], 1, { greedy: true, maxTokens: 4 })], signal)[0]!
    expect(sequences[0]!.tokens).toEqual([8, 7, 6, 5])
    expect(model.usage).toMatchObject({ trainedTokens: 80 * 19, sampledTokens: 4, promptTokens: 1 })
    expect(model.usage.cpuS).toBeGreaterThan(0)
  })

  it('go on from a checkpoint as if never interrupted, bit for bit', async () => {
    await using model = await engine.open('frozen', signal)
    await train(model, 4)
    const checkpoint = await model.save('step-4', signal)
    const unbroken = await train(model, 4)
    await using fresh = await openOnnxEngine({
      backbone: { config, seed: 5 },
      checkpointDir: join(dir, 'checkpoints'),
      threads: 2,
    })
    await using resumed = await fresh.open(checkpoint, signal)
    expect(await train(resumed, 4)).toBe(unbroken)
  })

  it('name what is wrong with a checkpoint', async () => {
    await using model = await engine.open('frozen', signal)
    const checkpoint = await model.save('to be broken', signal)
    const { location } = checkpoint
    const whole = await readFile(location)
    const open = (): Promise<unknown> => engine.open(checkpoint, signal)
    await expect(engine.open({ ...checkpoint, version: weightsVersion('00') }, signal)).rejects.toThrow('not 00')
    await truncate(location, whole.length - 1000)
    await expect(open()).rejects.toThrow(`${location} is truncated`)
    await expect(open()).rejects.toThrow('go on from an earlier checkpoint')
    await expect(open()).rejects.toBeInstanceOf(EngineError)
    await truncate(location, 20)
    await expect(open()).rejects.toThrow('truncated in its header')
    const flipped = Buffer.from(whole)
    flipped[whole.length - 5]! ^= 1
    await writeFile(location, flipped)
    await expect(open()).rejects.toThrow(`${location} is corrupt`)
    await rm(location)
    await expect(open()).rejects.toThrow(`cannot read ${location}`)
  })

  it('become a backbone in half precision, with a scale folded in', async () => {
    await using model = await engine.open('frozen', signal)
    const path = join(dir, 'backbone.safetensors')
    const { bytes } = await model.saveBackbone(path, { logitScale: 3.75, metadata: { seed: '5' } }, signal)
    expect(bytes).toBeLessThan(2.1 * (2 * 12 * 32 * 32 + 50 * 32) + 4096)
    await using other = await openOnnxEngine({ backbone: path, checkpointDir: dir, threads: 1 })
    expect(other.config).toEqual({ ...config, logitScale: 3.75 })
    const all = Array.from({ length: config.vocab }, (_, i) => i)
    const read = async (e: OnnxEngine): Promise<Float32Array> =>
      (await (await e.frozen(signal)).next([[1, 2, 3]], all, signal))[0]!
    const sharp = await read(other)
    const base = [...(await read(engine))].map((lp) => 1.5 * lp)
    const lse = Math.log(base.reduce((s, x) => s + Math.exp(x), 0))
    sharp.forEach((lp, i) => {
      expect(Math.abs(lp - (base[i]! - lse))).toBeLessThan(0.02)
    })
  })

  it('fail by name when the backbone is missing or wrong', async () => {
    const path = join(dir, 'none.safetensors')
    await expect(openOnnxEngine({ backbone: path, checkpointDir: dir, threads: 1 })).rejects.toThrow(
      `cannot read ${path}`,
    )
    const bad = { backbone: { config: { ...config, heads: 5 }, seed: 1 }, checkpointDir: dir, threads: 1 }
    await expect(openOnnxEngine(bad)).rejects.toThrow('model.dModel: 32 does not split into 5 heads')
  })
})
