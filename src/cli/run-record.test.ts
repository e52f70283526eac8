import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nanoFormat } from '../agent/index.ts'
import { type Attempt, type Belief, expectedReward, keyed, NO_COST, type TaskRef, waits } from '../core/index.ts'
import { openOnnxEngine } from '../engine/index.ts'
import { NanoCodec, trainBpe } from '../engine/text/index.ts'
import { type Judge, storedJudge } from '../judge/index.ts'
import { RunLedger, Sqlite } from '../ledger/index.ts'
import { type ReplayReport, replay } from '../report/index.ts'
import { type LoopDeps, type LoopReport, methodOf, runConfig, type StepMetrics, trainLoop } from '../train/index.ts'
import { gradedJudges } from '../train/testing.ts'
import { checkpointDir, runRecord, savedConfig, savedRuns, sweepCheckpoints } from './run-record.ts'
import { lockRun, makeRunDir } from './runtime.ts'

const TASKS: TaskRef[] = [0, 1].map((k) => ({ suite: 'builtin', id: `t${k}`, modality: 'tabular', split: 'train' }))
const reward = (a: Attempt): number => keyed(a.id).next()
/** Both answer from the attempt's id; the loop, the ledger and a real (tiny) engine are under test. */
const { executed, predicted } = gradedJudges(reward)
const codec = new NanoCodec(trainBpe(['import x\n', 'y = 1\n'], { vocab: 320, maxLength: 20, minFrequency: 1 }))

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-record-'))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const configOf = (steps: number, more: object = {}) =>
  runConfig.parse({
    seed: 3,
    train: { steps, groups: 2, groupSize: 4, turns: 1, checkpointEvery: 1, learningRate: 1e-3 },
    method: { anchors: { share: 0.5 } },
    ...more,
  })

const watched = (inner: Judge, asked: string[]): Judge => ({
  ...inner,
  judge(attempts, signal) {
    asked.push(...attempts.map((a) => a.id))
    return inner.judge(attempts, signal)
  },
})

interface Options {
  readonly config?: object
  readonly broken?: (a: Attempt) => boolean
  readonly signal?: AbortSignal
  readonly deps?: Partial<LoopDeps>
  readonly log?: string[]
  /** Ids of the attempts that were not found in the ledger. */
  readonly asked?: string[]
}
async function train(run: string, steps: number, o: Options = {}): Promise<LoopReport> {
  makeRunDir(run)
  const signal = o.signal ?? new AbortController().signal
  const ledger = RunLedger.open(join(run, 'run.db'))
  const config = configOf(steps, o.config)
  try {
    sweepCheckpoints(ledger, run)
    await using engine = await openOnnxEngine({
      backbone: {
        config: { layers: 1, dModel: 16, heads: 2, vocab: codec.vocab, context: 64, logitScale: 1 },
        seed: 1,
      },
      checkpointDir: checkpointDir(run),
      threads: 1,
    })
    return await trainLoop(
      {
        config,
        runDir: run,
        engine,
        frozen: await engine.frozen(signal),
        tasks: TASKS,
        executed: o.asked ? storedJudge(watched(executed(o.broken), o.asked), ledger) : executed(o.broken),
        predicted,
        format: nanoFormat(codec, async () => ({ text: 'brief\n', names: [] }), { action: 12, observation: 6 }),
        record: runRecord(ledger, run, config),
        now: () => performance.now(),
        log: (line) => o.log?.push(line),
        ...o.deps,
      },
      signal,
    )
  } finally {
    ledger.close()
  }
}

function inspect<T>(run: string, f: (l: RunLedger) => T): T {
  const l = RunLedger.openReadOnly(join(run, 'run.db'))
  try {
    return f(l)
  } finally {
    l.close()
  }
}
/** Everything of a run's steps and the newest weights, without costs and times. */
const recordOf = (run: string): unknown =>
  inspect(run, (l) => ({
    steps: l.steps(),
    groups: l.groups(),
    coefficients: l.steps().flatMap((s) => l.coefficients(s.step)),
    weights: l.checkpoints().map((c) => [c.step, c.weights]),
  }))
