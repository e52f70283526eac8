import type { Scope } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'
import type { GradeResult } from './grade.ts'

/** What the grader's process is told and answers; both sides are ours, the submission's bytes are not. */
export type GraderRequest =
  | {
      readonly type: 'load'
      readonly key: string
      readonly card: TaskCard
      readonly ids: readonly string[]
      readonly answers: Uint8Array
      readonly board: readonly number[]
      readonly scope: Scope
    }
  | { readonly type: 'grade'; readonly id: number; readonly key: string; readonly submission: Uint8Array }

export type GraderReply =
  | { readonly type: 'ready' }
  | { readonly type: 'loaded'; readonly key: string; readonly error?: string }
  | { readonly type: 'graded'; readonly id: number; readonly result: GradeResult }
