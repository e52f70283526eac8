import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { ConfigError, keyedSeed } from '../../core/index.ts'
import type { Datum, Loss } from '../contract.ts'
import { openTinkerEngine, type TinkerEngineOptions } from './engine.ts'
import { lossValue } from './loss-data.ts'
import { type Fault, fastClock, PATIENT, type StubOptions, StubServer, TOY_BASE } from './testing/stub-server.ts'

const signal = new AbortController().signal
const dirs: string[] = []
afterEach(() => {
  for (const d of dirs.splice(0)) rmSync(d, { recursive: true, force: true })
})
const folder = (): string => {
  const d = mkdtempSync(join(tmpdir(), 'wmrl-tinker-'))
  dirs.push(d)
  return d
}

async function engineOn(server: StubServer, o: Partial<TinkerEngineOptions> = {}) {
  return openTinkerEngine(
    {
      url: 'http://stub',
      rank: 4,
      seed: 1,
      context: 512,
      vocab: 32,
      stateDir: folder(),
      needs: {
        losses: ['importance_sampling'],
        frozenBase: true,
        kl: false,
        entropy: false,
        longest: 100,
        overlap: false,
      },
      ...o,
      client: {
        fetch: server.fetch,
        clock: fastClock,
        ceilings: PATIENT,
        heartbeat: () => ({ key: () => undefined, stop: async () => undefined }),
        ...o.client,
      },
    },
    signal,
  )
}
const stub = (o: Partial<StubOptions> = {}): StubServer => new StubServer({ ...o, clock: fastClock })

/** Two data with one and three action tokens. */
const data: readonly Datum[] = [
  { tokens: [1, 2, 3], mask: [0, 0, 1], advantage: 0.8, logprobs: [0, 0, -3.3] },
  { tokens: [4, 5, 6, 7, 8], mask: [0, 0, 1, 1, 1], advantage: -0.5, logprobs: [0, 0, -3.2, -3.5, -3.4] },
]

describe('the gradient does not depend on how a server reduces', () => {
  /** What the server would apply. */
  async function gradient(o: Partial<StubOptions>, d: readonly Datum[], loss: Loss): Promise<number[]> {
    const server = stub(o)
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    const { loss: value, logprobs } = await model.forwardBackward(d, loss, signal)
    expect(value).toBeCloseTo(lossValue(d, loss, logprobs), 6)
    const g = [...server.models.get(model.id)!.model.accumulated()]
    return o.reduction === 'sequence-mean' ? g.map((v) => v / d.length) : g
  }
  const reference = data.map((d) => ({ ...d, reference: d.tokens.map((_, i) => (i === 0 ? 0 : -3.1)) }))
  const weighted = data.map((d) => ({ ...d, weights: d.mask.map((m, i) => m * (1 + i)) }))

  it.each<[string, readonly Datum[], Loss]>([
    ['importance sampling', data, { kind: 'importance_sampling', normaliser: 8 }],
    ['clipped', data, { kind: 'ppo', clipLow: 0.2, clipHigh: 0.28, normaliser: 8 }],
    ['with a divergence term (two calls)', reference, { kind: 'importance_sampling', normaliser: 8, kl: 0.3 }],
    [
      'clipped, with a divergence term',
      reference,
      { kind: 'ppo', clipLow: 0.2, clipHigh: 0.28, normaliser: 8, kl: 0.3 },
    ],
    ['with ratios below their ceiling (two calls)', data, { kind: 'importance_sampling', normaliser: 8, truncate: 10 }],
    ['cross-entropy with weights', weighted, { kind: 'cross_entropy' }],
  ])('%s', async (_, d, loss) => {
    const sum = await gradient({ reduction: 'sum' }, d, loss)
    const mean = await gradient({ reduction: 'sequence-mean', isolation: 'none' }, d, loss)
    const json = await gradient({ reduction: 'sum', wire: 'json' }, d, loss)
    // The slope of the loss's value, by differences, on the toy's own parameters.
    const toy = stub()
    await using engine = await engineOn(toy)
    const model = await engine.open('frozen', signal)
    const m = toy.models.get(model.id)!.model
    const value = (): number => {
      const top = Math.max(...m.theta)
      const z = Math.log(m.theta.reduce((s, x) => s + Math.exp(x - top), 0)) + top
      return lossValue(
        d,
        loss,
        d.map((x) => Float64Array.from(x.tokens, (t) => m.theta[t]! - z) as unknown as Float32Array),
      )
    }
    const h = 1e-5
    const slope = m.theta.map((x, j) => {
      m.theta[j] = x + h
      const up = value()
      m.theta[j] = x - h
      const down = value()
      m.theta[j] = x
      return (up - down) / (2 * h)
    })
    const scale = Math.max(...slope.map(Math.abs))
    slope.forEach((g, j) => {
      expect(Math.abs(sum[j]! - g) / scale).toBeLessThan(1e-5)
      expect(Math.abs(mean[j]! - g) / scale).toBeLessThan(1e-5)
      expect(Math.abs(json[j]! - g) / scale).toBeLessThan(1e-5)
    })
  })

  it('a ratio above its ceiling counts as the ceiling', async () => {
    const far = data.map((d) => ({ ...d, logprobs: d.logprobs!.map((v) => (v === 0 ? 0 : -8)) }))
    const loss = { kind: 'importance_sampling', normaliser: 8 } as const
    const cut = await gradient({ reduction: 'sum' }, far, { ...loss, truncate: 2 })
    const whole = await gradient({ reduction: 'sum' }, far, loss)
    expect(Math.max(...whole.map(Math.abs))).toBeGreaterThan(10 * Math.max(...cut.map(Math.abs)))
    expect(Math.max(...cut.map(Math.abs))).toBeGreaterThan(0)
  })

  it('refuses a second call where the server averages over a step’s data', async () => {
    const server = stub({ reduction: 'sequence-mean' })
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    await model.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    await expect(model.forwardBackward(data, { kind: 'importance_sampling' }, signal)).rejects.toThrow('in one call')
  })
})

