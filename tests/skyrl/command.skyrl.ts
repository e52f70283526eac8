/** The command against a live SkyRL server: check, three steps of training with a resume in between, nothing left loaded. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { prepare, wmrl } from '../helpers.ts'

const url = process.env.WMRL_SKYRL_URL!
const model = process.env.WMRL_SKYRL_MODEL!
const long = { timeout: 1_500_000 }

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-skyrl-'))
  prepare('concrete-strength')
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

it('engine check finds what was measured by hand', () => {
  const r = wmrl(['engine', 'check', url, '--json'], long)
  expect(r.status, r.stderr).toBe(0)
  const { capabilities, usable } = JSON.parse(r.stdout) as { capabilities: Record<string, unknown>; usable: boolean }
  expect(usable).toBe(true)
  expect(capabilities).toMatchObject({
    wire: 'protobuf',
    deduplicates: true,
    reduction: 'sequence-mean',
    training: 'lora',
    samplerIsolation: 'none',
    samplingRollsBack: true,
    losses: { cross_entropy: true, importance_sampling: true, ppo: true, cispo: true, gspo: false },
    seedsHonoured: true,
    seedStride: true,
    sampleLogprobs: 'raw',
    zeroLogprobs: false,
    promptLogprobs: 'n-1',
    frozenBase: true,
    frozenBaseUntouched: true,
    gradNorm: true,
  })
  expect(capabilities.samplerTrainerGap as number).toBeLessThan(1e-3)
})

it('trains three steps with a resume in between', () => {
  const run = join(dir, 'run')
  const settings = (steps: number): string[] =>
    [
      'engine.kind=tinker',
      `engine.url=${url}`,
      `engine.tokenizer=${model}`,
      'engine.rank=4',
      `train.steps=${steps}`,
      'train.groups=2',
      'train.groupSize=2',
      'train.turns=1',
      'train.actionTokens=16',
      'train.observationTokens=64',
      'train.overviewTokens=1500',
      'train.checkpointEvery=1',
      'tasks.only=["concrete-strength"]',
      'method.anchors.share=0.5',
      'prediction.context=4000',
      'prediction.maxTokens=16',
      'prediction.draws=1',
    ].flatMap((s) => ['--set', s])
  const first = wmrl(['train', '--json', '--run', run, ...settings(2)], long)
  expect(first.status, first.stderr).toBe(0)
  const second = wmrl(['train', '--json', '--resume', '--run', run, '--set', 'train.steps=3'], long)
  expect(second.status, second.stderr).toBe(0)
  expect(JSON.parse(second.stdout)).toMatchObject({ steps: 3, stoppedBy: 'steps' })
  expect(readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n')).toHaveLength(3)
  for (const name of ['adapter_config.json', 'tokenizer.json', 'README.md'])
    expect(existsSync(join(run, 'adapter', name)), name).toBe(true)
  // Every model that the journal opened was closed again.
  const journal = readFileSync(join(run, 'checkpoints', 'tinker-models.jsonl'), 'utf8')
  const count = (op: string): number => journal.split('\n').filter((l) => l.includes(`"op":"${op}"`)).length
  expect(count('opened')).toBe(count('closed'))
})
