/**
 * The golden values of the method (population standard deviation, double precision), by their numbers in the method's
 * description. Six printed decimals, so compared to 1e-6 unless exact.
 */
import { describe, expect, test } from 'vitest'
import { type Belief, expectedReward, keyed, ladder, releaseLadder, rewardOf } from '../core/index.ts'
import { groupAdvantages, groupStats } from './advantages.ts'
import { anchorCount } from './anchors.ts'
import { applyMap, fitMap, type Pair } from './calibration.ts'
import {
  correctedAdvantages,
  debiasedSquare,
  doublyRobust,
  ppiGradient,
  replayRatio,
  shrunkLambda,
  tunedLambda,
} from './correction.ts'
import {
  anchorWeight,
  type DenoiserState,
  disagreement,
  emaAlpha,
  fuseGradients,
  fusionVariance,
  mseWeight,
  NO_DENOISER,
  pushDisagreement,
} from './fusion.ts'
import { pav } from './pav.ts'
import { centredSums, signedR2 } from './reliability.ts'
import { impliedFraction, speedUp, worldModelBound } from './theory.ts'

const close = (got: readonly (number | null)[] | undefined, want: readonly (number | null)[]): void => {
  expect(got?.map((v) => (v === null ? null : Number(v.toFixed(6)) + 0))).toEqual(want)
}
const pairs = (x: readonly number[], y: readonly number[]): Pair[] => x.map((v, i) => ({ x: v, y: y[i]! }))

const G4 = pairs(
  [0.1, 0.1, 0.1, 0.1, 0.525, 0.525, 0.6, 0.6, 0.725, 0.725, 0.875],
  [0.1, 0.1, 0.1, 0.6, 0.1, 0.6, 0.7, 0.1, 0.1, 0.2, 0.9],
)
const isotonic = { kind: 'isotonic', bins: 10, prior: 0 } as const

test('G1, G2: pooling adjacent violators', () => {
  close(pav([1, 3, 2, 4]), [1, 2.5, 2.5, 4])
  close(pav([0.1, 0.6, 0.4, 0.3, 0.9], [1, 1, 2, 1, 3]), [0.1, 0.425, 0.425, 0.425, 0.9])
  close(pav([0.2, 0.2]), [0.2, 0.2])
})

test('G3: equal-mass bins with repeated x', () => {
  const map = fitMap(
    pairs([0.1, 0.1, 0.6, 0.6, 0.6, 0.725], [0, 0.2, 0.5, 0.7, 0.3, 0.4]),
    { ...isotonic, binning: 'equal_mass' },
    1,
  )
  close(map.knots, [0.1, 0.6, 0.725])
  close(map.values, [0.1, 0.475, 0.475])
  close(map.weights, [2, 3, 1])
  close(
    [0.05, 0.35, 0.65, 0.9].map((x) => applyMap(map, x)),
    [0.1, 0.2875, 0.475, 0.475],
  )
})

test("G4: the release's ten bins of equal width", () => {
  const map = fitMap(G4, { ...isotonic, binning: 'equal_width' }, 1)
  close(map.knots, [0.1, 0.5625, 0.725, 0.875])
  close(map.values, [0.225, 0.3, 0.3, 0.9])
  close(map.weights, [4, 4, 2, 1])
  close(
    [0.525, 0.6, 0.725, 1].map((x) => applyMap(map, x)),
    [0.293919, 0.3, 0.3, 0.9],
  )
})

test('G5: one bin a distinct value', () => {
  const map = fitMap(G4, { ...isotonic, binning: 'distinct' }, 1)
  close(map.knots, [0.1, 0.525, 0.6, 0.725, 0.875])
  close(map.values, [0.225, 0.3, 0.3, 0.3, 0.9])
})

