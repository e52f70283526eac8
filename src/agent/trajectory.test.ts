import { expect, test } from 'vitest'
import { NO_COST, score, type Verdict } from '../core/index.ts'
import { rewardBy, type Trajectory } from './trajectory.ts'

const verdict = (s: number | null): Verdict =>
  (s === null
    ? { source: 'executed', unscorable: { cause: 'infra', detail: 'x' }, cost: NO_COST }
    : {
        source: 'executed',
        outcome: { kind: 'crashed', error: { type: 'E', message: '' } },
        score: score(s),
        observation: { text: '' },
        cost: NO_COST,
      }) as Verdict
const of = (scores: readonly (number | null)[], more: Partial<Trajectory> = {}): Trajectory =>
  ({ turns: scores.map((s) => ({ action: { code: '' }, verdict: verdict(s) })), ...more }) as unknown as Trajectory

test('the reward is the maximum over turns (golden G20)', () => {
  expect(rewardBy(of([0.1, 0.2, 0.7, 0.1]), 'verdict')).toBe(0.7)
  expect(rewardBy(of([0]), 'verdict')).toBe(0)
})

test('missing is never zero: an unscorable turn or trajectory, no turn, no such judge', () => {
  expect(rewardBy(of([0.7, null]), 'verdict')).toBeNull()
  expect(rewardBy(of([0.7], { unscorable: { cause: 'infra', detail: 'x' } }), 'verdict')).toBeNull()
  expect(rewardBy(of([]), 'verdict')).toBeNull()
  expect(rewardBy(of([0.7]), 'shadow')).toBeNull()
})
