import { afterAll, describe, expect, it } from 'vitest'
import { EngineError, keyed } from '../../core/index.ts'
import type { Datum, Loss } from '../contract.ts'
import { initialWeights, type ModelConfig, parameterSpecs } from './model-config.ts'
import { Sessions } from './sessions.ts'
import { Trainer } from './trainer.ts'
import { copyWeights } from './weight-set.ts'

const config: ModelConfig = { layers: 2, dModel: 16, heads: 2, vocab: 23, context: 24, logitScale: 1.4 }
const sessions = new Sessions(2)
const signal = new AbortController().signal
afterAll(() => sessions.close())

/** Weights large enough for attention to be far from uniform. */
function lively(): Map<string, Float32Array> {
  const weights = initialWeights(config, 3)
  for (const [name, w] of weights) for (let i = 0; i < w.length; i++) w[i]! *= name === 'wte' ? 4 : 10
  return weights
}

const trainer = (weights = lively()): Trainer => new Trainer(config, weights, undefined, sessions)

function datum(seed: number, length: number): Datum {
  const r = keyed(seed, 'datum')
  const list = (make: () => number): number[] => Array.from({ length }, make)
  return {
    tokens: list(() => r.int(config.vocab)),
    mask: list(() => (r.next() < 0.75 ? 1 : 0)).map((m, i) => (i === 0 ? 0 : m)),
    advantage: 2 * r.next() - 1,
    logprobs: list(() => -2.6 - r.next()),
    weights: list(() => 0.5 + r.next()),
    reference: list(() => -2.6 - r.next()),
  }
}
const data = [datum(1, 9), datum(2, 13), datum(3, 5), datum(4, 24)]

async function gradientsOf(t: Trainer, d: readonly Datum[], loss: Loss): Promise<Map<string, Float32Array>> {
  await t.forwardBackward(d, loss, signal)
  return copyWeights(t.gradients!)
}

function worstDifference(a: ReadonlyMap<string, Float32Array>, b: ReadonlyMap<string, Float32Array>): number {
  let worst = 0
  for (const [name, x] of a) {
    const y = b.get(name)!
    x.forEach((v, i) => {
      worst = Math.max(worst, Math.abs(v - y[i]!))
    })
  }
  return worst
}

const losses: readonly (Loss & { readonly title: string })[] = [
  { title: 'cross-entropy', kind: 'cross_entropy' },
  { title: 'importance sampling', kind: 'importance_sampling' },
  { title: 'ppo with asymmetric bounds', kind: 'ppo', clipLow: 0.3, clipHigh: 0.6 },
  { title: 'entropy bonus', kind: 'importance_sampling', entropyBonus: 0.7 },
  { title: 'kl to the reference', kind: 'ppo', kl: 0.5 },
  { title: 'cross-entropy with entropy and kl', kind: 'cross_entropy', kl: 0.3, entropyBonus: 0.2, normaliser: 7 },
]

describe('gradients', () => {
  it.each(losses)('equal finite differences: $title', async ({ title: _, ...loss }) => {
    const gradients = await gradientsOf(trainer(), data, loss)
    const h = 2e-3
    for (const { name } of parameterSpecs(config)) {
      const r = keyed('direction', name)
      const direction = Float32Array.from(gradients.get(name)!, () => 2 * r.next() - 1)
      const at = async (step: number): Promise<number> => {
        const weights = lively()
        const w = weights.get(name)!
        direction.forEach((u, i) => {
          w[i]! += step * u
        })
        return (await trainer(weights).forwardBackward(data, loss, signal)).loss
      }
      const numeric = ((await at(h)) - (await at(-h))) / (2 * h)
      const emitted = gradients.get(name)!.reduce((s, g, i) => s + g * direction[i]!, 0)
      expect(Math.abs(numeric - emitted), `${name}: ${numeric} against ${emitted}`).toBeLessThan(
        4e-3 * Math.max(0.3, Math.abs(numeric)),
      )
    }
  })

  it('do not depend on how data are packed', async () => {
    const loss: Loss = { kind: 'ppo', entropyBonus: 0.1, normaliser: 4 }
    const together = await gradientsOf(trainer(), data, loss)
    const alone = trainer()
    for (const d of data) await alone.forwardBackward([d], loss, signal)
    expect(worstDifference(together, alone.gradients!)).toBeLessThan(1e-6)
  })

  it('accumulate over calls as over data', async () => {
    const loss: Loss = { kind: 'cross_entropy', normaliser: 10 }
    const once = trainer()
    const twice = trainer()
    await once.forwardBackward(data, loss, signal)
    await twice.forwardBackward(data.slice(0, 2), loss, signal)
    await twice.forwardBackward(data.slice(2), loss, signal)
    expect(worstDifference(once.gradients!, twice.gradients!)).toBeLessThan(1e-6)
  })
})