test('G6: centered isotonic has no plateau inside', () => {
  const map = fitMap(G4, { ...isotonic, kind: 'centered_isotonic', binning: 'distinct' }, 1)
  close(map.knots, [0.1, 0.616667, 0.875])
  close(map.values, [0.225, 0.3, 0.9])
  close(
    [0.525, 0.6, 0.725].map((x) => applyMap(map, x)),
    [0.286694, 0.297581, 0.551613],
  )
})

test('G7: four pseudo-pairs a bin on the identity', () => {
  const map = fitMap(G4, { ...isotonic, binning: 'distinct', prior: 4 }, 1)
  close(map.values, [0.1625, 0.466667, 0.533333, 0.533333, 0.88])
  close(map.weights, [8, 6, 6, 6, 5])
})

test('G8: group-relative advantages', () => {
  const r = [0, 0.1, 0.2, 0.6, 0.725, 0.875, 0.1, 0.1]
  close([groupStats(r).mean, groupStats(r).std], [0.3375, 0.318198])
  const want = [-1.060327, -0.746156, -0.431985, 0.824699, 1.217412, 1.688669, -0.746156, -0.746156]
  close(groupAdvantages(r, 'std'), want)
})

test('G9: the unscorable leave the group', () => {
  close(groupAdvantages([0.2, null, 0.4], 'center'), [-0.1, null, 0.1])
  close(groupAdvantages([0.2, null, 0.4], 'std'), [-0.999001, null, 0.999001])
  expect(groupAdvantages([0.2, null, null], 'center')).toBeUndefined()
  expect(groupAdvantages([0.3, 0.3, 0.3], 'std')).toEqual([0, 0, 0])
  expect(groupAdvantages([0.1 + 0.2, 0.3], 'std')).toEqual([0, 0])
})

test('G10: disagreement and its moving average', () => {
  const r = [0.1, 0.1, 0.6, 0.9]
  close([disagreement([0.2, 0.5, 0.5, 0.8], r)], [0.358289])
  close([disagreement([0.5, 0.5, 0.5, 0.5], r)], [1])
  expect(disagreement([0.2, 0.5, 0.5, 0.8], [0.3, 0.3, 0.3, 0.3])).toBeNull()
  close([emaAlpha(64)], [0.010772])
  const s = pushDisagreement({ groups: 1, s2: 0.2, c: null }, 0.5, { halfLife: 64, warmup: 32 })
  close([s.s2], [0.203232])
})

test("G11: the paper's weight", () => {
  const warm = (s2: number): DenoiserState => {
    let s = NO_DENOISER
    for (let i = 0; i < 32; i++) s = pushDisagreement(s, s2, { halfLife: 64, warmup: 32 })
    return s
  }
  const s = warm(0.25)
  close([s.c, anchorWeight(s)], [4, 2])
  close([anchorWeight({ ...s, s2: 0.1 }), anchorWeight({ ...s, s2: 0.9 })], [1.4, 4])
  for (const v of [0.01, 0.37, 2]) close([anchorWeight(warm(v))], [2])
  expect(anchorWeight({ groups: 31, s2: 0.25, c: null })).toBe(1)
})

test('G12: fused gradients', () => {
  const e = [[1, -0.5]]
  const w = [
    [0.2, 0.4],
    [-0.4, 0.1],
    [0.6, -0.3],
  ]
  close(fuseGradients(e, w, 1), [0.35, -0.075])
  close(fuseGradients(e, w, 2), [0.48, -0.16])
  close(fuseGradients(e, w, 4), [0.628571, -0.257143])
  close(fuseGradients([], w, 3), [0.133333, 0.066667])
  for (const rho of [1, 2, 4]) close(fuseGradients(e, [], rho), [1, -0.5])
})

