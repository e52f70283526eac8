import { EngineError } from '../../core/index.ts'
import type { SampleRequest, TokenSequence } from '../contract.ts'
import type { ModelConfig } from './model-config.ts'

/** Throws on a request that cannot be sampled; the message names it. */
export function checkRequest(r: SampleRequest, i: number, config: ModelConfig): void {
  const what = `request ${i}`
  checkTokens(r.prompt, what, config)
  if (r.prompt.length >= config.context) {
    throw new EngineError(`${what}: a prompt of ${r.prompt.length} tokens leaves no room in ${config.context}`)
  }
  if (r.seeds.length !== r.count) throw new EngineError(`${what}: ${r.seeds.length} seeds for ${r.count} samples`)
  if (!Number.isInteger(r.count) || r.count < 1) throw new EngineError(`${what}: count ${r.count} is not positive`)
  if (!(r.maxTokens >= 1)) throw new EngineError(`${what}: maxTokens ${r.maxTokens} is not positive`)
  if (r.topP !== undefined && !(r.topP > 0 && r.topP <= 1)) {
    throw new EngineError(`${what}: topP ${r.topP} is outside (0, 1]`)
  }
}

export function checkTokens(tokens: TokenSequence, what: string, config: ModelConfig): void {
  if (tokens.length < 1 || tokens.length > config.context) {
    throw new EngineError(`${what}: ${tokens.length} tokens, the model holds 1..${config.context}`)
  }
  checkIds(tokens, what, config)
}

export function checkIds(ids: readonly number[], what: string, config: ModelConfig): void {
  for (const t of ids) {
    if (!Number.isInteger(t) || t < 0 || t >= config.vocab) {
      throw new EngineError(`${what}: token ${t} is outside the vocabulary of ${config.vocab}`)
    }
  }
}
