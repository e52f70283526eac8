import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { TinkerClient } from './client.ts'
import { isFailure } from './failure.ts'
import { type Reading, type Reply, readAnswer, readPoll } from './reading.ts'
import { readForward, readSample } from './responses.ts'
import { fastClock } from './testing/stub-server.ts'
import { encodeForward, type Tensor } from './wire/messages.ts'

interface Exchange {
  readonly name: string
  readonly request: {
    readonly method: string
    readonly path: string
    // biome-ignore lint/suspicious/noExplicitAny: recorded
    readonly body?: any
    readonly body_base64?: string
    // biome-ignore lint/suspicious/noExplicitAny: recorded
    readonly decoded?: any
  }
  readonly response: {
    readonly status?: number
    readonly content_type?: string
    readonly body?: unknown
    readonly body_text?: string
    readonly body_base64?: string
    readonly location?: string
    // biome-ignore lint/suspicious/noExplicitAny: recorded
    readonly decoded?: any
  }
}
const load = (name: string): Exchange[] =>
  JSON.parse(readFileSync(new URL(`./__fixtures__/${name}.json`, import.meta.url), 'utf8')) as Exchange[]
const folders = ['skyrl-0.4.0', 'skyrl-0.3.0', 'sdk-0.25.0-to-skyrl-0.4.0', 'sdk-0.38.0-to-skyrl-0.4.0']

function replyOf(e: Exchange): Reply {
  const r = e.response
  const body = r.body_base64
    ? Buffer.from(r.body_base64, 'base64')
    : Buffer.from(r.body_text ?? (r.body === undefined ? '' : JSON.stringify(r.body)))
  return { status: r.status!, contentType: r.content_type ?? '', headers: new Headers(), body }
}
const read = (e: Exchange): Reading =>
  e.request.path.endsWith('/retrieve_future') ? readPoll(replyOf(e), 0) : readAnswer(replyOf(e), 0)
const nulls = (a: readonly (number | null)[]): (number | null)[] =>
  a.map((v) => (v === null || Number.isNaN(v) ? null : v === 0 ? 0 : v))

describe.each(folders)('%s', (folder) => {
  const all = load(folder).filter((e) => e.response.status !== undefined)

  it('encodes every recorded protobuf body byte for byte', () => {
    const sent = all.filter((e) => e.request.decoded && e.request.body_base64)
    for (const e of sent) {
      const d = e.request.decoded
      const x = d.forward_backward_input
      const made = encodeForward({
        modelId: d.model_id,
        seqId: d.seq_id ?? 0,
        loss: x.loss_fn,
        ...(x.loss_fn_config ? { config: x.loss_fn_config } : {}),
        forwardOnly: d.forward_only,
        data: x.data.map((y: { model_input: { chunks: { tokens: number[] }[] }; loss_fn_inputs: object }) => ({
          tokens: y.model_input.chunks.flatMap((c) => c.tokens),
          inputs: Object.fromEntries(
            Object.entries(y.loss_fn_inputs).map(([k, t]: [string, { data: (number | null)[]; dtype: string }]) => [
              k,
              { data: t.data.map((v) => v ?? Number.NaN), dtype: t.dtype as Tensor['dtype'] },
            ]),
          ),
        })),
      })
      expect(Buffer.from(made).toString('base64'), e.name).toBe(e.request.body_base64)
    }
    if (folder === 'skyrl-0.4.0') expect(sent.length).toBeGreaterThan(10)
  })

  it('decodes every recorded result', () => {
    const results = all.filter((e) => e.response.status === 200 && e.request.path.endsWith('/retrieve_future'))
    let losses = 0
    let samples = 0
    for (const e of results) {
      // Its arrays were cut for the record.
      if (e.name === 'err-fb-overlong-result') continue
      const recorded = e.response.decoded ?? e.response.body
      const json = e.response.decoded ? undefined : recorded
      if (recorded.loss_fn_outputs) {
        losses++
        const out = readForward(replyOf(e), json)
        recorded.loss_fn_outputs.forEach((row: Record<string, { data: (number | null)[] }>, i: number) => {
          for (const [k, t] of Object.entries(row)) expect(nulls(out.outputs[i]![k]!), e.name).toEqual(t.data)
        })
      } else if (recorded.sequences) {
        samples++
        const out = readSample(replyOf(e), json)
        expect(
          out.sequences.map((s) => ({ ...s, logprobs: nulls(s.logprobs ?? []) })),
          e.name,
        ).toEqual(
          recorded.sequences.map((s: { tokens: number[]; logprobs: number[]; stop_reason: string }) => ({
            tokens: s.tokens,
            logprobs: s.logprobs,
            stopReason: s.stop_reason,
          })),
        )
        expect(out.promptLogprobs ?? undefined, e.name).toEqual(recorded.prompt_logprobs ?? undefined)
      }
    }
    expect(losses).toBeGreaterThan(0)
    if (folder.startsWith('skyrl')) expect(samples).toBeGreaterThan(5)
  })

  it('takes 2xx as done, whatever it says, and every other answer as its failure', () => {
    for (const e of all) {
      const r = read(e)
      const s = e.response.status!
      if (s < 300) expect(r.is, e.name).toBe('done')
      else if (s === 302) continue
      else if (s === 500) expect(r, e.name).toMatchObject({ is: 'again', why: 'internal' })
      else expect(r.is, e.name).toBe('failed')
    }
  })
})