describe('a server without sampler isolation is kept in turn', () => {
  const request = { prompt: [1, 2], count: 2, maxTokens: 4, stop: [], seeds: [5, 6] }
  it('refuses training under unfinished samples, and sampling after training', async () => {
    const server = stub({ isolation: 'none', reduction: 'sequence-mean' })
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    const first = await model.snapshot(signal)
    const running = first.sample([request], signal)
    await expect(model.forwardBackward(data, { kind: 'importance_sampling' }, signal)).rejects.toThrow('not finished')
    const sample = await running[0]!
    expect(sample.sequences).toHaveLength(2)
    expect(sample.version).toBe(first.version)
    await model.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    await expect(first.sample([request], signal)[0]!).rejects.toThrow('was trained since')
    const { version } = await model.optimStep({ learningRate: 0.1 }, signal)
    expect(version).not.toBe(first.version)
    await expect(first.sample([request], signal)[0]!).rejects.toThrow('was trained since')
    const second = await model.snapshot(signal)
    expect(second.version).toBe(version)
    await expect(first.sample([request], signal)[0]!).rejects.toThrow('not the newest')
    await second.sample([request], signal)[0]!
  })

  it('notices when sampling changed the model all the same', async () => {
    const server = stub({ isolation: 'none', reduction: 'sequence-mean' })
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    const s = await model.snapshot(signal)
    await s.sample([request], signal)[0]!
    server.models.get(model.id)!.model.theta[3]! += 5
    await expect(model.forwardBackward(data, { kind: 'importance_sampling' }, signal)).rejects.toThrow(
      'sampling changed the model',
    )
    expect(server.models.size).toBe(0)
  })

  it('samples an old snapshot where the server isolates them', async () => {
    const server = stub({ isolation: 'snapshot' })
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    const first = await model.snapshot(signal)
    const before = await first.logprobs([[1, 2, 3]], signal)
    await model.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    await model.optimStep({ learningRate: 0.1 }, signal)
    expect(await first.logprobs([[1, 2, 3]], signal)).toEqual(before)
  })
})

