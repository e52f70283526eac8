import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { keyed } from '../../core/index.ts'
import { TinkerClient } from './client.ts'
import { isFailure } from './failure.ts'
import type { StartHeartbeat } from './heartbeat.ts'
import { fileJournal, type Journal } from './journal.ts'
import { type Fault, fastClock, PATIENT, type StubOptions, StubServer, TOY_BASE } from './testing/stub-server.ts'
import type { TrainingClient } from './training.ts'
import type { Ceilings } from './transport.ts'
import type { WireDatum } from './wire/messages.ts'

const noHeartbeat: StartHeartbeat = () => ({ key: () => undefined, stop: async () => undefined })

async function open(
  o: Partial<Omit<StubOptions, 'fault'>> & {
    fault?: StubOptions['fault'] | undefined
    journal?: Journal
    ceilings?: Partial<Ceilings>
    believes?: boolean
  } = {},
) {
  const { fault, ...rest } = o
  const server = new StubServer({ ...rest, ...(fault ? { fault } : {}), clock: fastClock })
  const client = new TinkerClient({
    baseUrl: 'http://stub',
    fetch: server.fetch,
    clock: fastClock,
    heartbeat: noHeartbeat,
    random: () => 0.5,
    traits: { deduplicates: o.believes ?? o.deduplicates ?? true, wire: o.wire ?? 'protobuf' },
    ...(o.journal ? { journal: o.journal } : {}),
    ceilings: { ...PATIENT, ...o.ceilings },
  })
  const session = await client.createSession()
  const model = await session.createModel({ baseModel: TOY_BASE, lora: { rank: 4 }, limits: { vocab: 32 } })
  return { server, client, session, model }
}

const datum = (tokens: readonly number[], target = tokens): WireDatum => ({
  tokens,
  inputs: {
    target_tokens: { data: target, dtype: 'int64' },
    weights: { data: tokens.map(() => 1), dtype: 'float32' },
  },
})
const step = async (model: TrainingClient): Promise<void> => {
  await model.forwardBackward([datum([1, 2, 3])], 'cross_entropy')
  await model.optimStep({ learningRate: 0.1 })
}
/** What N clean steps make of the toy. */
async function clean(n: number): Promise<number[]> {
  const { server, model } = await open()
  for (let i = 0; i < n; i++) await step(model)
  return server.models.get(model.id)!.model.theta
}

