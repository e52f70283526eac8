import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentFormat, nanoFormat, type Trajectory } from '../agent/index.ts'
import { type Attempt, NO_COST, rewardOf, type TaskRef } from '../core/index.ts'
import { type OnnxEngine, openOnnxEngine, type Sampler } from '../engine/index.ts'
import { NanoCodec, trainBpe } from '../engine/text/index.ts'
import type { Judge } from '../judge/index.ts'
import { defaultsOf, INITIAL_STATE, type MethodMode } from '../method/index.ts'
import {
  evaluate,
  gather,
  metricsOf,
  planStep,
  type StepInputs,
  type StepOutcome,
  type UpdateReport,
  update,
} from './index.ts'
import { gradedJudges } from './testing.ts'

const TASKS: TaskRef[] = Array.from({ length: 5 }, (_, k) => ({
  suite: 'builtin',
  id: `t${k}`,
  modality: 'tabular',
  split: 'train',
}))
const signal = new AbortController().signal

/**
 * Judges of this file answer from the program's text: the step's arithmetic is under test here, with a real (tiny) engine
 * sampling. Real executions are in tests/resume.test.ts.
 */
const reward = (a: Attempt): number => ((a.action.code ?? '').length % 7) / 10 + 0.1
const { executed, predicted } = gradedJudges(reward)

let engine: OnnxEngine
let codec: NanoCodec
let dir: string
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-train-'))
  codec = new NanoCodec(trainBpe(['import x\n', 'y = 1\n'], { vocab: 320, maxLength: 20, minFrequency: 1 }))
  engine = await openOnnxEngine({
    backbone: { config: { layers: 1, dModel: 16, heads: 2, vocab: codec.vocab, context: 64, logitScale: 1 }, seed: 1 },
    checkpointDir: dir,
    threads: 1,
  })
})
afterAll(async () => {
  await engine?.[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true, force: true })
})

const inputs = (mode: MethodMode, more: Partial<StepInputs> = {}): StepInputs => ({
  seed: 3,
  step: 1,
  tasks: TASKS,
  groups: 4,
  groupSize: 3,
  turns: 2,
  method: defaultsOf(mode),
  state: INITIAL_STATE,
  executed: executed(),
  predicted,
  format: nanoFormat(codec, async () => ({ text: 'brief\n', names: [] }), { action: 12, observation: 6 }),
  ...more,
})

describe('choosing', () => {
  it('takes every task once a round', () => {
    const seen: string[] = []
    for (let step = 1; step <= 5; step++)
      seen.push(...planStep(inputs('recommended', { step })).plans.map((p) => p.task.id))
    for (let round = 0; round < 4; round++) expect(new Set(seen.slice(round * 5, round * 5 + 5)).size).toBe(5)
  })
  it('executes one group of four by default, all or none where the mode says so', () => {
    expect(planStep(inputs('recommended')).anchors.filter(Boolean).length).toBe(1)
    expect(planStep(inputs('executed-only')).anchors.every(Boolean)).toBe(true)
    expect(planStep(inputs('predicted-only')).anchors.some(Boolean)).toBe(false)
    expect(planStep(inputs('anchors-only')).plans.length).toBe(1)
  })
})