describe('failures of skyrl 0.4.0', () => {
  const all = load('skyrl-0.4.0')
  const kindOf = (name: string): unknown => {
    const r = read(all.find((e) => e.name === name)!)
    return r.is === 'failed' ? r.failure.kind : r.is
  }
  it.each([
    ['err-heartbeat-unknown', 'not-found'],
    ['err-replay-same-seq-other-body', 'sequence-reused'],
    ['err-save-weights-name-taken', 'exists'],
    ['err-save-weights-bad-name', 'invalid'],
    ['err-load-weights-not-first', 'invalid'],
    ['err-fb-unknown-model', 'not-found'],
    ['err-fb-bad-loss', 'invalid'],
    ['err-fb-gspo-result', 'failed'],
    ['err-sample-no-max-tokens', 'invalid'],
    ['err-sample-stop-mixed', 'invalid'],
    ['err-sample-unknown-session', 'not-found'],
    ['err-create-model-adapters-full-result', 'failed'],
    ['err-future-unknown', 'future-unknown'],
    ['err-future-not-integer', 'again'],
    ['err-fb-after-unload-result', 'model-lost'],
    ['err-fb-json-body', 'invalid'],
    ['err-fb-garbage-protobuf', 'invalid'],
    ['base-sample-after-poison-result', 'again'],
  ])('%s is %s', (name, kind) => {
    expect(kindOf(name)).toBe(kind)
  })

  it('names the field of a validation error', () => {
    const r = read(all.find((e) => e.name === 'err-optim-negative-lr')!)
    expect(r).toMatchObject({ failure: { issues: [{ at: 'adam_params.learning_rate' }] } })
  })

  it('reads the other servers’ words for a failed future', () => {
    const say = (status: number, body: object): Reading =>
      readPoll(
        {
          status,
          contentType: 'application/json',
          headers: new Headers(),
          body: Buffer.from(JSON.stringify(body)),
        },
        0,
      )
    expect(say(200, { error: 'bad', category: 'user' })).toMatchObject({
      failure: { kind: 'failed', category: 'user' },
    })
    expect(say(422, { detail: 'Future failed: bad' })).toMatchObject({ failure: { kind: 'failed' } })
    expect(say(400, { type: 'RequestFailedResponse', error_message: 'bad' })).toMatchObject({
      failure: { kind: 'failed', detail: 'bad' },
    })
    expect(say(200, { error: "ValueError('bad')", category: 'Application' })).toMatchObject({
      failure: { kind: 'failed', category: 'unknown' },
    })
    expect(say(200, { error: 'future id result already retrieved', category: 'Application' })).toMatchObject({
      failure: { kind: 'future-taken' },
    })
    expect(say(410, { detail: 'expired' })).toMatchObject({ failure: { kind: 'future-expired' } })
    expect(say(200, { type: 'try_again', queue_state: 'paused_capacity' })).toMatchObject({
      is: 'pending',
      queue: 'paused_capacity',
    })
    expect(
      say(408, load('timeouts-skyrl-0.3.0').find((e) => e.response.status === 408)!.response.body as object).is,
    ).toBe('pending')
  })
})

