import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { keyed, type Random } from '../core/index.ts'
import { groupAdvantages } from './advantages.ts'
import { IDENTITY } from './calibration.ts'
import { defaultsOf, METHOD_MODES, type MethodConfig } from './config.ts'
import { fusionFactors } from './fusion.ts'
import { correct, type GroupEvidence, INITIAL_STATE, type MethodState, type StepResult } from './step.ts'

const G = 4
const B = 8
/** One step's evidence: group 0 is the anchor; the prediction is the truth, shrunk and noisy. */
function evidence(r: Random, opts: { anchors?: number; bias?: (x: number) => number } = {}): GroupEvidence[] {
  return Array.from({ length: B }, (_, b) => {
    const truth = Array.from({ length: G }, () => r.next())
    const guess = truth.map((x) => Math.min(1, Math.max(0, (opts.bias ?? ((v) => v))(x) + 0.1 * (r.next() - 0.5))))
    return b < (opts.anchors ?? 1)
      ? { anchor: true, predicted: guess, executed: truth }
      : { anchor: false, predicted: guess }
  })
}
function run(config: MethodConfig, steps: number, seed: string, bias?: (x: number) => number): StepResult[] {
  let state = INITIAL_STATE
  return Array.from({ length: steps }, (_, k) => {
    const s = correct(config, state, evidence(keyed(seed, k), bias ? { bias } : {}))
    state = s.state
    return s
  })
}
const advantages = (s: StepResult) => s.groups.map((g) => g.advantages)
const of = (mode: MethodConfig['mode'], change: Partial<MethodConfig> = {}): MethodConfig => ({
  ...defaultsOf(mode),
  ...change,
})

test('every mode gives finite advantages that sum to 0 within a group, the same each time', () => {
  for (const mode of METHOD_MODES) {
    const a = run(of(mode), 40, 'modes')
    expect(run(of(mode), 40, 'modes')).toEqual(a)
    for (const s of a)
      for (const g of s.groups) {
        if (!g.advantages) continue
        const x = g.advantages.filter((v): v is number => v !== null)
        expect(x.every(Number.isFinite)).toBe(true)
        expect(Math.abs(x.reduce((p, q) => p + q, 0))).toBeLessThan(1e-9)
      }
  }
})

test('the constants of a group’s arithmetic are the configuration’s', () => {
  const groups: GroupEvidence[] = [{ anchor: false, predicted: [0.2, 0.3, 0.4] }]
  const of1 = (change: Partial<MethodConfig>): StepResult =>
    correct(of('predicted-only', { advantage: 'std', ...change }), INITIAL_STATE, groups)
  const std = Math.sqrt(0.02 / 3)
  expect(of1({}).groups[0]!.advantages![2]).toBeCloseTo(0.1 / (std + 1e-4), 12)
  expect(of1({ stdEpsilon: 0.5 }).groups[0]!.advantages![2]).toBeCloseTo(0.1 / (std + 0.5), 12)
  expect(of1({}).groups[0]!.tied).toBe(false)
  expect(of1({ tie: 0.3 }).groups[0]).toMatchObject({ tied: true, advantages: [0, 0, 0] })
  // Two anchors, the first in order, the second inverted: how much of the first is kept, the key says.
  const anchors = [
    [0.1, 0.5, 0.9],
    [0.9, 0.5, 0.1],
  ].map((executed): GroupEvidence => ({ anchor: true, predicted: [0.1, 0.5, 0.9], executed }))
  const kept = (reliabilityBeta: number): number =>
    correct(of('recommended', { alarms: { ...of('recommended').alarms, reliabilityBeta } }), INITIAL_STATE, anchors)
      .signedR2
  expect(kept(1)).toBeCloseTo(1, 12)
  expect(kept(0)).toBeCloseTo(-1, 12)
  expect(kept(0.95)).toBeCloseTo(0.9 ** 2, 12)
})