describe('a step', () => {
  it('keeps tokens as the record: prompts and observations unmasked, every action masked, log-probabilities as sampled', async () => {
    await using model = await engine.open('frozen', signal)
    await using sampler = await model.snapshot(signal)
    const o = await gather(inputs('recommended'), sampler, signal)
    expect(o.trajectories.length).toBe(12)
    const lp = await sampler.logprobs(
      o.trajectories.map((t) => t.tokens),
      signal,
    )
    o.trajectories.forEach((t: Trajectory, k) => {
      expect(t.mask.length).toBe(t.tokens.length)
      expect(t.mask[0]).toBe(0)
      t.mask.forEach((m, i) => {
        if (m === 1) expect(Math.abs(t.logprobs[i]! - lp[k]![i]!)).toBeLessThan(1e-4)
        else expect(t.logprobs[i]).toBe(0)
      })
    })
  })

  it('pairs executed and predicted on anchors, and predicts the rest', async () => {
    const o = await gather(inputs('recommended'), await engine.frozen(signal), signal)
    o.evidence.forEach((e, g) => {
      expect(e.anchor).toBe(o.anchors[g])
      expect(e.executed !== undefined).toBe(e.anchor)
    })
    expect(o.result.pairsAdded).toBe(3)
  })

  it('takes an unscorable trajectory out of its group before the mean (failures row 2)', async () => {
    let first: string | undefined
    const judge = executed((a) => {
      first ??= a.id.split('/').slice(0, -1).join('/')
      return a.id.startsWith(`${first}/`)
    })
    const o = await gather(inputs('executed-only', { executed: judge }), await engine.frozen(signal), signal)
    const lost = o.trajectories.filter((t) => t.unscorable)
    expect(lost.length).toBe(1)
    expect(o.evidence[lost[0]!.group]!.executed![lost[0]!.index]).toBeNull()
    expect(o.data.length).toBe(11)
    for (const d of o.data) expect(Number.isFinite(d.datum.advantage)).toBe(true)
  })

  it('a prompt that cannot be made fails its group’s members, an action that cannot be read only its own (row 17)', async () => {
    const i = inputs('executed-only', { turns: 1 })
    const { plans } = planStep(i)
    const without = plans[0]!.task.id
    let read = 0
    const format: AgentFormat = {
      ...i.format,
      prompt: (t) => (t.id === without ? Promise.reject(new Error('no card')) : i.format.prompt(t)),
      parse: (t, tokens, complete) =>
        ++read === 2 ? Promise.reject(new Error('no text')) : i.format.parse(t, tokens, complete),
    }
    const o = await gather({ ...i, format }, await engine.frozen(signal), signal)
    const lost = o.trajectories.filter((t) => t.unscorable)
    const group = plans.filter((p) => p.task.id === without).length * 3
    expect(lost.length).toBe(group + 1)
    expect(lost.map((t) => t.unscorable!.detail).sort()).toEqual([
      ...Array(group).fill(`no prompt for builtin/${without}: no card`),
      'no text',
    ])
    expect(lost.every((t) => t.ended === 'failed' && t.turns.length === 0)).toBe(true)
    expect(o.result.groups.filter((g) => g.skipped).length).toBe(group / 3)
    // An evaluation counts what it could not score.
    const turns = await evaluate(
      await engine.frozen(signal),
      { tasks: TASKS.slice(0, 2), samples: 2, turns: 1, seed: 1, format, executed: i.executed, final: false, key: 'x' },
      signal,
    )
    expect(turns.length).toBe(4)
    expect(turns.filter((t) => 'unscorable' in t.feedback).length).toBe(without < 't2' ? 2 : 0)
  })
  it('an evaluation shows the agent what the feedback rows said, never the final ones (failures row 52)', async () => {
    const seen: string[] = []
    const plain = inputs('executed-only').format
    const format: AgentFormat = {
      ...plain,
      observe: async (task, observation, last) => {
        seen.push(observation.text)
        return plain.observe(task, observation, last)
      },
    }
    const scopes: string[] = []
    const judge: Judge = {
      ...executed(),
      judge: (attempts) =>
        attempts.map(async (a) => {
          scopes.push(a.scope)
          const outcome = {
            kind: 'graded',
            score: 1,
            percentile: a.scope === 'final' ? 0.875 : 0.25,
            scope: a.scope,
          } as const
          const observation = { text: `better than ${outcome.percentile}` }
          return { source: 'executed' as const, outcome, score: rewardOf(outcome), observation, cost: NO_COST }
        }),
    }
    const turns = await evaluate(
      await engine.frozen(signal),
      { tasks: TASKS.slice(0, 2), samples: 2, turns: 3, seed: 1, format, executed: judge, final: true, key: 'x' },
      signal,
    )
    expect(turns.every((t) => t.final && !('unscorable' in t.final) && t.final.score === 0.9375)).toBe(true)
    expect(new Set(seen)).toEqual(new Set(['better than 0.25']))
    // One observation a trajectory at least; the context may end it there.
    expect(seen.length).toBeGreaterThanOrEqual(4)
    // All of the roll-out is over before a final row is read.
    expect(scopes.lastIndexOf('feedback')).toBeLessThan(scopes.indexOf('final'))
  })

  it('takes no optimiser step without a usable group, and says why (failures row 18)', async () => {
    await using model = await engine.open('frozen', signal)
    const o = await gather(
      inputs('executed-only', { executed: executed(() => true) }),
      await engine.frozen(signal),
      signal,
    )
    const u = await update(
      o,
      model,
      await engine.frozen(signal),
      { loss: { kind: 'importance_sampling' }, learningRate: 1e-3, gradClip: 1, groupSize: 3 },
      signal,
    )
    expect(u.none).toBe('no-usable-group')
    await using after = await model.snapshot(signal)
    expect(after.version).toBe((await engine.frozen(signal)).version)
  })

  it('takes no optimiser step on a loss that is not finite, and names step and loss', async () => {
    await using model = await engine.open('frozen', signal)
    const frozen = await engine.frozen(signal)
    const o = await gather(inputs('executed-only', { step: 7, turns: 1 }), frozen, signal)
    // As if sampled by weights that gave these tokens no chance: the ratio overflows.
    const data = o.data.map((d, k) => ({
      ...d,
      datum: { ...d.datum, advantage: k % 2 === 0 ? 1 : -1, logprobs: d.datum.mask.map((m) => -1000 * m) },
    }))
    const u = update(
      { ...o, data },
      model,
      frozen,
      { loss: { kind: 'importance_sampling' }, learningRate: 1e-3, gradClip: 1, groupSize: 3 },
      signal,
    )
    await expect(u).rejects.toThrow(/step 7: the loss is (NaN|-?Infinity)/)
    await using after = await model.snapshot(signal)
    expect(after.version).toBe(frozen.version)
  })
  it('moves the weights, and the ratio is 1 before the first update', async () => {
    await using model = await engine.open('frozen', signal)
    const frozen = await engine.frozen(signal)
    const o = await gather(inputs('executed-only', { turns: 1 }), frozen, signal)
    const u = await update(
      o,
      model,
      frozen,
      {
        loss: { kind: 'ppo', clipLow: 0.2, clipHigh: 0.28, kl: 0.01, entropyBonus: 0.001 },
        learningRate: 1e-3,
        gradClip: 1,
        groupSize: 3,
      },
      signal,
    )
    expect(u.step?.applied).toBe(true)
    o.data.forEach((d, k) => {
      d.datum.mask.forEach((m, i) => {
        if (m === 1) expect(Math.abs(Math.exp(u.loss!.logprobs[k]![i]! - d.datum.logprobs![i]!) - 1)).toBeLessThan(1e-4)
      })
    })
    await using after = await model.snapshot(signal)
    expect(after.version).not.toBe(frozen.version)
  })

  const metrics = (o: StepOutcome, u: UpdateReport) =>
    metricsOf(o, u, {
      step: 1,
      seconds: { rollout: 0, update: 0, commit: 0 },
      loopLagMs: 0,
      dev: undefined,
      divergence: 0.02,
      lengthScore: 3,
    })

  it('tells spread within groups from spread across them (failures row 7)', async () => {
    const o = await gather(inputs('executed-only', { turns: 1 }), await engine.frozen(signal), signal)
    const two = [0, 1].map((r) => ({ anchor: true, predicted: [null, null, null], executed: [r, r, r] }))
    const m = metrics(
      { ...o, evidence: two, result: { ...o.result, groups: o.result.groups.slice(0, 2) } },
      { loss: undefined, step: undefined, none: 'no-differences' },
    )
    expect([m.rewardStdWithin, m.rewardStdAcross]).toEqual([0, 0.5])
  })

  it('an action without a token teaches nothing and still counts in its group’s mean (failures row 10)', async () => {
    const frozen = await engine.frozen(signal)
    const mute: Sampler = {
      version: frozen.version,
      limits: frozen.limits,
      sample: (requests, s) =>
        frozen.sample(requests, s).map(async (r) => {
          const { sequences, ...rest } = await r
          return {
            ...rest,
            sequences: sequences.map((q, i) =>
              i === 0 ? { ...q, tokens: [], logprobs: [], stopReason: 'stop' as const } : q,
            ),
          }
        }),
      logprobs: (x, s) => frozen.logprobs(x, s),
    }
    const o = await gather(inputs('executed-only', { turns: 1 }), mute, signal)
    o.evidence.forEach((e, g) => {
      expect(e.executed!.every((r) => r !== null)).toBe(true)
      const a = o.result.groups[g]!.advantages!
      const mean = e.executed!.reduce((p: number, r) => p + r!, 0) / 3
      expect(a[1]).toBeCloseTo(e.executed![1]! - mean, 12)
      const taught = o.data.filter((d) => d.trajectory.group === g).map((d) => d.trajectory.index)
      expect(taught).toEqual([1, 2])
    })
  })

  it('tells the divergence apart from the loss, where all rewards of a group are equal too (failures row 6)', async () => {
    await using model = await engine.open('frozen', signal)
    const frozen = await engine.frozen(signal)
    const o = await gather(inputs('executed-only', { turns: 1 }), frozen, signal)
    const by = (kl: number, learningRate: number) => ({
      loss: { kind: 'importance_sampling' as const, kl },
      learningRate,
      gradClip: 1,
      groupSize: 3,
    })
    const first = await update(o, model, frozen, by(0.1, 0.05), signal)
    expect(first.kl!.perToken).toBeCloseTo(0, 6)
    await using moved = await model.snapshot(signal)
    // Every program is as good as every other: nothing but the divergence is left to learn from.
    const equal: Judge = {
      ...executed(),
      judge: (a, s) =>
        executed().judge(
          a.map((x) => ({ ...x, action: { code: 'x' } })),
          s,
        ),
    }
    const tied = await gather(inputs('executed-only', { turns: 1, step: 2, executed: equal }), moved, signal)
    expect(tied.result.groups.every((g) => g.tied)).toBe(true)
    const u = await update(tied, model, frozen, by(0.1, 0), signal)
    const m = metrics(tied, u)
    expect(m.klTerm).toBeGreaterThan(1e-4)
    expect(m.loss).toBeCloseTo(m.klTerm!, 5)
    const tokens = tied.data.reduce((n, d) => n + d.datum.mask.reduce((a, b) => a + b, 0), 0)
    expect(m.klFrozen! * tokens * (0.1 / 12)).toBeCloseTo(m.klTerm!, 9)
    const off = metrics(tied, await update(tied, model, frozen, by(0, 0), signal))
    expect(off).toMatchObject({ noUpdate: 'no-differences', klTerm: null, klFrozen: null })
  })

  it('counts distinct corrected values a group, so that a plateau of the map is seen (failures row 59)', async () => {
    const frozen = await engine.frozen(signal)
    const distinct = async (values: readonly [number, number]): Promise<number | null> => {
      const map = { version: 1, knots: [0, 1], values, weights: [1, 1] }
      const o = await gather(inputs('recommended', { turns: 1, state: { ...INITIAL_STATE, map } }), frozen, signal)
      return metrics(o, { loss: undefined, step: undefined, none: 'no-differences' }).distinctCorrected
    }
    expect(await distinct([0.5, 0.5])).toBe(1)
    expect(await distinct([0, 1])).toBeGreaterThan(1)
  })

  it('samples a trajectory by its own key: other groups do not change it', async () => {
    const frozen = await engine.frozen(signal)
    const a = await gather(inputs('executed-only', { turns: 1 }), frozen, signal)
    const b = await gather(inputs('executed-only', { turns: 1, groups: 2 }), frozen, signal)
    const key = (t: Trajectory): string => `${t.group}/${t.index}`
    for (const t of b.trajectories) {
      const twin = a.trajectories.find((x) => key(x) === key(t))!
      expect(twin.task).toEqual(t.task)
      expect(twin.tokens).toEqual(t.tokens)
    }
  })
})