describe('loss', () => {
  /** The contract's formulas, from the reported log-probabilities. */
  it('equals the documented formulas', async () => {
    const { logprobs } = await trainer().forwardBackward(data, { kind: 'cross_entropy' }, signal)
    let ce = 0
    let weights = 0
    let ppo = 0
    data.forEach((d, i) => {
      d.tokens.forEach((_, t) => {
        if (d.mask[t] === 0) return
        const lp = logprobs[i]![t]!
        ce -= d.weights![t]! * lp
        weights += d.weights![t]!
        const ratio = Math.exp(lp - d.logprobs![t]!)
        const clipped = Math.min(Math.max(ratio, 0.7), 1.6)
        ppo -= Math.min(ratio * d.advantage, clipped * d.advantage) * d.weights![t]!
        const delta = d.reference![t]! - lp
        ppo += 0.5 * (Math.exp(delta) - delta - 1)
      })
    })
    const reported = await trainer().forwardBackward(data, { kind: 'cross_entropy' }, signal)
    expect(reported.loss).toBeCloseTo(ce / weights, 5)
    const bounded: Loss = { kind: 'ppo', clipLow: 0.3, clipHigh: 0.6, kl: 0.5 }
    expect((await trainer().forwardBackward(data, bounded, signal)).loss).toBeCloseTo(ppo / data.length, 4)
  })

  it('has no log-probability for token 0 and one for every other', async () => {
    const { logprobs } = await trainer().forwardBackward([datum(5, 1), datum(6, 4)], { kind: 'cross_entropy' }, signal)
    expect([...logprobs[0]!]).toEqual([Number.NaN])
    expect(logprobs[1]!.slice(1).every(Number.isFinite)).toBe(true)
  })

  it.each([
    ['mask', { ...datum(1, 4), mask: [0, 1] }, 'datum 0: mask has 2 entries for 4 tokens'],
    ['vocabulary', { ...datum(1, 2), tokens: [1, 23] }, 'datum 0: token 23 is outside the vocabulary'],
    ['context', datum(1, 25), 'datum 0: 25 tokens, the model holds 1..24'],
    [
      'log-probability',
      { ...datum(1, 2), mask: [0, 1], logprobs: [0, Number.NaN] },
      'datum 0: a log-probability at token 1 is not finite',
    ],
    ['advantage', { ...datum(1, 2), advantage: Number.NaN }, 'datum 0: advantage is NaN'],
  ])('refuses a wrong %s by name', async (_, d, message) => {
    await expect(trainer().forwardBackward([d], { kind: 'ppo' }, signal)).rejects.toThrow(new EngineError(message))
  })
})

describe('optimStep', () => {
  it('memorises a batch', async () => {
    const t = trainer(initialWeights(config, 1))
    const taught = data.map((d) => ({ ...d, mask: d.tokens.map((_, i) => (i === 0 ? 0 : 1)) }))
    let loss = Number.POSITIVE_INFINITY
    for (let i = 0; i < 150; i++) {
      loss = (await t.forwardBackward(taught, { kind: 'cross_entropy' }, signal)).loss
      t.optimStep({ learningRate: 1e-2, gradClip: 1 })
    }
    expect(loss).toBeLessThan(0.05)
  })

  it('gives the same weights bit for bit', async () => {
    const run = async (): Promise<string> => {
      const t = trainer()
      for (let i = 0; i < 5; i++) {
        await t.forwardBackward(data, { kind: 'ppo', entropyBonus: 0.01, kl: 0.1 }, signal)
        t.optimStep({ learningRate: 1e-3, weightDecay: 0.1, gradClip: 0.5 })
      }
      return t.version()
    }
    expect(await run()).toBe(await run())
  })

  it('refuses gradients that are not finite', async () => {
    const t = trainer()
    const before = t.version()
    const poisoned = { ...datum(1, 6), mask: [0, 1, 1, 1, 1, 1], logprobs: [0, -1e4, -1, -1, -1, -1] }
    await t.forwardBackward([poisoned], { kind: 'importance_sampling' }, signal)
    const report = t.optimStep({ learningRate: 1e-2 })
    expect(report).toMatchObject({ applied: false, version: before })
    expect(t.adam.step).toBe(0)
    expect(() => t.optimStep({ learningRate: 1e-2 })).toThrow('call forwardBackward first')
  })

  it('clips to a global norm and decays weights', async () => {
    const t = trainer()
    const w = t.weights.get('layers.0.up')![7]!
    await t.forwardBackward(data, { kind: 'cross_entropy' }, signal)
    const { gradNorm } = t.optimStep({ learningRate: 0, weightDecay: 0.1, gradClip: 1e-3 })
    expect(gradNorm).toBeGreaterThan(1e-3)
    expect(t.weights.get('layers.0.up')![7]).toBe(w)
  })

  it('adds nothing when aborted', async () => {
    const t = trainer()
    await expect(t.forwardBackward(data, { kind: 'cross_entropy' }, AbortSignal.abort())).rejects.toThrow()
    expect(t.gradients).toBeUndefined()
  })
})
