import type { Tensor, WireDatum } from './wire/messages.ts'

/** Float tensors of a datum, one entry a token of the whole sequence; entry 0 (which nothing predicts) is dropped. */
export function shifted(tokens: readonly number[], floats: Readonly<Record<string, readonly number[]>>): WireDatum {
  const inputs: Record<string, Tensor> = { target_tokens: { data: tokens.slice(1), dtype: 'int64' } }
  for (const [name, values] of Object.entries(floats)) inputs[name] = { data: values.slice(1), dtype: 'float32' }
  return { tokens: tokens.slice(0, -1), inputs }
}

/** A server's log-probabilities back in step with the tokens; entry 0 is NaN. */
export function unshifted(logprobs: readonly number[]): Float32Array {
  const out = new Float32Array(logprobs.length + 1)
  out[0] = Number.NaN
  out.set(logprobs, 1)
  return out
}