test('G13: variance of the fusion', () => {
  const v = (rho: number, vW = 2): number => fusionVariance({ anchors: 1, predicted: 7, vE: 1, vW, rho })
  close([v(1), v(2), v(4)], [0.234375, 0.222222, 0.247934])
  close([1 / (1 / 1 + 7 / 2), v(2) / v(1)], [0.222222, 0.948148])
  close([fusionVariance({ anchors: 1, predicted: 0, vE: 1, vW: 2, rho: 2 })], [1])
  close([fusionVariance({ anchors: 0, predicted: 7, vE: 1, vW: 2, rho: 2 })], [0.285714])
  close([v(1, 0.5), v(2, 0.5), 0.5 / 7], [0.070313, 0.092593, 0.071429])
})

test('G14: weights by mean squared error over a horizon', () => {
  const at = (horizon: number, bias2 = 0.02) => mseWeight({ anchors: 1, predicted: 7, vE: 1, vW: 2, bias2, horizon })
  close([at(1).anchorShare, at(1).rho], [0.234136, 2.14])
  close([at(32).anchorShare, at(32).rho], [0.480712, 6.48])
  close([at(32, 0).anchorShare, at(32, 0).rho], [0.222222, 2])
})

describe('G15: prediction-powered correction of groups', () => {
  const w = [
    [0.4, 0.1],
    [0.2, -0.2],
    [0, 0.3],
    [0.2, 0.6],
  ]
  const e = [{ index: 0, executed: [0.7, -0.1] }]
  test('gradients', () => {
    close(ppiGradient(w, e, 1), [0.5, 0])
    close(ppiGradient(w, e, 0.5), [0.35, 0.1])
    close(ppiGradient(w, e, 0), [0.2, 0.2])
    // PPI++'s own form, g_E + l (mean of all - g_W1).
    const plus = [0, 1].map((k) => e[0]!.executed[k]! + 0.5 * (w.reduce((s, g) => s + g[k]! / 4, 0) - w[0]![k]!))
    close(plus, [0.6, -0.05])
  })
  test('the same as advantages: a mean over groups gives the gradient', () => {
    for (const lambda of [0, 0.5, 1]) {
      const a = w.map((g, i) => correctedAdvantages(g, g, i === 0 ? e[0]!.executed : [null, null], lambda, 4, 1))
      const mean = [0, 1].map((k) => a.reduce((s, g) => s + g[k]! / 4, 0))
      close(
        mean,
        ppiGradient(w, e, lambda).map((v) => Number(v.toFixed(6)) + 0),
      )
    }
  })
})

test('G16: power tuning', () => {
  const e = [
    [0.7, -0.1],
    [0.3, 0.2],
    [-0.4, 0.5],
  ]
  const w = [
    [0.4, 0.1],
    [0.2, -0.2],
    [-0.1, 0.6],
  ]
  const t = tunedLambda(e, w)
  close([t.c, t.vW, t.c / t.vW], [0.21, 0.206667, 1.016129])
  expect(t.lambda).toBe(1)
  close([t.c / (t.vW * (1 + 1 / 8))], [0.903226])
})

test('G17: the correction shrunk by its own noise', () => {
  close(
    [1, 32, 128].map((h) => shrunkLambda(0.02, 0.5, h)),
    [0.04, 0.571429, 0.842105],
  )
  close([debiasedSquare(0.03, 0.5, 0.95)], [0.017632])
})

test('G18: doubly robust, one member executed', () => {
  const f = [0.2, 0.5, 0.5, 0.8]
  const s = [
    [1, 0],
    [0, 1],
    [-1, 0],
    [0, -1],
  ]
  const gradient = (lambda: number): number[] => {
    const a = doublyRobust(f, [{ index: 1, r: 0.1, pi: 1 / 4 }], lambda)
    return [0, 1].map((k) => a.reduce((sum, v, i) => sum + v * s[i]![k]!, 0) / 4)
  }
  close(doublyRobust(f, [], 1), [-0.3, 0, 0, 0.3])
  close([doublyRobust(f, [{ index: 1, r: 0.1, pi: 1 / 4 }], 1)[1]!], [-1.2])
  close(gradient(1), [-0.075, -0.375])
  close(gradient(0), [-0.075, -0.075])
  close(gradient(0.5), [-0.075, -0.225])
  expect(() => doublyRobust(f, [{ index: 1, r: 0.1, pi: 0.1 }], 1)).toThrow(RangeError)
})

