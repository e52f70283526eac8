import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { TaskRef } from '../core/index.ts'
import { openTinkerEngine } from '../engine/tinker/index.ts'
import { fastClock, PATIENT, StubServer } from '../engine/tinker/testing/stub-server.ts'
import { runConfig, type StepMetrics, trainLoop } from './index.ts'
import { noRecord, plantedFormat, plantedJudges } from './testing.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-overlap-'))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const signal = new AbortController().signal
const TARGET = 17
const TASKS: TaskRef[] = [1, 2].map((k) => ({ suite: 'builtin', id: `t${k}`, modality: 'tabular', split: 'train' }))
const format = plantedFormat((t) => [Number(t.id.slice(1)), 3], 8)
const judges = plantedJudges(TARGET)

it.each([0, 1, 2])('learns with roll-outs %i steps ahead, none older than that', async (maxStaleness) => {
  const server = new StubServer({ clock: fastClock, isolation: 'snapshot', reduction: 'sum' })
  await using engine = await openTinkerEngine(
    {
      url: 'http://stub',
      rank: 4,
      seed: 1,
      context: 64,
      vocab: 32,
      stateDir: join(dir, String(maxStaleness)),
      needs: {
        losses: ['importance_sampling'],
        frozenBase: true,
        kl: false,
        entropy: false,
        longest: 10,
        overlap: maxStaleness > 0,
      },
      client: {
        fetch: server.fetch,
        clock: fastClock,
        ceilings: PATIENT,
        heartbeat: () => ({ key: () => undefined, stop: async () => undefined }),
      },
    },
    signal,
  )
  const probed = server.optimSteps
  const metrics: StepMetrics[] = []
  const steps = 14
  const report = await trainLoop(
    {
      config: runConfig.parse({
        engine: { kind: 'tinker', url: 'http://stub' },
        train: { steps, groups: 2, groupSize: 8, turns: 1, learningRate: 0.25, checkpointEvery: 100, maxStaleness },
        method: { anchors: { share: 0.5 } },
      }),
      runDir: dir,
      engine,
      frozen: await engine.frozen(signal),
      tasks: TASKS,
      ...judges,
      format,
      record: noRecord,
      now: () => performance.now(),
      onStep: (m) => metrics.push(m),
    },
    signal,
  )
  expect(report.totals.optimiserSteps).toBe(server.optimSteps - probed)
  expect(metrics.map((m) => m.staleness)).toEqual(
    metrics.map((_, k) => (maxStaleness === 0 ? undefined : Math.min(k, maxStaleness))),
  )
  const mean = (m: readonly StepMetrics[]): number => m.reduce((s, x) => s + x.executedReward!, 0) / m.length
  expect(mean(metrics.slice(-3))).toBeGreaterThan(mean(metrics.slice(0, 2)) + 0.2)
  // The gauge: nothing between sampler and trainer in lock-step, something on older weights.
  const gap = Math.max(...metrics.map((m) => Math.abs(m.klSampleTrain ?? 0)))
  if (maxStaleness === 0) expect(gap).toBeLessThan(1e-4)
  else expect(gap).toBeGreaterThan(1e-3)
})
