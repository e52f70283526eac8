import { z } from 'zod'
import { TinkerError } from './failure.ts'
import type { WireDatum } from './wire/messages.ts'

/** What a model can take; a server checks none of it. */
export interface ModelLimits {
  /** Ids at and beyond it turn the model's numbers into NaN. */
  readonly vocab?: number
  /** Tokens of prompt and output together. */
  readonly context?: number
}

export const adamRequest = z.strictObject({
  learningRate: z.number().min(0),
  beta1: z.number().min(0).lt(1).optional(),
  beta2: z.number().min(0).lt(1).optional(),
  epsilon: z.number().positive().optional(),
  weightDecay: z.number().min(0).optional(),
  gradClipNorm: z.number().min(0).optional(),
})
export type AdamRequest = z.infer<typeof adamRequest>

export const loraRequest = z.strictObject({
  /** 0 trains all weights where the server can. */
  rank: z.number().int().min(0).max(4096),
  seed: z.number().int().min(0).optional(),
  trainUnembed: z.boolean().optional(),
  trainMlp: z.boolean().optional(),
  trainAttn: z.boolean().optional(),
})
export type LoraRequest = z.infer<typeof loraRequest>

export const sampleRequest = z.strictObject({
  prompt: z.array(z.number().int().min(0)).min(1).readonly(),
  count: z.number().int().min(1).optional(),
  maxTokens: z.number().int().min(1),
  /** Ids, or strings; servers cut strings after having generated everything. */
  stop: z
    .union([z.array(z.number().int().min(0)), z.array(z.string().min(1))])
    .readonly()
    .optional(),
  seed: z.number().int().min(0).max(0x7fffffff).optional(),
  temperature: z.number().min(0).optional(),
  topP: z.number().gt(0).max(1).optional(),
  topK: z.number().int().min(-1).optional(),
  promptLogprobs: z.boolean().optional(),
})
export type SampleCall = z.infer<typeof sampleRequest>

/** Names that every server takes. */
export const checkpointName = z.string().regex(/^[a-zA-Z0-9_-]{1,255}$/, 'letters, digits, _ and -, at most 255')

/** @throws TinkerError of kind `refused` naming the field. */
export function strict<T>(what: string, schema: z.ZodType<T>, value: unknown): T {
  const r = schema.safeParse(value)
  if (r.success) return r.data
  const issue = r.error.issues[0]!
  const at = issue.path.length > 0 ? `${issue.path.join('.')}: ` : ''
  throw new TinkerError(what, { kind: 'refused', detail: `${at}${issue.message}` }, { cause: r.error })
}

export function refuse(what: string, detail: string): never {
  throw new TinkerError(what, { kind: 'refused', detail })
}

/** Tensors that a loss cannot do without. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  cross_entropy: ['target_tokens', 'weights'],
  importance_sampling: ['target_tokens', 'logprobs', 'advantages'],
  ppo: ['target_tokens', 'logprobs', 'advantages'],
  cispo: ['target_tokens', 'logprobs', 'advantages'],
  dro: ['target_tokens', 'logprobs', 'advantages'],
  gspo: ['target_tokens', 'logprobs', 'advantages'],
}
/** Largest absolute value of a float32. */
const FLOAT32 = 3.4028234663852886e38

/**
 * Refuses every datum that a server was seen to compute nonsense from without a word: no data, no tokens, unequal lengths,
 * missing tensors, ids beyond the vocabulary, numbers that are not finite, sequences beyond the context, weights that sum to
 * nothing (a server that divides by them would blow up).
 */
export function checkData(
  what: string,
  data: readonly WireDatum[],
  loss: string,
  limits: ModelLimits,
  o: { readonly forwardOnly: boolean },
): void {
  if (data.length === 0) refuse(what, 'no data')
  const required = REQUIRED[loss] ?? []
  data.forEach((d, i) => {
    const at = `datum ${i}`
    const n = d.tokens.length
    if (n === 0) refuse(what, `${at} has no tokens`)
    if (limits.context !== undefined && n > limits.context)
      refuse(what, `${at} has ${n} tokens, the context holds ${limits.context}`)
    checkIds(what, `${at}, tokens`, d.tokens, limits.vocab)
    for (const name of required) if (!d.inputs[name]) refuse(what, `${at} lacks ${name}, which ${loss} needs`)
    for (const [name, t] of Object.entries(d.inputs)) {
      if (t.data.length !== n) refuse(what, `${at}: ${name} has ${t.data.length} entries for ${n} tokens`)
      if (name === 'target_tokens') checkIds(what, `${at}, target_tokens`, t.data, limits.vocab)
      for (let k = 0; k < n; k++) {
        const v = t.data[k]!
        if (t.dtype === 'int64' ? !Number.isSafeInteger(v) : !(Math.abs(v) <= FLOAT32))
          refuse(what, `${at}: ${name}[${k}] is ${v}`)
      }
    }
    const weights = d.inputs.weights?.data
    if (weights && !o.forwardOnly && !(weights.reduce((s, v) => s + v, 0) > 0))
      refuse(what, `${at}: the weights sum to nothing`)
  })
}

function checkIds(what: string, at: string, ids: readonly number[], vocab: number | undefined): void {
  for (let k = 0; k < ids.length; k++) {
    const v = ids[k]!
    if (!Number.isInteger(v) || v < 0 || v > 0x7fffffff || (vocab !== undefined && v >= vocab))
      refuse(what, `${at}: entry ${k} is ${v}${vocab === undefined ? '' : `, the vocabulary has ${vocab} ids`}`)
  }
}

export function checkSample(what: string, s: SampleCall, limits: ModelLimits): void {
  checkIds(what, 'prompt', s.prompt, limits.vocab)
  if (s.stop && typeof s.stop[0] === 'number') checkIds(what, 'stop', s.stop as readonly number[], limits.vocab)
  if (limits.context !== undefined && s.prompt.length + s.maxTokens > limits.context)
    refuse(
      what,
      `${s.prompt.length} prompt tokens and ${s.maxTokens} new ones do not fit a context of ${limits.context}`,
    )
}