describe('the recommended mode', () => {
  const identity = of('recommended', { calibration: { ...defaultsOf('recommended').calibration, kind: 'identity' } })
  test('identity calibration is no correction, bit for bit, and a fitted map is not', () => {
    const off = run(identity, 60, 'identity', (x) => 0.5 + 0.4 * x)
    // By hand: predicted advantages plus lambda B/n of the difference, no map anywhere.
    off.forEach((s, k) => {
      const groups = evidence(keyed('identity', k), { bias: (x) => 0.5 + 0.4 * x })
      expect(s.mapVersion).toBe(0)
      groups.forEach((g, b) => {
        const w = groupAdvantages(g.predicted, 'center')!
        const e = g.executed ? groupAdvantages(g.executed, 'center')! : undefined
        const want = w.map((v, i) => (e ? v! + ((0.5 * B) / 1) * (e[i]! - v!) : v!))
        expect(s.groups[b]!.corrected).toEqual(g.predicted)
        want.forEach((v, i) => {
          expect(Object.is(s.groups[b]!.advantages![i], v)).toBe(true)
        })
      })
    })
    const on = run(of('recommended'), 60, 'identity', (x) => 0.5 + 0.4 * x)
    expect(on.at(-1)!.mapVersion).toBeGreaterThan(0)
    expect(advantages(on.at(-1)!)).not.toEqual(advantages(off.at(-1)!))
  })
  test('a right prediction needs no correction; lambda 0 is the world model alone', () => {
    const right = evidence(keyed('right')).map((g) => (g.executed ? { ...g, predicted: g.executed } : g))
    const s = correct(identity, INITIAL_STATE, right)
    right.forEach((g, b) => {
      expect(s.groups[b]!.advantages).toEqual(groupAdvantages(g.predicted, 'center'))
    })
    const none = correct({ ...identity, lambda: 0 }, INITIAL_STATE, evidence(keyed('none')))
    expect(none.groups[0]!.advantages).toEqual(groupAdvantages(evidence(keyed('none'))[0]!.predicted, 'center'))
  })
  test('with every group executed and lambda 1 the prediction cancels', () => {
    const all = evidence(keyed('all'), { anchors: B })
    const s = correct({ ...identity, lambda: 1 }, INITIAL_STATE, all)
    all.forEach((g, b) => {
      groupAdvantages(g.executed!, 'center')!.forEach((v, i) => {
        expect(s.groups[b]!.advantages![i]).toBeCloseTo(v!, 12)
      })
    })
  })
  test("a step's own pairs do not enter the map that it uses", () => {
    let state: MethodState = INITIAL_STATE
    for (let k = 0; k < 12; k++) {
      const before = state.map
      const s = correct(of('recommended'), state, evidence(keyed('late', k)))
      expect(s.mapVersion).toBe(before.version)
      state = s.state
    }
    expect(state.map.version).toBeGreaterThan(0)
  })
  test('an anchor member without a score leaves both sides of the correction and keeps its bulk term', () => {
    const g: GroupEvidence = { anchor: true, predicted: [0.2, 0.4, 0.6, 0.8], executed: [0.1, null, 0.5, 0.9] }
    const other: GroupEvidence = { anchor: false, predicted: [0.1, 0.2, 0.3, 0.4] }
    const a = correct(identity, INITIAL_STATE, [g, other]).groups[0]!.advantages!
    const bulk = groupAdvantages(g.predicted, 'center')!
    expect(a[1]).toBe(bulk[1])
    const w = groupAdvantages([0.2, null, 0.6, 0.8], 'center')!
    const e = groupAdvantages([0.1, null, 0.5, 0.9], 'center')!
    for (const i of [0, 2, 3]) expect(a[i]).toBeCloseTo(bulk[i]! + 0.5 * 2 * (e[i]! - w[i]!), 12)
    const correction = [0, 2, 3].reduce((s, i) => s + a[i]! - bulk[i]!, 0)
    expect(Math.abs(correction)).toBeLessThan(1e-12)
  })
  test('an anchor whose executions all failed shrinks n, keeps its bulk term and is no sign of life', () => {
    const good: GroupEvidence = { anchor: true, predicted: [0.2, 0.4, 0.6, 0.8], executed: [0.1, 0.3, 0.5, 0.9] }
    const failed: GroupEvidence = { anchor: true, predicted: [0.2, 0.4], executed: [null, null] }
    const two = correct(identity, INITIAL_STATE, [good, failed])
    expect(two.anchors).toBe(1)
    const bulk = groupAdvantages(good.predicted, 'center')!
    const e = groupAdvantages(good.executed!, 'center')!
    // B/n is 2/1: the failed one stays in B, where its bulk term is, and leaves n.
    two.groups[0]!.advantages!.forEach((a, i) => {
      expect(a).toBeCloseTo(bulk[i]! + 0.5 * 2 * (e[i]! - bulk[i]!), 12)
    })
    expect(two.groups[1]!.advantages).toEqual(groupAdvantages(failed.predicted, 'center'))
    for (const mode of ['recommended', 'paper', 'anchors-only'] as const) {
      const config = of(mode)
      let s = correct(config, INITIAL_STATE, [failed])
      for (let k = 1; k < config.alarms.noAnchorSteps; k++) s = correct(config, s.state, [failed])
      expect(s.state.stepsWithoutAnchor).toBe(config.alarms.noAnchorSteps)
      expect(s.alarms).toContain(`no executed anchor for ${config.alarms.noAnchorSteps} steps`)
      expect(correct(config, s.state, [good]).state.stepsWithoutAnchor).toBe(0)
    }
  })
})

