import { z } from 'zod'
import { isProtobuf, type Reply } from './reading.ts'
import { decodeForwardOutput, decodeSampleOutput, type ForwardOutput, type SampleOutput } from './wire/messages.ts'

/** Answers are read leniently: unknown fields stay unread, and what some server leaves out is optional. */
const id = z.union([z.string().min(1), z.number().int().transform(String)])

export const submitted = z.object({ request_id: id, model_id: z.string().nullish() })
export const clientConfig = z.object({
  pjwt_auth_enabled: z.boolean().nullish(),
  parallel_fwdbwd_chunks: z.boolean().nullish(),
  fwdbwd_max_chunk_len: z.number().int().positive().nullish(),
  fwdbwd_max_chunk_bytes_count: z.number().int().positive().nullish(),
  sample_max_concurrent_requests: z.number().int().positive().nullish(),
})
export type ClientConfig = z.infer<typeof clientConfig>
export const authToken = z.object({ jwt: z.string().min(1) })
export const capabilitiesAnswer = z.object({
  supported_models: z.array(
    z.object({ model_name: z.string(), max_context_length: z.number().int().positive().nullish() }),
  ),
})
export const sessionAnswer = z.object({
  session_id: z.string(),
  info_message: z.string().nullish(),
  warning_message: z.string().nullish(),
  error_message: z.string().nullish(),
})
export const samplingSessionAnswer = z.object({ sampling_session_id: z.string() })
export const createdModel = z.object({
  model_id: z.string().nullish(),
  lora_config: z.object({ rank: z.number().nullish() }).nullish(),
})
export const modelInfo = z.object({
  model_data: z
    .object({
      tokenizer_id: z.string().nullish(),
      model_name: z.string().nullish(),
      lora_config: z.object({ rank: z.number().nullish() }).nullish(),
    })
    .nullish(),
  is_lora: z.boolean().nullish(),
  lora_rank: z.number().nullish(),
})
export const weightsInfo = z.object({
  base_model: z.string().nullish(),
  is_lora: z.boolean().nullish(),
  lora_rank: z.number().nullish(),
})
export const stepAnswer = z.object({ metrics: z.record(z.string(), z.number().nullable()).nullish() })
export const savedAnswer = z.object({ path: z.string() })
export const samplerAnswer = z.object({
  path: z.string().nullish(),
  sampling_session_id: z.string().nullish(),
})
export const checkpointsAnswer = z.object({
  checkpoints: z.array(
    z.object({
      checkpoint_id: z.string().nullish(),
      checkpoint_type: z.string().nullish(),
      tinker_path: z.string(),
    }),
  ),
})

const numbers = z.array(
  z
    .number()
    .nullable()
    .transform((v) => v ?? Number.NaN),
)
const jsonForwardOutput = z.object({
  loss_fn_output_type: z.string().nullish(),
  loss_fn_outputs: z.array(z.record(z.string(), z.object({ data: numbers }))),
  metrics: z.record(z.string(), z.number().nullable()).nullish(),
})
const jsonSampleOutput = z.object({
  sequences: z.array(
    z.object({
      tokens: z.array(z.number().int()),
      logprobs: numbers.nullish(),
      stop_reason: z.string().nullish(),
    }),
  ),
  prompt_logprobs: z.array(z.number().nullable()).nullish(),
})

/** A loss's result in whichever form it came: the Content-Type decides, not what was asked for. */
export function readForward(reply: Reply, json: unknown): ForwardOutput {
  if (isProtobuf(reply)) return decodeForwardOutput(reply.body)
  const o = jsonForwardOutput.parse(json)
  return {
    type: o.loss_fn_output_type ?? '',
    outputs: o.loss_fn_outputs.map((r) => Object.fromEntries(Object.entries(r).map(([k, t]) => [k, t.data]))),
    metrics: Object.fromEntries(Object.entries(o.metrics ?? {}).map(([k, v]) => [k, v ?? Number.NaN])),
  }
}

export function readSample(reply: Reply, json: unknown): SampleOutput {
  if (isProtobuf(reply)) return decodeSampleOutput(reply.body)
  const o = jsonSampleOutput.parse(json)
  return {
    sequences: o.sequences.map((s) => ({
      tokens: s.tokens,
      logprobs: s.logprobs ?? null,
      stopReason: s.stop_reason === 'length' ? 'length' : 'stop',
    })),
    promptLogprobs: o.prompt_logprobs ?? null,
  }
}