describe('numbers that are not finite', () => {
  it('a loss: no optimiser step, the model is unloaded', async () => {
    const server = stub()
    await using engine = await engineOn(server)
    const steps = server.optimSteps
    const model = await engine.open('frozen', signal)
    server.models.get(model.id)!.model.theta[3] = Number.NaN
    await expect(model.forwardBackward(data, { kind: 'importance_sampling' }, signal)).rejects.toThrow('unloaded')
    expect(server.models.size).toBe(0)
    await expect(model.optimStep({ learningRate: 0.1 }, signal)).rejects.toThrow('is gone')
    expect(server.optimSteps).toBe(steps)
  })

  it('the forward call of the two-call form', async () => {
    const server = stub()
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    server.models.get(model.id)!.model.theta[3] = Number.NaN
    const d = data.map((x) => ({ ...x, reference: x.tokens.map(() => -3) }))
    await expect(model.forwardBackward(d, { kind: 'importance_sampling', kl: 0.1 }, signal)).rejects.toThrow('unloaded')
    expect(server.models.size).toBe(0)
  })

  it('a loss that a JSON server cannot even encode', async () => {
    const server = stub({ wire: 'json' })
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    server.models.get(model.id)!.model.theta[3] = Number.NaN
    await expect(model.forwardBackward(data, { kind: 'importance_sampling' }, signal)).rejects.toThrow('unloaded')
    expect(server.models.size).toBe(0)
  })

  it('a gradient norm after the step', async () => {
    const server = stub()
    await using engine = await engineOn(server)
    const model = await engine.open('frozen', signal)
    await model.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    ;(server.models.get(model.id)!.model.accumulated() as number[])[0] = Number.NaN
    await expect(model.optimStep({ learningRate: 0.1 }, signal)).rejects.toThrow('gradient of step 1')
    expect(server.models.size).toBe(0)
  })
})

describe('checkpoints, orphans, exits', () => {
  const train = async (model: Awaited<ReturnType<Awaited<ReturnType<typeof engineOn>>['open']>>): Promise<void> => {
    await model.forwardBackward(data, { kind: 'importance_sampling', normaliser: 2 }, signal)
    await model.optimStep({ learningRate: 0.05 }, signal)
  }

  it.each(['snapshot', 'none'] as const)('a resumed run equals an unbroken one (isolation %s)', async (isolation) => {
    const reduction = isolation === 'none' ? 'sequence-mean' : 'sum'
    const whole = stub({ isolation, reduction })
    await using a = await engineOn(whole)
    const unbroken = await a.open('frozen', signal)
    for (let i = 0; i < 4; i++) await train(unbroken)

    const server = stub({ isolation, reduction })
    const stateDir = folder()
    const first = await engineOn(server, { stateDir })
    const model = await first.open('frozen', signal)
    await train(model)
    await train(model)
    const checkpoint = await model.save('step 2', signal)
    await train(model)
    // Killed: nothing is unloaded.
    await using second = await engineOn(server, { stateDir })
    expect(server.models.size).toBe(0)
    const resumed = await second.open(checkpoint, signal)
    expect(resumed.version).toBe(checkpoint.version)
    await train(resumed)
    await train(resumed)
    expect(server.models.get(resumed.id)!.model.theta).toEqual(whole.models.get(unbroken.id)!.model.theta)
  })

  it('unloads at exit and writes down what the probes found', async () => {
    const server = stub()
    const stateDir = folder()
    {
      await using engine = await engineOn(server, { stateDir })
      await engine.open('frozen', signal)
      expect(server.models.size).toBe(1)
    }
    expect(server.models.size).toBe(0)
    expect(existsSync(join(stateDir, 'tinker-models.jsonl'))).toBe(true)
    expect(JSON.parse(readFileSync(join(stateDir, 'tinker-server.json'), 'utf8'))).toMatchObject({ reduction: 'sum' })
  })

  it('clears a slot’s leftover gradient before the first step', async () => {
    const server = stub({ isolation: 'none', reduction: 'sequence-mean' })
    await using engine = await engineOn(server)
    const one = await engine.open('frozen', signal)
    await one.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    server.restart()
    const clean = stub({ isolation: 'none', reduction: 'sequence-mean' })
    await using fresh = await engineOn(clean)
    const model = await fresh.open('frozen', signal)
    expect(Math.max(...clean.models.get(model.id)!.model.accumulated().map(Math.abs))).toBe(0)
  })

  it('a checkpoint that the server has lost is told by name', async () => {
    const server = stub()
    await using engine = await engineOn(server)
    const gone = { name: 'x', location: 'tinker://model_9/weights/x', version: 'v' as never }
    await expect(engine.open(gone, signal)).rejects.toThrow('no longer has tinker://model_9/weights/x')
  })

  it('a base model that the server does not have is a configuration error', async () => {
    const server = stub()
    await expect(engineOn(server, { model: 'other/base' })).rejects.toThrow(ConfigError)
    await expect(engineOn(server, { model: 'other/base' })).rejects.toThrow(TOY_BASE)
    expect(server.seen.some((s) => s.path === '/create_model')).toBe(false)
  })

  it('samples the frozen backbone from another server', async () => {
    const server = stub()
    const world = stub()
    const fetch: StubServer['fetch'] = (url, init) => (url.startsWith('http://world') ? world : server).fetch(url, init)
    await using engine = await engineOn(server, { worldModelUrl: 'http://world', client: { fetch } })
    const frozen = await engine.frozen(signal)
    const [lp] = await frozen.logprobs([[1, 2, 3]], signal)
    expect(lp![0]).toBeNaN()
    expect(world.seen.some((s) => s.path === '/asample')).toBe(true)
  })

  it('a lost gradient on a server that doubles is cleared and computed again', async () => {
    let lose = false
    const fault = (r: { path: string }): Fault | undefined => {
      if (!lose || r.path !== '/forward_backward') return undefined
      lose = false
      return { kind: 'lose-reply' }
    }
    const server = stub({ deduplicates: false, fault })
    const lines: string[] = []
    await using engine = await engineOn(server, { log: (l) => lines.push(l) })
    const model = await engine.open('frozen', signal)
    lose = true
    await model.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    const twin = stub()
    await using other = await engineOn(twin)
    const clean = await other.open('frozen', signal)
    await clean.forwardBackward(data, { kind: 'importance_sampling' }, signal)
    const got = server.models.get(model.id)!.model.accumulated()
    const want = twin.models.get(clean.id)!.model.accumulated()
    got.forEach((g, i) => {
      expect(g).toBeCloseTo(want[i]!, 6)
    })
    expect(lines.join()).toContain('doing it again')
  })
})