describe("the paper's mode", () => {
  const config = of('paper')
  test('the map is the identity until 200 pairs, then refitted every 64', () => {
    const s = run(config, 80, 'paper')
    const versions = s.map((x) => x.mapVersion)
    expect(versions[48]).toBe(0)
    // 4 pairs a step: the 50th step brings the 200th pair, and its own pairs enter before the map is applied.
    expect(versions[49]).toBe(1)
    expect(versions[64]).toBe(1)
    expect(versions[65]).toBe(2)
  })
  test('anchors weigh 1 before the warm-up of 32 groups is over, 2 at its end', () => {
    const s = run(config, 40, 'warm')
    expect(s[30]!.rho).toBe(1)
    expect(s[31]!.rho).toBeCloseTo(2, 12)
    for (const x of s.slice(31)) expect(x.rho >= 1 && x.rho <= 4).toBe(true)
  })
  test('an anchor group enters with its executed rewards, scaled so that the weights average to 1', () => {
    const s = run(config, 33, 'scale').at(-1)!
    const g = evidence(keyed('scale', 32))
    const f = fusionFactors(s.rho, 1, B - 1)
    expect((f.anchor + (B - 1) * f.predicted) / B).toBeCloseTo(1, 12)
    groupAdvantages(g[0]!.executed!, 'std')!.forEach((v, i) => {
      expect(s.groups[0]!.advantages![i]).toBeCloseTo(f.anchor * v!, 12)
    })
  })
})

test('weights average to 1, and one empty side never divides by zero', () => {
  const count = fc.integer({ min: 0, max: 12 })
  fc.assert(
    fc.property(fc.double({ min: 1, max: 4, noNaN: true }), count, count, (rho, e, w) => {
      const f = fusionFactors(rho, e, w)
      expect(Number.isFinite(f.anchor) && Number.isFinite(f.predicted)).toBe(true)
      if (e + w > 0) expect((e * f.anchor + w * f.predicted) / (e + w)).toBeCloseTo(1, 9)
      const plain = fusionFactors(1, e, w)
      if (e > 0) expect(plain.anchor).toBeCloseTo(1, 12)
      if (w > 0) expect(plain.predicted).toBeCloseTo(1, 12)
    }),
  )
})

describe('anchors only', () => {
  test('nothing of a prediction is in an advantage', () => {
    const a = run(of('anchors-only'), 3, 'a')
    const blind = evidence(keyed('a', 0)).map((g) => ({ ...g, predicted: g.predicted.map(() => null) }))
    expect(advantages(correct(of('anchors-only'), INITIAL_STATE, blind))[0]!.map((v) => v !== null)).toEqual([
      true,
      true,
      true,
      true,
    ])
    expect(a[0]!.groups.slice(1).every((g) => g.advantages === undefined)).toBe(true)
  })
})