describe('lost, doubled and damaged replies', () => {
  it.each<[string, (u: number) => Fault | undefined]>([
    ['20 % of replies lost', (u) => (u < 0.2 ? { kind: 'lose-reply' } : undefined)],
    ['20 % of requests lost', (u) => (u < 0.2 ? { kind: 'lose-request' } : undefined)],
    ['20 % of requests delivered twice', (u) => (u < 0.2 ? { kind: 'duplicate' } : undefined)],
    ['20 % of requests delivered again, later', (u) => (u < 0.2 ? { kind: 'late-copy', ms: 2_000 } : undefined)],
    ['20 % of replies damaged', (u) => (u < 0.2 ? { kind: 'corrupt' } : undefined)],
    ['20 % of bodies stalled', (u) => (u < 0.2 ? { kind: 'stall' } : undefined)],
    ['20 % of requests delayed', (u) => (u < 0.2 ? { kind: 'delay', ms: 8_000 } : undefined)],
    [
      'all of it together',
      (u) =>
        u < 0.05
          ? { kind: 'lose-reply' }
          : u < 0.1
            ? { kind: 'lose-request' }
            : u < 0.15
              ? { kind: 'duplicate' }
              : u < 0.2
                ? { kind: 'corrupt' }
                : u < 0.25
                  ? { kind: 'answer', status: 503 }
                  : undefined,
    ],
  ])('%s: exactly N optimiser steps, the weights of a clean run', async (_, choose) => {
    const n = 25
    const random = keyed('faults', _)
    const { server, model } = await open({
      // The first exchanges make the model; what is tested is training.
      fault: (r) => (/forward|optim|retrieve/.test(r.path) ? choose(random.next()) : undefined),
      ceilings: { exchange: 30_000, poll: 30_000 },
    })
    for (let i = 0; i < n; i++) await step(model)
    await fastClock.sleep(5_000)
    expect(server.optimSteps).toBe(n)
    expect(server.forwardBackwards).toBe(n)
    expect(server.models.get(model.id)!.model.theta).toEqual(await clean(n))
  })

  it('never sends again what a server without de-duplication may have executed', async () => {
    let lost = false
    const { server, model } = await open({
      deduplicates: false,
      fault: (r) => {
        if (r.path !== '/optim_step' || lost) return undefined
        lost = true
        return { kind: 'lose-reply' }
      },
    })
    await model.forwardBackward([datum([1])], 'cross_entropy')
    const e = await model.optimStep({ learningRate: 0.1 }).catch((x: unknown) => x)
    expect(isFailure(e, 'ambiguous')).toBe(true)
    expect(server.seen.filter((s) => s.path === '/optim_step')).toHaveLength(1)
    await fastClock.sleep(1_000)
    expect(server.optimSteps).toBe(1)
  })

  it('sends it again where the connection was refused before anything was read', async () => {
    let refused = 0
    const { server, model, client } = await open({ deduplicates: false })
    const inner = client.transport.o.fetch
    Object.assign(client.transport.o, {
      fetch: (url: string, init: RequestInit) => {
        if (url.endsWith('/optim_step') && refused++ < 3)
          throw new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) })
        return inner(url, init)
      },
    })
    await step(model)
    expect(server.optimSteps).toBe(1)
  })

  it('sends the identical bytes again', async () => {
    let n = 0
    const { server, model } = await open({
      fault: (r) => (r.path === '/forward_backward' && n++ < 3 ? { kind: 'lose-reply' } : undefined),
    })
    await model.forwardBackward([datum([1, 2])], 'cross_entropy')
    const sent = server.seen.filter((s) => s.path === '/forward_backward')
    expect(sent).toHaveLength(4)
    expect(new Set(sent.map((s) => s.body)).size).toBe(1)
    expect(new Set(sent.map((s) => s.headers.get('x-idempotency-key'))).size).toBe(1)
  })
})

