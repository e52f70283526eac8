import { isFailure, TinkerError } from './failure.ts'
import type { SamplingClient } from './sampling.ts'
import type { TinkerSession } from './session.ts'
import { shifted } from './shift.ts'
import type { TrainingClient } from './training.ts'
import { encodeForward, jsonForward, type WireDatum } from './wire/messages.ts'

/** What a server was seen to do. `unknown` where it could not be measured. */
export interface ServerReport {
  readonly model: string
  readonly wire: 'json' | 'protobuf'
  readonly deduplicates: boolean
  /** How a loss is reduced over tokens and data. */
  readonly reduction: 'sum' | 'sequence-mean' | 'unknown'
  readonly training: 'lora' | 'full' | 'unknown'
  /** `snapshot`: an old session keeps its weights; `none`: it samples the present ones. */
  readonly samplerIsolation: 'snapshot' | 'none'
  /** Whether sampling puts saved weights into the model that is being trained. */
  readonly samplingRollsBack: boolean
  readonly losses: Readonly<Record<string, boolean>>
  /** The name under which the ratio losses take the action mask; undefined: none is accepted or needed. */
  readonly maskInput: 'weights' | 'mask' | undefined
  readonly seedsHonoured: boolean
  /** Whether sample i of n has the seed s + i. */
  readonly seedStride: boolean
  /** Log-probabilities at another temperature: those of the model, or of the distribution sampled from. */
  readonly sampleLogprobs: 'raw' | 'processed' | 'unknown'
  readonly zeroLogprobs: boolean
  /** A reply's log-probabilities repeat the request's: agreement is then not measured. */
  readonly echoesLogprobs: boolean
  /** Largest difference between sampler and trainer on the same tokens; NaN where it could not be measured. */
  readonly samplerTrainerGap: number
  /** Entries of prompt log-probabilities for N tokens. */
  readonly promptLogprobs: 'n' | 'n-1' | 'none'
  readonly frozenBase: boolean
  readonly frozenBaseUntouched: boolean
  readonly gradNorm: boolean
  /** Tokens of prompt and output; undefined where the server does not say. */
  readonly context: number | undefined
  /** What was odd. */
  readonly notes: readonly string[]
}

export interface ProbeOptions {
  readonly baseModel: string
  readonly rank?: number
  /** Ids below it are used. */
  readonly vocab?: number
  /** Of the server's own list. */
  readonly context?: number | undefined
  readonly losses?: readonly string[]
  readonly onProbe?: (name: string) => void
}

const PROMPT = 6
const LENGTH = 17
const LR = 0.01

/**
 * Finds out how a server behaves by using a model of its own, which it unloads again. All data have one shape, so that a
 * compiling server compiles little. Nothing here is trained for long: three steps on one sequence.
 */