// G19, percentiles: grading/percentile.test.ts.

test('G20: the ladder', () => {
  expect([ladder('malformed'), ladder('syntax-error')]).toEqual([0, 0])
  expect([ladder('crashed'), ladder('timed-out'), ladder('out-of-memory')]).toEqual([0.1, 0.1, 0.1])
  expect(ladder('invalid-submission')).toBe(0.2)
  close(
    [0.8, 0.3125, 0].map((p) => ladder('graded', p)),
    [0.9, 0.65625, 0.5],
  )
  // As the release has it: the last place is no valid submission, and no place is nothing.
  expect([0, Number.NaN, undefined].map((p) => releaseLadder('graded', p))).toEqual([0.2, 0, 0])
  expect(releaseLadder('graded', 0.8)).toBe(ladder('graded', 0.8))
  expect(releaseLadder('crashed', undefined)).toBe(0.1)
  // The release's four buckets of a world model are the ladder of their middles.
  close(
    [0.05, 0.2, 0.45, 0.75].map((p) => ladder('graded', p)),
    [0.525, 0.6, 0.725, 0.875],
  )
  expect(rewardOf({ kind: 'graded', score: 3.5, percentile: 0.8, scope: 'feedback' })).toBeCloseTo(0.9, 12)
  const belief: Belief = {
    alternatives: [
      { kind: 'crashed', p: 0.5 },
      { kind: 'graded', percentile: 0.8, p: 0.5 },
    ],
    shown: 0,
  }
  close([expectedReward(belief).mean, expectedReward(belief).spread], [0.5, 0.4])
})

test('G21: how many anchors', () => {
  const at = ([share, b]: readonly [number, number]): number => anchorCount(share, b)
  expect(
    (
      [
        [0.1, 8],
        [0.25, 8],
        [0.25, 10],
        [0.35, 10],
        [0.1, 4],
      ] as const
    ).map(at),
  ).toEqual([1, 2, 2, 4, 1])
  expect(anchorCount(0.5, 8, { cap: 4, inFlight: 3 })).toBe(1)
})

test('G22: reliability keeps its sign', () => {
  const f = [0.2, 0.5, 0.5, 0.8]
  const r = [0.1, 0.1, 0.6, 0.9]
  const s = centredSums(f, r)
  close([s.sfr / s.sff, s.sfr / Math.sqrt(s.sff * s.srr), signedR2(s)], [1.333333, 0.82734, 0.684492])
  close(
    [
      signedR2(
        centredSums(
          f.map((v) => -v),
          r,
        ),
      ),
    ],
    [-0.684492],
  )
  close([1 - disagreement(f, r)!], [0.641711])
  expect(signedR2(centredSums([0.5, 0.5, 0.5, 0.5], r))).toBe(0)
})

test('G23: savings', () => {
  const x4 = 1 - 269 / 883
  const x9 = 1 - 330 / 1174
  close([x4, x9], [0.695357, 0.71891])
  close([speedUp(x4, 0.1), speedUp(x9, 0.1)], [2.672518, 2.833012])
  close([speedUp(x4, 0.25), speedUp(x9, 0.25)], [2.089941, 2.170055])
  close([speedUp(x4, 1 / 8), speedUp(x9, 1 / 8)], [2.553868, 2.695752])
  close([impliedFraction(x4, 3.087413), impliedFraction(x9, 3.363897)], [0.027687, 0.022512])
})

test('G24: importance ratio of a replayed correction', () => {
  close([replayRatio(0.3, 0.1), replayRatio(0.05, 0.1)], [2, 0.5])
})