describe('answers and how they end', () => {
  const once = (path: string, fault: Fault): StubOptions['fault'] => {
    let done = false
    return (r) => {
      if (r.path !== path || done) return undefined
      done = true
      return fault
    }
  }

  it('a user fault is never sent twice', async () => {
    const { server, model } = await open({ refuses: ['ppo'] })
    const d = datum([1])
    const e = await model
      .forwardBackward(
        [{ ...d, inputs: { ...d.inputs, logprobs: d.inputs.weights!, advantages: d.inputs.weights! } }],
        'ppo',
      )
      .catch((x: unknown) => x)
    expect(isFailure(e, 'invalid')).toBe(true)
    expect(server.seen.filter((s) => s.path === '/forward_backward')).toHaveLength(1)
  })

  it.each(['skyrl', 'hosted', 'tuft', 'open-rl', 'verl'] as const)(
    'a failed future of %s ends the call',
    async (failures) => {
      const { client, session } = await open({ failures, maxModels: 1, wire: 'json' })
      const e = await session.createModel({ baseModel: TOY_BASE, lora: { rank: 4 } }).catch((x: unknown) => x)
      expect(isFailure(e, 'failed')).toBe(true)
      expect((e as Error).message).toContain('Maximum number of LoRA adapters')
      expect(client.journal.open()).toHaveLength(1)
    },
  )

  it('409 on a sequence number that was used with another body', async () => {
    const { model, session, server } = await open()
    await step(model)
    // Another writer, as after a crash without the journal.
    const twin = await session.createModel({ baseModel: TOY_BASE, lora: { rank: 4 } })
    Object.assign(twin, { id: model.id })
    const e = await twin.forwardBackward([datum([9])], 'cross_entropy').catch((x: unknown) => x)
    expect(isFailure(e, 'sequence-reused')).toBe(true)
    expect(server.forwardBackwards).toBe(1)
  })

  it('409 on a save: success after an own lost try, a failure when the name was taken', async () => {
    const { model } = await open({ fault: once('/save_weights', { kind: 'lose-reply' }) })
    expect((await model.save('one')).path).toBe(`tinker://${model.id}/weights/one`)
    const e = await model.save('one').catch((x: unknown) => x)
    expect(isFailure(e, 'exists')).toBe(true)
  })

  it('410: the original request is sent again under its number', async () => {
    const { server, model } = await open({
      fault: once('/retrieve_future', { kind: 'answer', status: 410, body: '{}' }),
    }).catch(() => ({ server: undefined, model: undefined }))
    // The first poll is that of create_model, which may be repeated.
    expect(model).toBeDefined()
    await step(model!)
    expect(server!.optimSteps).toBe(1)
  })

  it('404 on a poll: the server was restarted', async () => {
    const { server, model } = await open({ longPollMs: 1_000 })
    Object.assign(server.o, { workMs: 400_000 })
    const polls = (): number => server.seen.filter((x) => x.path === '/retrieve_future').length
    const before = polls()
    const running = model.forwardBackward([datum([1])], 'cross_entropy').catch((x: unknown) => x)
    while (polls() === before) await fastClock.sleep(1_000)
    server.restart()
    expect(isFailure(await running, 'future-unknown')).toBe(true)
  })

  it('an expired session', async () => {
    const { server, model } = await open()
    server.expire()
    const e = await model.forwardBackward([datum([1])], 'cross_entropy').catch((x: unknown) => x)
    expect(isFailure(e, 'model-lost')).toBe(true)
  })

  it('a stalled body ends at the deadline and the poll is repeated', async () => {
    const { model, server } = await open({
      fault: once('/retrieve_future', { kind: 'stall' }),
      ceilings: { poll: 2_000 },
    })
    await step(model)
    expect(server.optimSteps).toBe(1)
  })

  it('a future that never finishes ends at its ceiling, by name', async () => {
    const { session, model } = await open({ ceilings: { future: 20_000 } })
    const e = await (async () => {
      const slow = await open({ workMs: 1e7, longPollMs: 2_000, ceilings: { future: 20_000 } }).catch((x: unknown) => x)
      return slow
    })()
    expect(isFailure(e, 'timeout')).toBe(true)
    expect((e as Error).message).toContain('create_model')
    await model.unload()
    await session[Symbol.asyncDispose]()
  })

  it('a sample of fifteen minutes is waited for', async () => {
    const { model, server } = await open({ longPollMs: 40_000 })
    const sampler = await model.sampler()
    Object.assign(server.o, { workMs: 900_000 })
    const r = await sampler.sample({ prompt: [1], maxTokens: 3, seed: 1 })
    expect(r.sequences[0]!.tokens).toHaveLength(3)
  })

  it('Retry-After is honoured, a billing pause waited out, a proxy’s empty 400 tried again', async () => {
    for (const [fault, least] of [
      [{ kind: 'answer', status: 429, headers: { 'retry-after': '20' } }, 20_000],
      [{ kind: 'answer', status: 402, body: '{"detail":"no credit"}' }, 5_000],
      [{ kind: 'answer', status: 400 }, 0],
      [{ kind: 'answer', status: 503 }, 0],
    ] as const) {
      const { model, server } = await open({ fault: once('/optim_step', fault) })
      await model.forwardBackward([datum([1])], 'cross_entropy')
      const t = fastClock.now()
      await model.optimStep({ learningRate: 0.1 })
      expect(fastClock.now() - t).toBeGreaterThanOrEqual(least)
      expect(server.optimSteps).toBe(1)
    }
  })

  it('x-should-retry: false ends a 503 at once', async () => {
    const { model, server } = await open({
      fault: once('/optim_step', { kind: 'answer', status: 503, headers: { 'x-should-retry': 'false' } }),
    })
    const e = await model.optimStep({ learningRate: 0.1 }).catch((x: unknown) => x)
    expect(isFailure(e, 'unavailable')).toBe(true)
    expect(server.seen.filter((s) => s.path === '/optim_step')).toHaveLength(0)
  })

  it('a result that answers 500 for ever is final', async () => {
    const { server, session } = await open({ wire: 'json' })
    const model = await session.createModel({ baseModel: TOY_BASE, lora: { rank: 4 } })
    server.models.get(model.id)!.model.theta[1] = Number.NaN
    const e = await model.forwardBackward([datum([1])], 'cross_entropy').catch((x: unknown) => x)
    expect(isFailure(e, 'broken-result')).toBe(true)
  })

  it('refuses all-zero log-probabilities', async () => {
    const { model } = await open({ sampler: 'zeros' })
    const sampler = await model.sampler()
    const e = await sampler.sample({ prompt: [1], maxTokens: 4, seed: 1 }).catch((x: unknown) => x)
    expect(isFailure(e, 'not-finite')).toBe(true)
  })

  it('a result that was handed out already is told from a failure', async () => {
    let polls = 0
    const { model } = await open({
      failures: 'verl',
      deduplicates: false,
      fault: (r) => (r.path === '/retrieve_future' && r.body && polls++ === 2 ? { kind: 'lose-reply' } : undefined),
    })
    await model.forwardBackward([datum([1])], 'cross_entropy')
    const e = await model.optimStep({ learningRate: 0.1 }).catch((x: unknown) => x)
    expect(isFailure(e, 'future-taken')).toBe(true)
  })

  it('an abort ends a wait', async () => {
    const { model } = await open({ workMs: 1e6 }).catch(() => open())
    const abort = new AbortController()
    const p = model.forwardBackward([datum([1])], 'cross_entropy', {}, abort.signal)
    abort.abort(new Error('stop'))
    await expect(p).rejects.toThrow('stop')
  })
})

