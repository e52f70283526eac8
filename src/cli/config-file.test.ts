import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ConfigError } from '../core/index.ts'
import { METHOD_MODES } from '../method/index.ts'
import { methodOf } from '../train/index.ts'
import { configReference, loadConfig } from './config-file.ts'

const refused = (f: () => unknown): string => {
  try {
    f()
  } catch (e) {
    expect(e).toBeInstanceOf(ConfigError)
    expect((e as Error).message).not.toContain('\n')
    return (e as Error).message
  }
  throw new Error('it was accepted')
}
const set = (...s: string[]) => loadConfig({ set: s })
const env = (e: NodeJS.ProcessEnv) => loadConfig({ env: e })

describe('a wrong value: the key, the value, what is possible', () => {
  test.each([
    ['train.learningRate=-1', /^train\.learningRate: -1 is not possible: .*>=0/],
    ['train.steps=many', /^train\.steps: "many" is not possible: .*expected number/],
    ['method.mode=papers', /^method\.mode: "papers" is not possible; one of paper, recommended.*did you mean paper\?/],
    ['tasks.only=["a",3]', /^tasks\.only\.1: 3 is not possible/],
    ['train.stepz=3', /^train\.stepz: is no configuration key; did you mean train\.steps\?/],
    ['train=3', /^train: 3 is not possible/],
  ])('%s', (s, said) => expect(refused(() => set(s))).toMatch(said))
  test.each([
    ['.05', 0.05],
    ['1.', 1],
    ['5e-3', 0.005],
  ])('a number as people write it: %s', (text, value) => expect(set(`train.kl=${text}`).train.kl).toBe(value))
  test('a learning rate of 0 is possible: nothing is learned, everything is measured', () =>
    expect(set('train.learningRate=0').train.learningRate).toBe(0))
})

describe('keys of every object are no configuration keys', () => {
  test.each(['__proto__.x=1', 'train.__proto__.x=1', 'constructor.prototype.x=1', '__proto__=1'])('%s', (s) => {
    expect(refused(() => set(s))).toMatch(/is no configuration key/)
    expect(({} as Record<string, unknown>).x).toBeUndefined()
  })
  test('in a file', () => {
    const dir = mkdtempSync(join(tmpdir(), 'wmrl-config-'))
    try {
      for (const [name, text] of [
        ['a.yaml', '__proto__:\n  x: 1\n'],
        ['a.toml', '[__proto__]\nx = 1\n'],
      ] as const) {
        const file = join(dir, name)
        writeFileSync(file, text)
        expect(refused(() => loadConfig({ file }))).toMatch(/is no configuration key/)
      }
      expect(({} as Record<string, unknown>).x).toBeUndefined()
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})

describe('the environment', () => {
  test('holds every key, below --set', () => {
    const c = loadConfig({
      env: {
        WMRL_SEED: '7',
        WMRL_TRAIN__GROUP_SIZE: '4',
        WMRL_METHOD__ANCHORS__SHARE: '0.5',
        WMRL_ENGINE__THREADS: '1',
      },
      set: ['train.groupSize=6'],
    })
    expect([c.seed, c.train.groupSize, c.method.anchors.share, c.engine.threads]).toEqual([7, 6, 0.5, 1])
    for (const { key } of configReference())
      expect(
        refused(() => env({ [`WMRL_${key.replace(/[.]/g, '__').replace(/[A-Z]/g, '_$&').toUpperCase()}`]: '{"x":1}' })),
      ).toContain(`${key}: {"x":1}`)
  })
  test.each([
    ['WMRL_TRAIN_STEPS', /WMRL_TRAIN_STEPS: is no configuration key; did you mean WMRL_TRAIN__STEPS\?/],
    ['WMRL_TRAIN__STEPZ', /did you mean WMRL_TRAIN__STEPS\?/],
    ['WMRL_TRAIN', /is no configuration key/],
    ['WMRL_train__steps', /is no configuration key/],
  ])('%s is not ignored', (name, said) => expect(refused(() => env({ [name]: '3' }))).toMatch(said))
  test('what is no configuration is left alone', () =>
    expect(env({ WMRL_HOME: '/x', WMRL_PYTHON: 'p', WMRL_SKYRL_URL: 'u', HOME: '/root', WMRL_DEBUG: '1' }).seed).toBe(
      0,
    ))
})

describe('what the mode decides', () => {
  const decided = (...s: string[]) => {
    const { train: t, prediction: p } = set(...s)
    return [t.groups, t.groupSize, t.turns, t.learningRate, t.kl, t.entropy, p.score]
  }
  test.each(METHOD_MODES)('%s: resolved when parsed, the paper’s numbers in its mode alone', (mode) =>
    expect(decided(`method.mode=${mode}`)).toEqual(
      mode === 'paper' ? [8, 8, 4, 1e-6, 0.04, 0.002, 'sample'] : [8, 8, 2, 3e-4, 0, 0, 'expected'],
    ),
  )
  test('what is set stays, 0 too; what was stored is read back as it was, in whatever mode', () => {
    expect(decided('method.mode=paper', 'train.kl=0', 'train.turns=1', 'prediction.score=mean')).toEqual([
      8,
      8,
      1,
      1e-6,
      0,
      0.002,
      'mean',
    ])
    for (const mode of METHOD_MODES) {
      const c = set(`method.mode=${mode}`)
      const stored = { ...c, method: methodOf(c) }
      expect(loadConfig({ base: JSON.parse(JSON.stringify(stored)) })).toEqual(stored)
    }
  })
  test('the reference names both', () => {
    const of = (key: string) => configReference().find((r) => r.key === key)
    expect(of('train.learningRate')).toMatchObject({ default: 3e-4, inMode: { paper: 1e-6 } })
    expect(of('method.anchors.share')).toMatchObject({ default: 0.125, inMode: { paper: 0.1, 'executed-only': 1 } })
    expect(of('train.groups')).not.toHaveProperty('inMode')
    expect(of('method.mode')).toMatchObject({ default: 'recommended' })
  })
})