/** Answers as the recorded server did: the n-th request to a path gets the n-th recorded answer, a poll its request's. */
function replaying(folder: string, names: readonly string[]) {
  const all = load(folder)
  const queue = names
    .map((n) => all.findIndex((e) => e.name === n))
    .map((i) => ({ submit: all[i]!, result: all[i + 1]! }))
  const config = all.find((e) => e.request.path.endsWith('/client/config'))!
  const results = new Map<string, Exchange>()
  const sent: { path: string; body: Buffer }[] = []
  const respond = (e: Exchange): Response => {
    const r = replyOf(e)
    return new Response(Buffer.from(r.body), { status: r.status, headers: { 'content-type': r.contentType } })
  }
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const path = new URL(url).pathname
    const body = Buffer.from((init.body as Uint8Array | undefined) ?? [])
    sent.push({ path, body })
    if (path.endsWith('/client/config')) return respond(config)
    if (path.endsWith('/retrieve_future'))
      return respond(results.get((JSON.parse(body.toString()) as { request_id: string }).request_id)!)
    const at = queue.findIndex((q) => q.submit.request.path.split('?')[0] === path)
    const [next] = queue.splice(at, 1)
    const id = (next!.submit.response.body as { request_id?: string }).request_id
    if (id) results.set(id, next!.result)
    return respond(next!.submit)
  }
  return { fetch, sent }
}

