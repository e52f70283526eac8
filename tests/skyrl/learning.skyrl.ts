/** A planted task through the training loop on a live SkyRL server: the score (share of one token) rises. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { TaskRef } from '../../src/core/index.ts'
import { openTinkerEngine } from '../../src/engine/tinker/index.ts'
import { runConfig, type StepMetrics, trainLoop } from '../../src/train/index.ts'
import { noRecord, plantedFormat, plantedJudges } from '../../src/train/testing.ts'

const url = process.env.WMRL_SKYRL_URL!
const STEPS = 16
const TOKENS = 16
const signal = new AbortController().signal

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-skyrl-learning-'))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const TASKS: TaskRef[] = [0, 1].map((k) => ({ suite: 'builtin', id: `toy-${k}`, modality: 'tabular', split: 'train' }))
const prompt = (t: TaskRef): number[] => {
  const k = TASKS.findIndex((x) => x.id === t.id)
  return Array.from({ length: 8 }, (_, i) => 20 + k * 100 + i * 7)
}
const format = plantedFormat(prompt, TOKENS)

it('the share of one token rises over exactly N optimiser steps', async () => {
  const steps: string[] = []
  const watched: typeof fetch = (input, init) => {
    const body = init?.body ? Buffer.from(init.body as Uint8Array).toString('utf8') : ''
    if (String(input).endsWith('/optim_step') && !body.includes('"learning_rate":0,')) steps.push(body)
    return fetch(input, init)
  }
  await using engine = await openTinkerEngine(
    {
      url,
      rank: 8,
      seed: 5,
      context: 4096,
      vocab: 512,
      stateDir: dir,
      needs: {
        losses: ['importance_sampling'],
        frozenBase: true,
        kl: false,
        entropy: false,
        longest: 64,
        overlap: false,
      },
      client: { fetch: (u, i) => watched(u, i) },
    },
    signal,
  )
  const frozen = await engine.frozen(signal)
  // What the random model says most often, so that there is something to reward from the first step on.
  const first = await Promise.all(
    frozen.sample(
      TASKS.map((t) => ({
        prompt: prompt(t),
        count: 16,
        maxTokens: TOKENS,
        stop: [],
        seeds: Array.from({ length: 16 }, (_, i) => 900 + i),
      })),
      signal,
    ),
  )
  const counts = new Map<number, number>()
  for (const t of first.flatMap((s) => s.sequences.flatMap((q) => q.tokens))) counts.set(t, (counts.get(t) ?? 0) + 1)
  const target = [...counts].sort((a, b) => b[1] - a[1])[0]![0]
  // A world model that is sound but flattens differences.
  const judges = plantedJudges(target, (share) => 0.1 + 0.8 * share)
  const metrics: StepMetrics[] = []
  const probing = steps.length
  const report = await trainLoop(
    {
      config: runConfig.parse({
        seed: 1,
        engine: { kind: 'tinker', url },
        train: { steps: STEPS, groups: 4, groupSize: 8, turns: 1, learningRate: 0.01, checkpointEvery: STEPS },
        method: { anchors: { share: 0.5 } },
      }),
      runDir: dir,
      engine,
      frozen,
      tasks: TASKS,
      ...judges,
      format,
      record: noRecord,
      now: () => performance.now(),
      onStep: (m) => {
        metrics.push(m)
        process.stderr.write(
          `step ${m.step}  executed ${m.executedReward?.toFixed(3)}  predicted ${m.predictedReward?.toFixed(3)}  kl ${m.klSampleTrain?.toExponential(1)}  ${m.seconds.rollout.toFixed(1)} + ${m.seconds.update.toFixed(1)} s\n`,
        )
      },
    },
    signal,
  )
  const mean = (m: readonly StepMetrics[]): number => m.reduce((s, x) => s + (x.executedReward ?? 0), 0) / m.length
  const taken = metrics.filter((m) => m.noUpdate === null).length
  expect(report.steps).toBe(STEPS)
  expect(report.totals.optimiserSteps).toBe(taken)
  expect(new Set(steps.slice(probing)).size).toBe(taken)
  expect(taken).toBeGreaterThan(STEPS / 2)
  // Sampler and trainer agree before every update.
  for (const m of metrics) expect(Math.abs(m.klSampleTrain ?? 0)).toBeLessThan(1e-3)
  expect(mean(metrics.slice(-3))).toBeGreaterThan(3 * mean(metrics.slice(0, 3)))
})
