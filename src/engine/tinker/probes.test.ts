import { describe, expect, it } from 'vitest'
import { ConfigError } from '../../core/index.ts'
import { TinkerClient } from './client.ts'
import { probeServer } from './probes.ts'
import { checkRows, checkTable } from './report-table.ts'
import { type Needs, requireServer } from './requirements.ts'
import { fastClock, PATIENT, type StubOptions, StubServer, TOY_BASE } from './testing/stub-server.ts'

const signal = new AbortController().signal
async function probed(o: Partial<StubOptions>) {
  const server = new StubServer({ ...o, clock: fastClock })
  const client = new TinkerClient({
    baseUrl: 'http://stub',
    fetch: server.fetch,
    clock: fastClock,
    ceilings: PATIENT,
    heartbeat: () => ({ key: () => undefined, stop: async () => undefined }),
  })
  const [model] = await client.models()
  const session = await client.createSession()
  const report = await probeServer(session, { baseModel: TOY_BASE, vocab: 32, context: model!.context }, signal)
  return { server, report }
}
const needs: Needs = {
  losses: ['importance_sampling'],
  frozenBase: true,
  kl: false,
  entropy: false,
  context: 2048,
  longest: 1024,
  overlap: false,
}

describe('probes find out what a server does', () => {
  it('a server like SkyRL 0.4.0', async () => {
    const { report, server } = await probed({
      wire: 'protobuf',
      reduction: 'sequence-mean',
      isolation: 'none',
      refuses: ['dro', 'gspo'],
    })
    expect(report).toMatchObject({
      wire: 'protobuf',
      deduplicates: true,
      reduction: 'sequence-mean',
      training: 'lora',
      samplerIsolation: 'none',
      samplingRollsBack: true,
      losses: { cross_entropy: true, importance_sampling: true, ppo: true, cispo: true, dro: false, gspo: false },
      maskInput: 'weights',
      seedsHonoured: true,
      seedStride: true,
      sampleLogprobs: 'raw',
      zeroLogprobs: false,
      echoesLogprobs: false,
      promptLogprobs: 'n-1',
      frozenBase: true,
      frozenBaseUntouched: true,
      gradNorm: true,
      context: undefined,
    })
    expect(report.samplerTrainerGap).toBeLessThan(1e-5)
    expect(server.models.size).toBe(0)
    expect(() => requireServer(report, needs)).not.toThrow()
    expect(checkTable(checkRows(report))).toContain('sequence-mean')
  })

  it('a server like SkyRL 0.3.0', async () => {
    const { report } = await probed({
      wire: 'json',
      deduplicates: false,
      reduction: 'sequence-mean',
      isolation: 'none',
    })
    expect(report).toMatchObject({ wire: 'json', deduplicates: false, samplerIsolation: 'none' })
  })

  it('a server of full weights is not trained by being probed', async () => {
    const { report, server } = await probed({ full: true, deduplicates: false, failures: 'verl' })
    expect(report).toMatchObject({ training: 'full', samplerIsolation: 'none', frozenBaseUntouched: false })
    expect(server.optimSteps).toBe(0)
    expect(() => requireServer(report, needs)).toThrow(/^engine\.worldModelUrl/)
    expect(() => requireServer(report, { ...needs, frozenBase: false })).not.toThrow()
  })

  it('a server that sums, isolates samplers and says its context', async () => {
    const { report } = await probed({ reduction: 'sum', isolation: 'snapshot', promptLogprobs: 'n', context: 4096 })
    expect(report).toMatchObject({
      reduction: 'sum',
      samplerIsolation: 'snapshot',
      samplingRollsBack: false,
      promptLogprobs: 'n',
      context: 4096,
      notes: [],
    })
  })

  it.each<[string, Partial<StubOptions>, Partial<Needs>, RegExp]>([
    ['zeros', { sampler: 'zeros' }, {}, /log-probabilities of 0/],
    ['processed log-probabilities', { sampler: 'off' }, {}, /differ by 1\.3/],
    ['a missing loss', { refuses: ['ppo'] }, { losses: ['ppo'] }, /refuses the loss ppo/],
    ['no gradient norm', { gradNorm: false }, {}, /reduces a loss/],
    ['entropy', {}, { entropy: true }, /^train\.entropy/],
    ['overlap without isolation', { isolation: 'none' }, { overlap: true }, /^train\.maxStaleness/],
    ['no context', {}, { context: undefined }, /^engine\.context/],
    ['too long', {}, { longest: 4000 }, /4000 tokens do not fit/],
  ])('%s is a configuration error before anything is paid for', async (_, stub, more, words) => {
    const { report } = await probed(stub)
    const f = (): void => requireServer(report, { ...needs, ...more })
    expect(f).toThrow(ConfigError)
    expect(f).toThrow(words)
  })
})