describe('a recorded life of a model', () => {
  it.each([
    ['skyrl-0.4.0', 'forward-only', 'prompt-logprobs'],
    ['skyrl-0.3.0', 'forward-only', 'prompt-logprobs'],
  ])('%s', async (folder) => {
    const recorded = load(folder)
    const { fetch, sent } = replaying(folder, [
      'capabilities',
      'create-session',
      'create-model',
      ...(folder === 'skyrl-0.4.0' ? ['forward-only', 'forward-only-proto'] : ['forward-only']),
      'fb-cross-entropy',
      'optim-step',
      'save-for-sampler-ephemeral',
      'sample-8',
      'prompt-logprobs',
      'save-weights',
      'unload-model',
    ])
    const client = new TinkerClient({
      baseUrl: 'http://recorded',
      fetch,
      clock: fastClock,
      heartbeat: () => ({ key: () => undefined, stop: async () => undefined }),
    })
    const [base] = await client.models()
    const session = await client.createSession({ tags: ['wmrl'] })
    const model = await session.createModel({
      baseModel: base!.name,
      lora: { rank: 4, seed: 7 },
      limits: { vocab: 512 },
    })
    const data = (
      recorded.find((e) => e.name === 'fb-cross-entropy')!.request.decoded ??
      recorded.find((e) => e.name === 'fb-cross-entropy')!.request.body
    ).forward_backward_input.data
    const datum = {
      tokens: data[0].model_input.chunks[0].tokens as number[],
      inputs: data[0].loss_fn_inputs as Record<string, Tensor>,
    }
    const forward = await model.forward([datum, datum])
    expect(forward.outputs).toHaveLength(2)
    expect(client.traits.wire).toBe(folder === 'skyrl-0.4.0' ? 'protobuf' : 'auto')
    const fb = await model.forwardBackward([datum], 'cross_entropy')
    expect(fb.outputs[0]!.logprobs).toHaveLength(datum.tokens.length)
    const step = await model.optimStep({ learningRate: 0.01 })
    expect(step.gradNorm).toBeGreaterThan(1)
    const sampler = await model.sampler()
    const { sequences } = await sampler.sample({ prompt: datum.tokens.slice(0, 6), count: 8, maxTokens: 12, seed: 11 })
    expect(sequences).toHaveLength(8)
    const lp = await sampler.logprobs([...datum.tokens, 444])
    expect(lp).toHaveLength(17)
    expect(lp[0]).toBeNaN()
    expect([...lp.slice(1)].every((v) => v < 0)).toBe(true)
    const saved = await model.save('step_1')
    expect(saved.path).toMatch(/^tinker:\/\/model_\w+\/weights\/step_1$/)
    await model.unload()
    // What went out equals what the recorded client sent, but for the fields that differ on purpose.
    const optim = JSON.parse(sent.find((s) => s.path.endsWith('/optim_step'))!.body.toString()) as object
    expect(optim).toMatchObject({
      seq_id: 3,
      adam_params: { learning_rate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-12 },
    })
  })

  it('refuses what the recorded servers accepted in silence', async () => {
    const { fetch, sent } = replaying('skyrl-0.4.0', ['create-session', 'create-model'])
    const client = new TinkerClient({
      baseUrl: 'http://recorded',
      fetch,
      clock: fastClock,
      heartbeat: () => ({ key: () => undefined, stop: async () => undefined }),
    })
    const session = await client.createSession()
    const model = await session.createModel({ baseModel: 'b', lora: { rank: 4 }, limits: { vocab: 512, context: 20 } })
    const before = sent.length
    const f = (data: readonly number[]): Tensor => ({ data, dtype: 'float32' })
    const t = (data: readonly number[]): Tensor => ({ data, dtype: 'int64' })
    const ok = { target_tokens: t([2, 3]), weights: f([1, 1]), logprobs: f([-1, -1]), advantages: f([1, 1]) }
    const cases: [readonly { tokens: number[]; inputs: Record<string, Tensor> }[], string][] = [
      [[], 'no data'],
      [[{ tokens: [], inputs: {} }], 'no tokens'],
      [[{ tokens: [1, 2], inputs: { ...ok, weights: f([1]) } }], '1 entries for 2'],
      [[{ tokens: [1, 2], inputs: { target_tokens: t([2, 3]), weights: f([1, 1]) } }], 'lacks logprobs'],
      [[{ tokens: [1, 512], inputs: ok }], 'vocabulary'],
      [[{ tokens: [1, 2], inputs: { ...ok, target_tokens: t([1, 999]) } }], 'vocabulary'],
      [[{ tokens: [1, 2], inputs: { ...ok, advantages: f([Number.NaN, 0]) } }], 'NaN'],
      [[{ tokens: [1, 2], inputs: { ...ok, logprobs: f([Number.NEGATIVE_INFINITY, 0]) } }], 'Infinity'],
      [[{ tokens: [1, 2], inputs: { ...ok, weights: f([0, 0]) } }], 'sum to nothing'],
      [[{ tokens: Array.from({ length: 21 }, () => 1), inputs: ok }], 'context'],
    ]
    for (const [data, words] of cases) {
      const e = await model.forwardBackward(data, 'importance_sampling').catch((x: unknown) => x)
      expect(isFailure(e, 'refused'), words).toBe(true)
      expect((e as Error).message).toContain(words)
    }
    await expect(model.optimStep({ learningRate: -1 })).rejects.toMatchObject({ failure: { kind: 'refused' } })
    await expect(model.save('bad name/..')).rejects.toMatchObject({ failure: { kind: 'refused' } })
    expect(sent.length).toBe(before)
  })
})
