import { afterAll, expect, it } from 'vitest'
import type { Datum } from './contract.ts'
import { initialWeights, type ModelConfig } from './onnx/model-config.ts'
import { Sessions } from './onnx/sessions.ts'
import { Trainer } from './onnx/trainer.ts'
import { rescaleForReduction } from './reduction.ts'

const config: ModelConfig = { layers: 1, dModel: 16, heads: 2, vocab: 11, context: 8, logitScale: 1 }
const sessions = new Sessions(1)
const signal = new AbortController().signal
afterAll(() => sessions.close())

/** Two data with one and three action tokens. */
const data: readonly Datum[] = [
  { tokens: [1, 2, 3], mask: [0, 0, 1], advantage: 0.8, logprobs: [0, 0, -2.3] },
  { tokens: [4, 5, 6, 7, 8], mask: [0, 0, 1, 1, 1], advantage: -0.5, logprobs: [0, 0, -2.2, -2.5, -2.4] },
]
const trajectories = 8

/** The embedded engine made to reduce as a server would: weights are the means, the normaliser is 1. */
async function gradient(sent: readonly Datum[], reduction: 'sum' | 'sequence-mean'): Promise<Float32Array> {
  const trainer = new Trainer(config, initialWeights(config, 2), undefined, sessions)
  const reduced = sent.map((d): Datum => {
    const tokens = d.mask.reduce((n, m) => n + m, 0)
    const weight = reduction === 'sum' ? 1 : 1 / (tokens * sent.length)
    return { ...d, weights: d.mask.map((m) => m * weight) }
  })
  await trainer.forwardBackward(reduced, { kind: 'importance_sampling', normaliser: 1 }, signal)
  return Float32Array.from([...trainer.gradients!.values()].flatMap((g) => [...g]))
}

it('gives the same gradient under both reductions', async () => {
  const trainer = new Trainer(config, initialWeights(config, 2), undefined, sessions)
  await trainer.forwardBackward(data, { kind: 'importance_sampling', normaliser: trajectories }, signal)
  const embedded = [...trainer.gradients!.values()].flatMap((g) => [...g])
  const scale = Math.max(...embedded.map(Math.abs))
  for (const reduction of ['sum', 'sequence-mean'] as const) {
    const served = await gradient(rescaleForReduction(data, reduction, trajectories), reduction)
    served.forEach((g, i) => {
      expect(Math.abs(g - embedded[i]!) / scale).toBeLessThan(1e-5)
    })
  }
})

it('differs when the average is not undone', async () => {
  const wrong = await gradient(rescaleForReduction(data, 'sum', trajectories), 'sequence-mean')
  const right = await gradient(rescaleForReduction(data, 'sum', trajectories), 'sum')
  expect(Math.max(...wrong.map((g, i) => Math.abs(g - right[i]!)))).toBeGreaterThan(1e-3)
})