const lines = (run: string): number[] =>
  readFileSync(join(run, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((l) => (JSON.parse(l) as StepMetrics).step)
const weightsIn = (run: string): string[] => readdirSync(checkpointDir(run)).filter((f) => f.endsWith('.safetensors'))
/** One member of each executed group of step 2. */
const inStep2 = (a: Attempt): boolean => /^3\/step\/2\/\d+\/[01]\//.test(a.id)

describe('a run that an alarm stops', () => {
  it('saves the step that stopped it, and goes on with the next one', async () => {
    const whole = join(dir, 'whole')
    const free = { alarm: { unscorableShare: 1 } }
    await train(whole, 3, { broken: inStep2, config: free })
    const run = join(dir, 'alarmed')
    const stopped = await train(run, 3, { broken: inStep2, config: { alarm: { unscorableShare: 0.2 } } })
    expect(stopped).toMatchObject({ steps: 2, stoppedBy: 'unscorable' })
    expect(stopped.alarm).toMatch(/step 2: 25 % of trajectories are unscorable \(infra 2; first: planted\)/)
    expect(inspect(run, (l) => [l.steps().length, l.checkpoints().map((c) => c.step)])).toEqual([2, [2, 1]])
    const seen: number[] = []
    const on = await train(run, 3, { broken: inStep2, config: free, deps: { onStep: (m) => seen.push(m.step) } })
    expect(seen).toEqual([3])
    expect(on).toMatchObject({ steps: 3, stoppedBy: 'steps' })
    // No update was taken twice, none left out.
    expect(recordOf(run)).toEqual(recordOf(whole))
    expect(on.totals.optimiserSteps).toBe(3)
    expect(on.totals.executions).toBe(12 - 2)
  }, 120_000)

  it('and what is interrupted between update and record leaves the checkpoint before it', async () => {
    const run = join(dir, 'unrecorded')
    const abort = new AbortController()
    const t = train(run, 3, {
      signal: abort.signal,
      deps: {
        onStep(m) {
          if (m.step < 2) return
          abort.abort(new Error('interrupted'))
          throw new Error('no room')
        },
      },
    })
    await expect(t).rejects.toThrow('no room')
    expect(inspect(run, (l) => l.checkpoints().map((c) => c.step))).toEqual([1])
    await train(run, 3)
    const other = join(dir, 'recorded')
    await train(other, 3)
    expect(recordOf(run)).toEqual(recordOf(other))
    expect(lines(run)).toEqual([1, 2, 3])
  }, 120_000)
})

describe('a run stops', () => {
  it('where too few of the wanted anchors were really executed (invariant 8)', async () => {
    const run = join(dir, 'no-anchors')
    const config = { alarm: { unscorableShare: 1, anchorFloor: 0.5 } }
    const t = await train(run, 9, { broken: () => true, config })
    expect(t).toMatchObject({ steps: 5, stoppedBy: 'anchors' })
    expect(t.alarm).toMatch(/step 5: 0 of 5 wanted anchors were really executed; limit alarm\.anchorFloor = 0\.5/)
    expect(inspect(run, (l) => l.checkpoints()[0]!.step)).toBe(5)
  }, 120_000)

  it.each([
    ['executions', { executions: 5 }],
    ['sandboxS', { sandboxS: 3.5 }],
  ] as const)(
    'when its budget of %s is used up, with the step that used it saved',
    async (by, budget) => {
      const run = join(dir, `budget-${by}`)
      const costly: Judge = {
        ...executed(),
        judge: (a, s) =>
          executed()
            .judge(a, s)
            .map(async (v) => ({ ...(await v), cost: { ...NO_COST, executions: 1, sandboxCpuS: 0.5 } })),
      }
      const t = await train(run, 9, { config: { budget }, deps: { executed: costly } })
      // Four executions and two seconds a step.
      expect(t).toMatchObject({ steps: 2, stoppedBy: by, totals: { executions: 8, sandboxCpuS: 4 } })
      expect(inspect(run, (l) => l.checkpoints()[0]!.step)).toBe(2)
    },
    120_000,
  )
})

describe('executions', () => {
  it('that were paid for before a run was broken off are not paid for again', async () => {
    const whole = join(dir, 'unbroken')
    const all: string[] = []
    await train(whole, 3, { asked: all })
    expect(all.length).toBe(12)
    const run = join(dir, 'broken-off')
    const before: string[] = []
    const abort = new AbortController()
    // Broken off in step 2, when half of its verdicts are there.
    const cut = (a: Attempt): boolean => {
      if (!/^3\/step\/2\/\d+\/[23]\//.test(a.id)) return false
      abort.abort(new Error('interrupted'))
      return true
    }
    const t = await train(run, 3, { asked: before, broken: cut, signal: abort.signal })
    expect(t).toMatchObject({ steps: 1, stoppedBy: 'interrupted' })
    const after: string[] = []
    const on = await train(run, 3, { asked: after })
    // Once each, but for the two without a verdict.
    expect(after.filter((id) => before.includes(id)).length).toBe(2)
    expect([...new Set([...before, ...after])].sort()).toEqual([...all].sort())
    expect(on.totals.executions).toBe(12)
    expect(recordOf(run)).toEqual(recordOf(whole))
  }, 120_000)
})

describe('checkpoints', () => {
  it('are found where the run is, wherever it was moved', async () => {
    const run = join(dir, 'moved-from')
    await train(run, 2)
    expect(inspect(run, (l) => l.checkpoints().every((c) => /^checkpoints\/\w+\.safetensors$/.test(c.location)))).toBe(
      true,
    )
    const to = join(dir, 'moved-to')
    renameSync(run, to)
    const seen: number[] = []
    await train(to, 3, { deps: { onStep: (m) => seen.push(m.step) } })
    expect(seen).toEqual([3])
    expect(existsSync(run)).toBe(false)
    expect(weightsIn(to).length).toBe(2)
  }, 120_000)

  it('give way to the one before where the newest is cut or gone, and say so', async () => {
    const whole = join(dir, 'sound')
    await train(whole, 4)
    for (const damage of [(f: string) => truncateSync(f, 1000), (f: string) => rmSync(f)]) {
      const run = join(dir, `damaged-${damage.length}${Math.round(performance.now())}`)
      const t = await train(run, 3)
      damage(t.checkpoint!.location)
      const log: string[] = []
      const seen: number[] = []
      await train(run, 4, { log, deps: { onStep: (m) => seen.push(m.step) } })
      expect(seen).toEqual([3, 4])
      expect(log.join('\n')).toMatch(/checkpoint of step 3: .*safetensors[\s\S]*going on from step 2/)
      expect(recordOf(run)).toEqual(recordOf(whole))
      expect(lines(run)).toEqual([1, 2, 3, 4])
    }
  }, 120_000)

  it('of which none opens end the run: it is not begun again by stealth', async () => {
    const run = join(dir, 'lost')
    await train(run, 2)
    for (const f of weightsIn(run)) rmSync(join(checkpointDir(run), f))
    await expect(train(run, 3)).rejects.toThrow(/none of 2 checkpoints opens .*--run/)
    expect(inspect(run, (l) => l.steps().length)).toBe(2)
  }, 120_000)

  it('that no row names are removed at start; other files stay', async () => {
    const run = join(dir, 'swept')
    await train(run, 1)
    const named = weightsIn(run)
    for (const f of ['0a.safetensors', '0b.safetensors.1.tmp', 'text.json'])
      writeFileSync(join(checkpointDir(run), f), 'x')
    await train(run, 1)
    expect(readdirSync(checkpointDir(run)).sort()).toEqual([...named, 'text.json'].sort())
  }, 120_000)

  it('of an earlier version open: absolute paths, no configuration, fewer totals', async () => {
    const run = join(dir, 'earlier')
    await train(run, 2)
    const l = RunLedger.open(join(run, 'run.db'))
    for (const c of l.checkpoints()) {
      const { run: state, name } = c.state as { run: { totals: Record<string, number> }; name: string }
      const { wallS: _w, anchorsWanted: _a, devExecutions: _d, ...totals } = state.totals
      l.commitCheckpoint({ ...c, location: join(run, c.location), state: { name, run: { ...state, totals } } })
    }
    expect(savedConfig(l)).toBeUndefined()
    l.close()
    const t = await train(run, 3)
    expect(t.steps).toBe(3)
    expect(t.totals.anchorsWanted).toBe(1)
    expect(inspect(run, (x) => [savedConfig(x)?.seed, savedRuns(x, run).length])).toEqual([3, 2])
    expect(weightsIn(run).length).toBe(2)
  }, 120_000)
})

describe('what is counted over a resume', () => {
  it('anchors, wall time and dev evaluations are those of the whole run; dev is measured on the final weights', async () => {
    const run = join(dir, 'counted')
    const asked: [number, string][] = []
    let now = 0
    const deps: Partial<LoopDeps> = {
      now: () => (now += 1000),
      evaluateDev: async (sampler, step) => {
        asked.push([step, sampler.version])
        return { score: step / 10, executions: 2, sandboxCpuS: 1 }
      },
    }
    const config = { train: { ...configOf(0).train, steps: 2, evalEvery: 1 } }
    const first = await train(run, 2, { deps, config })
    expect(asked.map(([s]) => s)).toEqual([0, 1, 3])
    expect(asked[2]![1]).toBe(first.checkpoint!.version)
    expect(first.dev).toEqual({ before: 0, after: 0.3 })
    expect(first.anchorShare).toBe(0.5)
    expect(first.totals).toMatchObject({
      anchorsWanted: 2,
      anchorsRealised: 2,
      devExecutions: 6,
      devSandboxCpuS: 3,
      devWallS: 3,
    })
    const longer = { train: { ...config.train, steps: 3 } }
    const on = await train(run, 3, { deps, config: longer })
    expect(asked.slice(3).map(([s]) => s)).toEqual([4])
    expect(on.dev).toEqual({ before: 0, after: 0.4 })
    expect(on.anchorShare).toBe(0.5)
    expect(on.totals).toMatchObject({ anchorsWanted: 3, devExecutions: 8 })
    expect(on.totals.wallS).toBeGreaterThan(first.totals.wallS)
    expect(on.totals.policyCpuS).toBeGreaterThan(first.totals.policyCpuS)
    // The wall budget counts what earlier processes took.
    const out = await train(run, 9, {
      deps,
      config: { train: { ...config.train, steps: 9 }, budget: { wallS: on.totals.wallS } },
    })
    expect(out).toMatchObject({ steps: 3, stoppedBy: 'wallS' })
  }, 120_000)
})

describe('a step’s line', () => {
  it('tells how long the event loop was blocked, and a wait over its ceiling what else is pending (failures row 31)', async () => {
    const run = join(dir, 'blocked')
    const log: string[] = []
    let stuck: Promise<void> | undefined
    const onStep = (m: StepMetrics): void => {
      if (m.step !== 1) return
      stuck = waits.during('a stuck thing', 1, () => new Promise((r) => setTimeout(r, 2_000)))
      const until = performance.now() + 1_500
      while (performance.now() < until);
    }
    await train(run, 2, { log, deps: { onStep } })
    const lags = readFileSync(join(run, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((l) => (JSON.parse(l) as StepMetrics).loopLagMs)
    expect(lags[1]).toBeGreaterThanOrEqual(1_400)
    // A time, and no part of what a resumed run must repeat.
    expect(inspect(run, (l) => l.steps().every((s) => !('loopLagMs' in (s.record as object))))).toBe(true)
    expect(log.filter((l) => l.startsWith('watchdog: a stuck thing has waited '))).toHaveLength(1)
    expect(log.join()).toMatch(/its ceiling; pending: a stuck thing/)
    await stuck
  }, 120_000)
})

describe('replay', () => {
  it('finds any number that was changed, or left out, or added', async () => {
    const run = join(dir, 'replayed')
    await train(run, 3, { broken: inStep2, config: { alarm: { unscorableShare: 1 } } })
    const again = async (db: string): Promise<ReplayReport> => {
      const l = RunLedger.openReadOnly(db)
      try {
        const predictedScore = async (b: Belief): Promise<number> => expectedReward(b).mean
        return await replay(l, methodOf(configOf(3)), { predictedScore, seed: 3 })
      } finally {
        l.close()
      }
    }
    expect(await again(join(run, 'run.db'))).toMatchObject({ steps: 3, differences: 0 })
    const executedGroup = `(SELECT grp FROM groups WHERE step = 2 AND anchor = 1)`
    for (const [sql, where] of [
      ['UPDATE trajectories SET coefficient = NULL WHERE step = 1 AND grp = 0 AND traj = 1', 'step 1 coefficient 0/1'],
      [
        `UPDATE trajectories SET coefficient = 0.5 WHERE step = 2 AND grp = ${executedGroup} AND traj = 0`,
        'step 2 coeff',
      ],
      [`UPDATE groups SET advantages = NULL WHERE step = 3 AND grp = 1`, 'step 3 group 1 advantage 0'],
      [`UPDATE steps SET record = json_set(record, '$.mapVersion', 9) WHERE step = 2`, 'step 2 map version'],
      [`UPDATE steps SET record = json_set(record, '$.rho', 2) WHERE step = 2`, 'step 2 anchor weight'],
      [`UPDATE attempts SET verdict = json_set(verdict, '$.score', 0.3) WHERE step = 3`, 'step 3 attempt 0/0/0 score'],
      ['DELETE FROM trajectories WHERE step = 1 AND traj = 3', 'step 1 group 0 trajectories'],
    ] as const) {
      const copy = mkdtempSync(join(dir, 'changed-'))
      cpSync(run, copy, { recursive: true })
      const path = join(copy, 'run.db')
      const db = Sqlite.open(path)
      db.run(sql)
      db.close()
      const r = await again(path)
      expect(r.differences, sql).toBeGreaterThan(0)
      expect(r.first, sql).toContain(where)
    }
  }, 120_000)
})

describe('a run’s folder', () => {
  it('is one process’s at a time; a lock whose process is gone is taken over', () => {
    const run = makeRunDir(join(dir, 'locked'))
    {
      using _lock = lockRun(run)
      expect(() => lockRun(run)).toThrow(new RegExp(`process ${process.pid} is working on`))
    }
    for (const stale of [
      JSON.stringify({ pid: 2 ** 22 + 1, started: '5' }),
      `{"pid":${process.pid},"started":"1"}`,
      '',
    ]) {
      writeFileSync(join(run, 'run.lock'), stale)
      using _lock = lockRun(run)
      expect(() => lockRun(run)).toThrow(/is working on/)
    }
    expect(readdirSync(run)).toEqual(['checkpoints'])
  })
})