describe('what is missing is never zero', () => {
  test('unscorable members leave their group; a group with fewer than two is skipped and leaves the divisor', () => {
    const groups: GroupEvidence[] = [
      { anchor: false, predicted: [0.2, null, 0.4, null] },
      { anchor: false, predicted: [0.2, null, null, null] },
      { anchor: false, predicted: [null, null, null, null] },
      { anchor: true, predicted: [0.5, 0.5, 0.6, 0.1], executed: [0.5, null, 0.7, 0.1] },
    ]
    for (const mode of METHOD_MODES) {
      const s = correct(of(mode), INITIAL_STATE, groups)
      expect(s.groups[1]).toMatchObject({ advantages: undefined, skipped: 'fewer-than-two-scored' })
      expect(s.groups[2]).toMatchObject({ advantages: undefined, skipped: 'fewer-than-two-scored' })
      expect(s.divisor).toBe(2)
      expect(JSON.stringify(s)).not.toContain('NaN')
      expect(s.pairsAdded).toBe(3)
    }
  })
  test('NaN, infinity and what is outside [0,1] are refused by name', () => {
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, 1.5, -0.1]) {
      expect(() => correct(of('recommended'), INITIAL_STATE, [{ anchor: false, predicted: [0.1, bad] }])).toThrow(
        RangeError,
      )
      const g: GroupEvidence = { anchor: true, predicted: [0.1, 0.2], executed: [bad, 0.1] }
      expect(() => correct(of('paper'), INITIAL_STATE, [g])).toThrow(/\[0,1\]/)
    }
  })
  test('all groups tied: zeros, counted, an alarm', () => {
    const s = correct(
      of('recommended'),
      INITIAL_STATE,
      Array.from({ length: B }, () => ({ anchor: false, predicted: [0.3, 0.3] })),
    )
    expect(advantages(s).flat()).toEqual(new Array(16).fill(0))
    expect(s.groups.every((g) => g.tied && !g.plateau)).toBe(true)
    expect(s.alarms.join()).toMatch(/100 % of groups are tied/)
  })
})

describe('alarms', () => {
  test('no anchor for five steps', () => {
    let state = INITIAL_STATE
    const said = Array.from({ length: 7 }, (_, k) => {
      const s = correct(of('recommended'), state, evidence(keyed('quiet', k), { anchors: 0 }))
      state = s.state
      return s.alarms.some((a) => a.includes('no executed anchor'))
    })
    expect(said).toEqual([false, false, false, false, true, true, true])
  })
  test('an inverted world model is told from a good one', () => {
    const low = run(of('recommended'), 20, 'inverted', (x) => 1 - x)
    expect(low.at(-1)!.signedR2).toBeLessThan(0)
    expect(low.at(-1)!.alarms.join()).toMatch(/ranks anchors badly/)
    const fine = run(of('recommended'), 20, 'good')
    expect(fine.at(-1)!.signedR2).toBeGreaterThan(0.5)
    expect(fine.at(-1)!.alarms.join()).not.toMatch(/badly/)
  })
})

test('the state is plain data: a resumed run goes on as an unbroken one, bit for bit', () => {
  for (const mode of ['paper', 'recommended'] as const) {
    let a = INITIAL_STATE
    let b = INITIAL_STATE
    for (let k = 0; k < 70; k++) {
      const x = correct(of(mode), a, evidence(keyed('resume', k)))
      const y = correct(of(mode), JSON.parse(JSON.stringify(b)) as MethodState, evidence(keyed('resume', k)))
      expect(y).toEqual(x)
      a = x.state
      b = y.state
    }
    expect(a.map).not.toEqual(IDENTITY)
  }
})

test('no order of the groups changes a group', () => {
  const groups = evidence(keyed('permute'))
  const config = of('recommended')
  const a = correct(config, INITIAL_STATE, groups)
  const order = keyed('order').shuffle(groups.map((_, i) => i))
  const b = correct(
    config,
    INITIAL_STATE,
    order.map((i) => groups[i]!),
  )
  order.forEach((from, to) => {
    expect(b.groups[to]!.advantages).toEqual(a.groups[from]!.advantages)
  })
})
