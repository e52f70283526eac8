/** `wmrl train --set engine.kind=tinker` against a stub server: the whole command, stopped and resumed. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { writeByteTokenizer } from '../src/engine/text/testing/byte-tokenizer.ts'
import { serve } from '../src/engine/tinker/testing/serve.ts'
import { fastClock, StubServer } from '../src/engine/tinker/testing/stub-server.ts'
import { cli, prepare } from './helpers.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-tinker-'))
  writeByteTokenizer(dir)
  prepare('ames-sale-price', 'staff-attrition')
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** The stub lives in this process, so the command must not block it. */
function wmrl(
  args: readonly string[],
  onStart: (child: ChildProcess) => void = () => undefined,
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [cli, ...args])
    onStart(child)
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (d: Buffer) => {
      stdout += d
    })
    child.stderr.on('data', (d: Buffer) => {
      stderr += d
    })
    child.on('close', (status) => resolve({ status, stdout, stderr }))
  })
}

const settings = (url: string, steps: number): string[] =>
  [
    'engine.kind=tinker',
    `engine.url=${url}`,
    `engine.tokenizer=${dir}`,
    'engine.rank=4',
    'engine.context=8000',
    `train.steps=${steps}`,
    'train.groups=2',
    'train.groupSize=2',
    'train.turns=2',
    'train.actionTokens=24',
    'train.observationTokens=64',
    'train.overviewTokens=3000',
    'train.checkpointEvery=1',
    'tasks.only=["ames-sale-price"]',
    'method.anchors.share=0.5',
    'prediction.context=8000',
    'prediction.maxTokens=32',
    'prediction.draws=1',
  ].flatMap((s) => ['--set', s])

it('trains, stops, goes on with a new model from the checkpoint, and leaves nothing loaded', async () => {
  const stub = new StubServer({
    clock: fastClock,
    vocab: 320,
    reduction: 'sequence-mean',
    isolation: 'none',
    longPollMs: 2_000_000,
  })
  await using server = await serve(stub)
  const run = join(dir, 'run')
  const first = await wmrl(['train', '--json', '--run', run, ...settings(server.url, 1)])
  expect(first.stderr + first.stdout).toContain('probing the server')
  expect(first.status, first.stderr).toBe(0)
  expect(stub.models.size).toBe(0)
  const second = await wmrl(['train', '--json', '--resume', '--run', run, '--set', 'train.steps=3'])
  expect(second.status, second.stderr).toBe(0)
  expect(JSON.parse(second.stdout)).toMatchObject({ steps: 3, stoppedBy: 'steps' })
  expect(stub.models.size).toBe(0)
  expect(stub.seen.some((s) => s.path === '/load_weights')).toBe(true)
  expect(existsSync(join(run, 'checkpoints', 'text.json'))).toBe(true)
  for (const name of ['adapter_config.json', 'tokenizer.json', 'README.md'])
    expect(existsSync(join(run, 'adapter', name)), name).toBe(true)
  const lines = readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n')
  expect(lines).toHaveLength(3)
  const replay = await wmrl(['replay', run, '--json'])
  expect(replay.status, replay.stderr).toBe(0)
  expect(JSON.parse(replay.stdout)).toMatchObject({ steps: 3, differences: 0 })
  const evaluated = await wmrl(['eval', run, '--split', 'dev', '--samples', '1', '--json'])
  expect(evaluated.status, evaluated.stderr).toBe(0)
  expect(stub.models.size).toBe(0)
}, 300_000)

it.each(['SIGINT', 'SIGKILL'] as const)(
  '%s in the middle of a run, which then goes on',
  async (how) => {
    const stub = new StubServer({
      clock: fastClock,
      vocab: 320,
      isolation: 'snapshot',
      workMs: 5_000,
      longPollMs: 2_000_000,
    })
    await using server = await serve(stub)
    const run = join(dir, how)
    const metrics = join(run, 'metrics.jsonl')
    const stopped = await wmrl(['train', '--json', '--run', run, ...settings(server.url, 500)], async (child) => {
      while (!existsSync(metrics) || readFileSync(metrics, 'utf8').split('\n').length < 3)
        await new Promise((r) => setTimeout(r, 20))
      child.kill(how)
    })
    if (how === 'SIGINT') {
      expect(stopped.status, stopped.stderr).toBe(130)
      expect(stub.models.size).toBe(0)
    } else expect(stub.models.size).toBe(1)
    const done = readFileSync(metrics, 'utf8').trim().split('\n').length
    const on = await wmrl(['train', '--json', '--resume', '--run', run, '--set', `train.steps=${done + 1}`])
    expect(on.status, on.stderr).toBe(0)
    if (how === 'SIGKILL') expect(on.stderr).toContain('which an earlier process left behind')
    expect(stub.models.size).toBe(0)
  },
  300_000,
)

it('a server that a run cannot use is a configuration error, exit code 2', async () => {
  const stub = new StubServer({ clock: fastClock, vocab: 320, sampler: 'zeros' })
  await using server = await serve(stub)
  const r = await wmrl(['train', '--run', join(dir, 'refused'), ...settings(server.url, 1)])
  expect(r.status).toBe(2)
  expect(r.stderr).toContain('engine.url: the server answers samples with log-probabilities of 0')
  const none = await wmrl([
    'train',
    '--run',
    join(dir, 'nobody'),
    ...settings(server.url, 1),
    '--set',
    'train.entropy=0.1',
  ])
  expect(none.status).toBe(2)
}, 300_000)