describe('chunks and order', () => {
  it('splits, numbers in order and joins', async () => {
    const { server, model, client } = await open()
    const config = await client.config()
    Object.assign(config, { fwdbwd_max_chunk_len: 2 })
    const out = await model.forwardBackward(
      [1, 2, 3, 4, 5].map((t) => datum([t])),
      'cross_entropy',
    )
    expect(server.forwardBackwards).toBe(3)
    expect(out.outputs).toHaveLength(5)
    const lp = server.models.get(model.id)!.model.logprobs()
    for (const [i, o] of out.outputs.entries()) expect(o.logprobs![0]).toBeCloseTo(lp[i + 1]!, 6)
  })

  it('keeps the order of calls that were not awaited', async () => {
    let first = true
    const { server, model } = await open({
      fault: (r) => {
        if (r.path !== '/forward_backward' || !first) return undefined
        first = false
        return { kind: 'delay', ms: 3_000 }
      },
    })
    await Promise.all([model.forwardBackward([datum([1])], 'cross_entropy'), model.optimStep({ learningRate: 0.1 })])
    const order = server.seen.map((s) => s.path).filter((p) => /forward|optim/.test(p))
    expect(order).toEqual(['/forward_backward', '/optim_step'])
  })
})

describe('journal', () => {
  const dirs: string[] = []
  afterEach(() => {
    for (const d of dirs.splice(0)) rmSync(d, { recursive: true, force: true })
  })
  const path = (): string => {
    const d = mkdtempSync(join(tmpdir(), 'wmrl-journal-'))
    dirs.push(d)
    return join(d, 'tinker.jsonl')
  }

  it('writes a number before it is used', async () => {
    const file = path()
    const journal = fileJournal(file)
    const { model } = await open({
      journal,
      fault: (r) => {
        if (r.path === '/optim_step') expect(fileJournal(file).open()[0]!.next).toBe(3)
        return undefined
      },
    })
    await step(model)
    expect(fileJournal(file).open()).toEqual([{ model: model.id, session: expect.any(String), next: 3 }])
    await model.unload()
    expect(fileJournal(file).open()).toEqual([])
  })

  it('reads on after a line that a crash cut', () => {
    const file = path()
    const j = fileJournal(file)
    j.opened('m', 's')
    writeFileSync(file, '{"op":"reserved","model":"m","ne', { flag: 'a' })
    const k = fileJournal(file)
    expect(k.open()).toEqual([{ model: 'm', session: 's', next: 1 }])
    k.reserved('m', 7)
    expect(fileJournal(file).open()[0]!.next).toBe(7)
  })
})
