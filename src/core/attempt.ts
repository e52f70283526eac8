import type { AttemptId, ContentKey, WeightsVersion } from './ids.ts'
import type { Belief, Outcome, Scope, Unscorable } from './outcome.ts'
import type { Score } from './score.ts'

export type Suite = 'builtin' | 'small' | 'mle-dojo' | 'mle-bench' | 'dsbench'
export type Modality = 'tabular' | 'text' | 'image' | 'signal'
export type Split = 'train' | 'dev' | 'heldout'

export interface TaskRef {
  readonly suite: Suite
  readonly id: string
  readonly modality: Modality
  readonly split: Split
}

/** Python source text; `undefined` code means that the action held no program (the outcome is `malformed`). */
export interface Program {
  readonly code: string | undefined
}

/** What the agent reads after a turn; made by the one renderer. */
export interface Observation {
  readonly text: string
}

export interface PastTurn<A = Program> {
  readonly action: A
  readonly observation: Observation
}

export interface Attempt<A = Program> {
  readonly id: AttemptId
  readonly task: TaskRef
  readonly action: A
  readonly history: readonly PastTurn<A>[]
  readonly scope: Scope
}

/** Itemised cost of one verdict (invariant 12). Seconds are CPU unless named wall. */
export interface Cost {
  readonly sandboxCpuS: number
  readonly sandboxWallS: number
  readonly executions: number
  readonly predictedTokens: number
}
export const NO_COST: Cost = { sandboxCpuS: 0, sandboxWallS: 0, executions: 0, predictedTokens: 0 }

export type Verdict<O = Outcome, W = Belief> =
  | {
      readonly source: 'executed'
      readonly outcome: O
      readonly score: Score
      readonly observation: Observation
      readonly cost: Cost
    }
  | {
      readonly source: 'predicted'
      readonly belief: W
      readonly score: Score
      readonly spread: number
      readonly observation: Observation
      readonly cost: Cost
      readonly model: WeightsVersion
    }
  | { readonly source: 'executed' | 'predicted'; readonly unscorable: Unscorable; readonly cost: Cost }

/** Port: where verdicts that were paid for are kept. `commit` returns once the verdict is durable. */
export interface VerdictStore {
  find(key: ContentKey): Promise<Verdict | undefined>
  commit(key: ContentKey, v: Verdict): Promise<void>
}

/** Port: time, so that tests and replays need no real one. */
export interface Clock {
  /** Milliseconds of a monotone clock. */
  now(): number
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}
