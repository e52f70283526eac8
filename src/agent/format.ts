import type { Observation, Program, TaskRef } from '../core/index.ts'
import type { NanoCodec } from '../engine/text/index.ts'

/** How an agent's turns become tokens. Prompts are made once; later turns only append. */
export interface AgentFormat {
  /** Ids that end an action. */
  readonly stop: readonly number[]
  /** Most tokens of one action. */
  readonly maxActionTokens: number
  /** Most tokens of one observation; longer ones keep head and tail. */
  readonly maxObservationTokens: number
  prompt(task: TaskRef): Promise<readonly number[]>
  /** The program in sampled tokens; `complete` is false where the action was cut by its limit. */
  parse(task: TaskRef, tokens: readonly number[], complete: boolean): Promise<Program>
  /**
   * What is appended after an action for the next turn, up to where the next action begins. `last` is the action's last
   * token: an action that was cut has no end of its own.
   */
  observe(task: TaskRef, observation: Observation, last: number | undefined): Promise<readonly number[]>
}

/** Keeps the first and last tokens where there are too many: errors are named at either end. */
export function capTokens(tokens: readonly number[], limit: number): number[] {
  if (tokens.length <= limit) return [...tokens]
  const head = Math.ceil(limit / 2)
  return [...tokens.slice(0, head), ...tokens.slice(tokens.length - (limit - head))]
}

/** The embedded agent's format: the action is a program and nothing else. */
export function nanoFormat(
  codec: NanoCodec,
  brief: (task: TaskRef) => Promise<{ text: string; names: readonly string[] }>,
  limits: { action: number; observation: number },
): AgentFormat {
  return {
    stop: [codec.ids.end],
    maxActionTokens: limits.action,
    maxObservationTokens: limits.observation,
    async prompt(task) {
      const { text, names } = await brief(task)
      return codec.prompt(text, names)
    },
    async parse(task, tokens, complete) {
      if (!complete) return { code: undefined }
      const { names } = await brief(task)
      const code = codec.decodeProgram(tokens, names)
      return { code: code.trim() === '' ? undefined : code }
    },
    async observe(task, observation) {
      const { names } = await brief(task)
      const inner = codec.outcome(observation.text, names)
      return [codec.ids.obs, ...capTokens(inner, limits.observation), codec.ids.end, codec.ids.code]
    },
  }
}