test("the paper's bound, worked through", () => {
  const b = worldModelBound({
    m: 1,
    n: 10,
    vE: 1,
    sigma2: 0.0025,
    b2: 0.01,
    gamma: 0.5,
    mu: 0.2,
    delta0: 0.5,
    steps: 5,
  })
  close([b.c, b.vWm, b.decay, b.bound], [0.4, 1.001, 0.881096, 0.951048])
})

/**
 * G25: a softmax over three programs, G = 3, every group of three draws and every executed member enumerated. The
 * expectation of a correct estimator is (1 - 1/G) grad J, whatever the prediction says.
 */
describe('G25: exact enumeration', () => {
  const p = [0.5, 0.3, 0.2]
  const r = [0.1, 0.6, 0.9]
  const f = [0.7, 0.5, 0.6]
  const G = 3
  const scoreOf = (a: number): number[] => p.map((q, k) => (k === a ? 1 : 0) - q)
  type Estimator = (group: readonly number[], executed: number) => readonly number[]

  /** Expectation over groups and over the executed member, uniformly. */
  function expectation(estimate: Estimator): number[] {
    const out = [0, 0, 0]
    for (let a = 0; a < 3; a++)
      for (let b = 0; b < 3; b++)
        for (let c = 0; c < 3; c++)
          for (let e = 0; e < G; e++) {
            const group = [a, b, c]
            const weight = (p[a]! * p[b]! * p[c]!) / G
            const advantages = estimate(group, e)
            for (let k = 0; k < 3; k++)
              out[k]! += weight * group.reduce((s, g, i) => s + (advantages[i]! * scoreOf(g)[k]!) / G, 0)
          }
    return out
  }
  const mean = p.reduce((s, q, a) => s + q * r[a]!, 0)
  const truth = p.map((q, k) => (1 - 1 / G) * q * (r[k]! - mean))
  const robust =
    (pred: readonly number[]): Estimator =>
    (g, e) =>
      doublyRobust(
        g.map((a) => pred[a]!),
        [{ index: e, r: r[g[e]!]!, pi: 1 / G }],
        1,
      )

  test('the doubly robust estimate is exact for any prediction', () => {
    close(truth, [-0.103333, 0.038, 0.065333])
    const random = keyed('G25')
    for (const pred of [
      f,
      r,
      [0, 0, 0],
      [0.9, 0.6, 0.1],
      ...Array.from({ length: 20 }, () => p.map(() => random.next())),
    ]) {
      expectation(robust(pred)).forEach((v, k) => {
        expect(Math.abs(v - truth[k]!)).toBeLessThan(1e-12)
      })
    }
  })

  test('groups executed whole with probability 1/4, lambda 1, are exact too', () => {
    // Which groups are anchors does not depend on what was drawn, so one group's corrected mean stands for all.
    const whole = expectation((g) => {
      const w = groupAdvantages(
        g.map((a) => f[a]!),
        'center',
      )!
      const e = groupAdvantages(
        g.map((a) => r[a]!),
        'center',
      )!
      const [B, n] = [4, 1]
      const anchored = correctedAdvantages(w, w, e, 1, B, n)
      return w.map((v, i) => (n / B) * anchored[i]! + (1 - n / B) * v!)
    })
    whole.forEach((v, k) => {
      expect(Math.abs(v - truth[k]!)).toBeLessThan(1e-12)
    })
  })

  test('putting the executed reward in place of the prediction is biased, and so is the prediction alone', () => {
    const substitution = expectation(
      (g, e) =>
        groupAdvantages(
          g.map((a, i) => (i === e ? r[a]! : f[a]!)),
          'center',
        )! as number[],
    )
    const alone = expectation(
      (g) =>
        groupAdvantages(
          g.map((a) => f[a]!),
          'center',
        )! as number[],
    )
    close(substitution, [-0.016667, -0.003333, 0.02])
    close(alone, [0.026667, -0.024, -0.002667])
  })
})