describe('learning', () => {
  it.each(['snapshot', 'none'] as const)('a planted task through the contract (isolation %s)', async (isolation) => {
    const server = stub({ isolation, reduction: isolation === 'none' ? 'sequence-mean' : 'sum' })
    await using engine = await engineOn(server)
    const before = server.optimSteps
    const model = await engine.open('frozen', signal)
    const target = 17
    const scores: number[] = []
    const n = 12
    for (let step = 0; step < n; step++) {
      await using sampler = await model.snapshot(signal)
      const prompts = [
        [1, 2],
        [3, 4],
      ]
      const samples = await Promise.all(
        sampler.sample(
          prompts.map((prompt, g) => ({
            prompt,
            count: 8,
            maxTokens: 8,
            stop: [],
            seeds: Array.from({ length: 8 }, (_, i) => keyedSeed('toy', step, g, i)),
          })),
          signal,
        ),
      )
      const batch = samples.flatMap((s, g): Datum[] => {
        const rewards = s.sequences.map((q) => q.tokens.filter((t) => t === target).length / q.tokens.length)
        const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length
        scores[step] = (scores[step] ?? 0) + mean / prompts.length
        return s.sequences.map((q, i) => ({
          tokens: [...prompts[g]!, ...q.tokens],
          mask: [0, 0, ...q.tokens.map(() => 1)],
          logprobs: [0, 0, ...q.logprobs],
          advantage: rewards[i]! - mean,
        }))
      })
      const r = await model.forwardBackward(batch, { kind: 'importance_sampling', normaliser: 16 }, signal)
      // On policy: what the sampler said is what the trainer says.
      batch.forEach((d, i) => {
        d.mask.forEach((m, t) => {
          if (m) expect(r.logprobs[i]![t]).toBeCloseTo(d.logprobs![t]!, 4)
        })
      })
      await model.optimStep({ learningRate: 0.3 }, signal)
    }
    expect(server.optimSteps - before).toBe(n)
    expect(scores[0]!).toBeLessThan(0.15)
    expect((scores[n - 1]! + scores[n - 2]!) / 2).toBeGreaterThan(0.5)
    expect(model.usage.sampledTokens).toBe(n * 16 * 8)
  })
})
