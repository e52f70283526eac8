import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { RunLedger } from '../src/ledger/index.ts'
import type { RunState } from '../src/train/index.ts'
import { cli, prepare, root, wmrl } from './helpers.ts'

const ARGS = [
  '--set',
  'train.steps=3',
  '--set',
  'train.groups=2',
  '--set',
  'train.groupSize=3',
  '--set',
  'train.turns=2',
  '--set',
  'train.checkpointEvery=1',
  '--set',
  'tasks.only=["ames-sale-price","diamond-price","meal-delivery-time"]',
  '--set',
  'method.anchors.share=0.5',
  '--set',
  'executor.cache=false',
  // A program that ends near its limit may end on either side of it, and a resumed run executes some again.
  '--set',
  'executor.limits=board',
  '--set',
  'engine.threads=1',
]
const POINTS = 20

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-resume-'))
  prepare('ames-sale-price', 'diamond-price', 'meal-delivery-time')
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** Everything of a run that must not depend on having been killed: costs do (a verdict found again costs nothing). */
function record(run: string): unknown {
  const l = RunLedger.openReadOnly(join(run, 'run.db'))
  try {
    const steps = l.steps().map((s) => s.record)
    const groups = l.groups()
    const attempts = l.attempts().map(({ verdict, shadow, ...a }) => ({
      ...a,
      verdict: { ...verdict, cost: undefined },
      shadow: shadow ? { ...shadow, cost: undefined } : undefined,
    }))
    const coefficients = l.steps().flatMap((s) => l.coefficients(s.step))
    const { totals } = (l.checkpoints()[0]!.state as { run: RunState }).run
    return {
      steps,
      groups,
      attempts,
      coefficients,
      weights: l.checkpoints().map((c) => [c.step, c.weights]),
      // One verdict an executed attempt: none was made twice (that none is asked for twice: src/cli/run-record.test.ts).
      verdicts: l.verdictCount(),
      counts: [
        totals.attemptsExecuted,
        totals.predictions,
        totals.sampledTokens,
        totals.trainedTokens,
        totals.optimiserSteps,
        totals.anchorsWanted,
        totals.anchorsRealised,
      ],
    }
  } finally {
    l.close()
  }
}

/** Starts a run and kills it with SIGKILL `ms` after its start or after its first step, unless it ended before. */
function killed(run: string, from: 'start' | 'first step', ms: number): Promise<'killed' | 'ended'> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [cli, 'train', '--run', run, ...ARGS, '--quiet'], {
      cwd: root,
      stdio: 'ignore',
    })
    let timer: NodeJS.Timeout | undefined
    const arm = (): void => {
      if (from === 'start' || existsSync(join(run, 'metrics.jsonl')))
        timer = setTimeout(() => child.kill('SIGKILL'), ms)
      else timer = setTimeout(arm, 20)
    }
    arm()
    child.once('exit', (_, signal) => {
      clearTimeout(timer)
      resolve(signal === 'SIGKILL' ? 'killed' : 'ended')
    })
  })
}

it.each(['mean', 'sample', 'greedy'])('a run whose predictions are scored by %s is replayed too', (score) => {
  const run = join(dir, `scored-${score}`)
  const more = ['--set', 'train.steps=1', '--set', `prediction.score=${score}`, '--set', 'prediction.draws=3']
  expect(wmrl(['train', '--run', run, ...ARGS, ...more, '--quiet']).status).toBe(0)
  expect(JSON.parse(wmrl(['replay', run, '--json']).stdout)).toMatchObject({ steps: 1, differences: 0 })
  const f = JSON.parse(wmrl(['fidelity', run, '--json']).stdout)
  expect(Object.keys(f)).toContain('spearmanWithinGroup')
})

describe('a run that is killed', () => {
  it(`at ${POINTS} different times and resumed equals an unbroken one bit for bit, and pays nothing twice`, async () => {
    const whole = join(dir, 'whole')
    const t0 = performance.now()
    const first = wmrl(['train', '--run', whole, ...ARGS, '--json', '--quiet'])
    const took = performance.now() - t0
    expect(first.stderr).toBe('')
    expect(first.status).toBe(0)
    const reference = record(whole)
    const steps = readFileSync(join(whole, 'metrics.jsonl'), 'utf8').trim().split('\n')
    const later = steps.slice(1).map((l) => {
      const { rollout, update, commit } = (JSON.parse(l) as { seconds: Record<string, number> }).seconds
      return 1000 * (rollout! + update! + commit!)
    })
    let kills = 0
    let inSteps = 0
    for (let k = 0; k < POINTS; k++) {
      const run = join(dir, `killed-${k}`)
      // A quarter from before the engine is open into the first step; the others at different moments of those after it.
      const early = Math.ceil(POINTS / 4)
      const how =
        k < early
          ? await killed(run, 'start', (0.6 * took * (k + 1)) / early)
          : await killed(
              run,
              'first step',
              (later.reduce((a, b) => a + b, 0) * (k - early)) / Math.max(1, POINTS - early),
            )
      if (how === 'killed') kills++
      if (how === 'killed' && k >= early) inSteps++
      const resume =
        readdirSync(dir).includes(`killed-${k}`) &&
        readdirSync(run).includes('run.db') &&
        readdirSync(run).includes('config.yaml')
      const r = resume
        ? wmrl(['train', '--run', run, '--resume', '--quiet'])
        : wmrl(['train', '--run', run, ...ARGS, '--quiet'])
      expect(r.stderr).toBe('')
      expect(r.status).toBe(0)
      expect(record(run)).toEqual(reference)
      rmSync(run, { recursive: true, force: true })
    }
    expect(kills).toBeGreaterThan(POINTS / 2)
    expect(inSteps).toBeGreaterThan(POINTS / 3)
    const replayed = wmrl(['replay', whole, '--json'])
    expect(JSON.parse(replayed.stdout)).toMatchObject({ steps: 3, differences: 0 })
  }, 1_200_000)

  it('by Ctrl-C saves its state, says how to go on, and exits with 130', async () => {
    const run = join(dir, 'interrupted')
    const child = spawn(process.execPath, [cli, 'train', '--run', run, ...ARGS, '--set', 'train.steps=500'], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let stderr = ''
    child.stderr.on('data', (b: Buffer) => {
      stderr += b.toString()
    })
    const metrics = join(run, 'metrics.jsonl')
    while (!existsSync(metrics) && child.exitCode === null) await new Promise((r) => setTimeout(r, 100))
    child.kill('SIGINT')
    const code = await new Promise((r) => child.once('exit', (c) => r(c)))
    expect(code, stderr).toBe(130)
    expect(stderr).toContain(`--resume --run ${run}`)
    const l = RunLedger.openReadOnly(join(run, 'run.db'))
    expect(l.checkpoints()[0]!.step).toBe(l.steps().length)
    l.close()
  }, 300_000)
})