export async function probeServer(session: TinkerSession, o: ProbeOptions, signal: AbortSignal): Promise<ServerReport> {
  const notes: string[] = []
  const say = (name: string): void => o.onProbe?.(name)
  const vocab = o.vocab ?? 256
  const s = Array.from({ length: LENGTH }, (_, i) => 3 + ((i * 37 + 11) % (vocab - 4)))
  const mask = s.map((_, i) => (i >= PROMPT ? 1 : 0))
  const ce = shifted(s, { weights: mask })

  say('wire form')
  const wire = await wireForm(session, signal)
  session.client.traits = { ...session.client.traits, wire }
  say('model')
  const model = await scratch(session, o, signal)
  try {
    const info = await model.info(signal).catch(() => undefined)
    say('de-duplication')
    const deduplicates = await model.recognisesCopies([ce], 'cross_entropy', signal)
    session.client.traits = { ...session.client.traits, deduplicates }

    say('reduction')
    const live = async (): Promise<number[]> => [
      ...(await model.forward([ce], 'cross_entropy', {}, signal)).outputs[0]!.logprobs!,
    ]
    const before = await live()
    const clear = async (): Promise<number | undefined> => (await model.optimStep({ learningRate: 0 }, signal)).gradNorm
    await clear()
    const norm = async (data: readonly WireDatum[]): Promise<number | undefined> => {
      await model.forwardBackward(data, 'cross_entropy', {}, signal)
      return clear()
    }
    const one = await norm([ce])
    const two = await norm([ce, ce])
    const gradNorm = one !== undefined && two !== undefined
    const reduction =
      !gradNorm || !(one! > 0)
        ? 'unknown'
        : near(two! / one!, 2)
          ? 'sum'
          : near(two! / one!, 1)
            ? 'sequence-mean'
            : 'unknown'
    if (gradNorm && reduction === 'unknown') notes.push(`gradient norms of one datum and of two: ${one} and ${two}`)

    say('losses')
    const losses: Record<string, boolean> = { cross_entropy: true }
    let maskInput: ServerReport['maskInput']
    let echoes = false
    const ratio = (name: 'weights' | 'mask' | undefined): WireDatum =>
      shifted(s, {
        // Not the model's own: an echo shows.
        logprobs: s.map((_, i) => (i >= PROMPT ? -2 - i / 100 : 0)),
        advantages: mask,
        ...(name ? { [name]: mask } : {}),
      })
    for (const loss of o.losses ?? ['importance_sampling', 'ppo', 'cispo', 'dro', 'gspo']) {
      losses[loss] = false
      for (const name of loss === 'importance_sampling' ? (['weights', 'mask', undefined] as const) : [maskInput]) {
        const out = await refusedAsUndefined(model.forwardBackward([ratio(name)], loss, {}, signal))
        if (!out) continue
        losses[loss] = true
        if (loss === 'importance_sampling') {
          maskInput = name
          const lp = out.outputs[0]?.logprobs ?? []
          echoes = s
            .slice(PROMPT)
            .every((_, k) => Math.abs((lp[PROMPT - 1 + k] ?? 0) - (-2 - (PROMPT + k) / 100)) < 1e-5)
        }
        break
      }
      await clear()
    }

    say('frozen base')
    const base = await refusedAsUndefined(session.createSampler({ baseModel: o.baseModel }, {}, signal))
    const baseBefore = base ? await refusedAsUndefined(base.logprobs(s, signal)) : undefined

    // On a server with one set of full weights a training step would change the model itself, not a copy.
    const full = info?.lora === false
    if (full) notes.push('full weights: isolation was not probed, since that trains; sampling and training take turns')
    say('sampler isolation')
    const { isolation, rollsBack } = full
      ? { isolation: 'none' as const, rollsBack: false }
      : await isolationOf(model, { ce, s, before, live, notes }, signal)
    say('samples')
    const samples = await samplesOf(model, s, notes, signal)
    const baseAfter = base && baseBefore ? await refusedAsUndefined(base.logprobs(s, signal)) : undefined
    const offset = base ? await promptOffset(base, s, signal) : 'none'
    return {
      model: o.baseModel,
      wire,
      deduplicates,
      reduction,
      training: info?.lora === undefined ? 'unknown' : info.lora ? 'lora' : 'full',
      samplerIsolation: isolation,
      samplingRollsBack: rollsBack,
      losses,
      maskInput,
      ...samples,
      echoesLogprobs: echoes,
      promptLogprobs: offset,
      frozenBase: baseBefore !== undefined,
      frozenBaseUntouched:
        !full && baseBefore !== undefined && baseAfter !== undefined && gap(tail(baseBefore), tail(baseAfter)) < 1e-3,
      gradNorm,
      context: o.context,
      notes,
    }
  } finally {
    // A slot keeps gradients for its next model.
    const late = AbortSignal.timeout(30_000)
    await model.optimStep({ learningRate: 0 }, late).catch(() => undefined)
    await model.unload(late).catch(() => undefined)
  }
}

/** A model of one's own; what an earlier model left in its slot is cleared by the first optimiser step of the probes. */
async function scratch(session: TinkerSession, o: ProbeOptions, signal: AbortSignal): Promise<TrainingClient> {
  return session.createModel({ baseModel: o.baseModel, lora: { rank: o.rank ?? 4, seed: 7 } }, signal)
}

const UNKNOWN = 'model_probe'

/** Which form of forward_backward the server reads: asked with a model that does not exist, so nothing is computed. */
async function wireForm(session: TinkerSession, signal: AbortSignal): Promise<'json' | 'protobuf'> {
  const datum = shifted([5, 6, 7], { weights: [0, 1, 1] })
  const request = { modelId: UNKNOWN, seqId: 1, data: [datum], loss: 'cross_entropy' }
  const ask = async (protobuf: boolean): Promise<number> => {
    const r = await session.client.transport.exchange(
      {
        what: 'the wire form',
        method: 'POST',
        path: '/forward_backward',
        body: protobuf ? encodeForward(request) : Buffer.from(JSON.stringify(jsonForward(request))),
        contentType: protobuf ? 'application/x-protobuf' : 'application/json',
        repeatable: true,
      },
      session.client.transport.o.ceilings.exchange,
      {},
      signal,
    )
    return r.status
  }
  const json = await ask(false)
  if (json === 415) return 'protobuf'
  if (json === 404 || json === 200) return 'json'
  // Refused for some other reason: the form that knows the model is missing is the one it reads.
  return (await ask(true)) === 404 ? 'protobuf' : 'json'
}

