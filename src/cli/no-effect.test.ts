import { describe, expect, test } from 'vitest'
import { METHOD_MODES } from '../method/index.ts'
import { methodOf, type RunConfig, runConfig } from '../train/index.ts'
import { withoutEffect } from './no-effect.ts'

const said = (c: object): string[] => withoutEffect(runConfig.parse(c))

test.each(METHOD_MODES)('the defaults of mode %s, and what a run stores of them, are said nothing about', (mode) => {
  const c = runConfig.parse({ method: { mode } })
  expect(withoutEffect(c)).toEqual([])
  const stored: RunConfig = { ...c, method: methodOf(c) }
  expect(withoutEffect(stored)).toEqual([])
})

describe('a key that nothing reads is named, with its value and why', () => {
  test.each<[object, string[]]>([
    [{ method: { weights: { kind: 'ivd' } } }, ['method.weights.kind: "ivd" has no effect in mode recommended']],
    [
      { train: { clipLow: 0.1, clipHigh: 0.3 } },
      [
        'train.clipLow: 0.1 has no effect in mode recommended, whose loss has no clip',
        'train.clipHigh: 0.3 has no effect in mode recommended, whose loss has no clip',
      ],
    ],
    [
      { method: { mode: 'paper', lambda: 0.3, weights: { kind: 'none', max: 9 } } },
      [
        'method.weights.max: 9 has no effect where method.weights.kind is none',
        'method.lambda: 0.3 has no effect in mode paper',
      ],
    ],
    [
      { method: { mode: 'executed-only', anchors: { share: 0.5 }, calibration: { bins: 4 } } },
      [
        'method.anchors.share: 0.5 has no effect in mode executed-only',
        'method.calibration.bins: 4 has no effect in mode executed-only',
      ],
    ],
    [{ method: { stdEpsilon: 0.1 } }, ['method.stdEpsilon: 0.1 has no effect where method.advantage is center']],
    [{ train: { truncateRatio: 3 } }, ['train.truncateRatio: 3 has no effect where train.maxStaleness is 0']],
  ])('%j', (c, lines) => expect(said(c)).toEqual(lines))
})

test('what is read is not named', () => {
  expect(said({ method: { mode: 'paper', weights: { kind: 'release', max: 2 } }, train: { clipLow: 0.1 } })).toEqual([])
  expect(said({ method: { mode: 'anchors-only', lambda: 0.5 }, train: { clipHigh: 0.3 } })).toEqual([])
  expect(said({ method: { lambda: 0.9, calibration: { kind: 'affine', window: 9 } } })).toEqual([])
})