/** Two steps of training around an old sampling session: does it stay, and does sampling it undo the training? */
async function isolationOf(
  model: TrainingClient,
  o: {
    readonly ce: WireDatum
    readonly s: readonly number[]
    readonly before: readonly number[]
    readonly live: () => Promise<number[]>
    readonly notes: string[]
  },
  signal: AbortSignal,
): Promise<{ isolation: ServerReport['samplerIsolation']; rollsBack: boolean }> {
  const old = await model.sampler(signal)
  await trainStep(model, o.ce, signal)
  const trained = await o.live()
  const first = await old.logprobs(o.s, signal).catch((e: unknown) => unmeasured(e, o.notes))
  const rollsBack = gap(await o.live(), trained) > 1e-3
  await trainStep(model, o.ce, signal)
  const later = await o.live()
  const again = await old.logprobs(o.s, signal).catch((e: unknown) => unmeasured(e, o.notes))
  const stays =
    first !== undefined &&
    again !== undefined &&
    gap(tail(first), tail(again)) < 1e-4 &&
    gap(tail(first), o.before) < 1e-2
  if (again && gap(tail(again), later) < 1e-3) o.notes.push('an old sampling session samples the present weights')
  return { isolation: stays && !rollsBack ? 'snapshot' : 'none', rollsBack }
}

type SampleFindings = Pick<
  ServerReport,
  'seedsHonoured' | 'seedStride' | 'sampleLogprobs' | 'zeroLogprobs' | 'samplerTrainerGap'
>

/** Seeds, and whether the log-probabilities of samples are those of the trainer. */
async function samplesOf(
  model: TrainingClient,
  s: readonly number[],
  notes: string[],
  signal: AbortSignal,
): Promise<SampleFindings> {
  const sampler = await model.sampler(signal)
  const prompt = s.slice(0, PROMPT)
  const draw = (seed: number, more: object = {}) =>
    sampler.sample({ prompt, maxTokens: LENGTH - PROMPT, seed, ...more }, signal)
  let asked: Awaited<ReturnType<typeof draw>>
  try {
    asked = await draw(11)
  } catch (e) {
    if (!isFailure(e, 'not-finite')) throw e
    notes.push(e.message)
    return {
      seedsHonoured: false,
      seedStride: false,
      sampleLogprobs: 'unknown',
      zeroLogprobs: e.failure.detail.includes('are 0'),
      samplerTrainerGap: Number.NaN,
    }
  }
  const same = (a: typeof asked, i: number, b: typeof asked): boolean =>
    a.sequences[i]?.tokens.join() === b.sequences[0]?.tokens.join()
  const twin = await draw(11)
  const other = await draw(12)
  const several = await draw(11, { count: 2 })
  const honoured = same(asked, 0, twin) && !same(asked, 0, other)
  const check = async (q: typeof asked): Promise<number> => {
    const full = [...prompt, ...q.sequences[0]!.tokens]
    const d = shifted(full, { weights: full.map((_, i) => (i >= PROMPT ? 1 : 0)) })
    const lp = (await model.forward([d], 'cross_entropy', {}, signal)).outputs[0]!.logprobs!
    return gap(lp.slice(PROMPT - 1), q.sequences[0]!.logprobs)
  }
  const sampled = await check(asked)
  const cold = await check(await draw(13, { temperature: 0.5 }))
  return {
    seedsHonoured: honoured,
    seedStride: honoured && same(several, 0, asked) && same(several, 1, other),
    sampleLogprobs: cold < Math.max(0.02, 4 * sampled) ? 'raw' : 'processed',
    zeroLogprobs: false,
    samplerTrainerGap: sampled,
  }
}

async function trainStep(model: TrainingClient, datum: WireDatum, signal: AbortSignal): Promise<void> {
  await model.forwardBackward([datum], 'cross_entropy', {}, signal)
  await model.optimStep({ learningRate: LR }, signal)
}

async function promptOffset(
  base: SamplingClient,
  tokens: readonly number[],
  signal: AbortSignal,
): Promise<'n' | 'n-1' | 'none'> {
  const r = await refusedAsUndefined(
    base.sample({ prompt: tokens, maxTokens: 1, seed: 0, promptLogprobs: true }, signal),
  )
  return r?.promptEntries === tokens.length ? 'n' : r?.promptEntries === tokens.length - 1 ? 'n-1' : 'none'
}

/** A refusal is a finding; anything else is trouble. */
async function refusedAsUndefined<T>(p: Promise<T>): Promise<T | undefined> {
  try {
    return await p
  } catch (e) {
    if (isFailure(e, 'invalid', 'failed', 'not-found', 'unreadable', 'broken-result', 'not-finite')) return undefined
    throw e
  }
}

function unmeasured(e: unknown, notes: string[]): undefined {
  if (!(e instanceof TinkerError)) throw e
  notes.push(e.message)
  return undefined
}

const near = (a: number, b: number): boolean => Math.abs(a - b) < 0.02 * b
const tail = (a: Float32Array): number[] => [...a].slice(1)
const gap = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((m, v, i) => Math.max(m, Math.abs(v - (b[i] ?? Number.POSITIVE_INFINITY))), 0)
