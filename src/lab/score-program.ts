import { cleanDetail, keyedSeed, render, type Scope } from '../core/index.ts'
import { type Executor, executionKey, folderHash } from '../executors/index.ts'
import type { BoardStore, Grader } from '../grading/index.ts'
import type { Limits } from '../sandbox/index.ts'
import type { Task } from '../tasks/index.ts'

/** A program's end before any leaderboard: raw scores where it was valid, the observation's text where it was not. */
export type RawResult =
  | {
      readonly kind: 'valid'
      readonly scores: Readonly<Partial<Record<Scope, number>>>
      readonly cpuS: number
      readonly cached: boolean
    }
  | { readonly kind: 'failed'; readonly text: string; readonly cpuS: number; readonly cached: boolean }
  | { readonly kind: 'unscorable'; readonly detail: string }

/** Boards that place every score: the laboratory wants raw scores, boards come later. */
export const RAW_BOARDS: BoardStore = { scores: () => [0, 1] }

/** Seed that a task's programs see, unless a run asks for another. */
export const taskSeed = (task: Task, seed = 0): number => keyedSeed('task', seed, task.ref.suite, task.ref.id)

export interface ProgramScorer {
  score(task: Task, code: string, scopes: readonly Scope[], signal: AbortSignal): Promise<RawResult>
}

/** Executes and grades programs of the laboratory: corpus, boards, head-room. */
export function programScorer(executor: Executor, grader: Grader, limits: Limits): ProgramScorer {
  const hashes = new Map<string, Promise<string>>()
  const hashOf = (dir: string): Promise<string> => {
    const h = hashes.get(dir) ?? folderHash(dir)
    hashes.set(dir, h)
    return h
  }
  return {
    async score(task, code, scopes, signal) {
      const seed = taskSeed(task)
      const key = executionKey({
        code,
        dataHash: await hashOf(task.publicDir),
        environment: executor.environment,
        limits,
        seed,
        rung: undefined,
      })
      const e = await executor.execute({ key, code, publicDir: task.publicDir, limits, seed }, signal)
      const cost = { cpuS: e.cost.cpuS, cached: e.cached }
      const failed = (text: string): RawResult => ({ kind: 'failed', text, ...cost })
      switch (e.end.kind) {
        case 'infra':
          return { kind: 'unscorable', detail: e.end.detail }
        case 'crashed':
        case 'syntax-error':
          return failed(
            render({ kind: e.end.kind, detail: cleanDetail(`${e.end.error.type}: ${e.end.error.message}`) }).text,
          )
        case 'timed-out':
        case 'out-of-memory':
          return failed(render({ kind: e.end.kind }).text)
        case 'finished': {
          if (!e.end.submission) return failed(render({ kind: 'invalid-submission', detail: 'no submission.csv' }).text)
          const scores: Partial<Record<Scope, number>> = {}
          for (const scope of scopes) {
            const g = await grader.grade(task, e.end.submission, scope)
            if (g.kind === 'fault') return { kind: 'unscorable', detail: g.message }
            if (g.kind === 'invalid') return failed(render({ kind: 'invalid-submission', detail: g.message }).text)
            scores[scope] = g.score
          }
          return { kind: 'valid', scores, ...cost }
        }
      }
    },
  }
}

/** Runs `jobs` with at most `width` at a time; the first throw stops the rest. */
export async function pool<T>(jobs: readonly (() => Promise<T>)[], width: number): Promise<T[]> {
  const out = new Array<T>(jobs.length)
  let next = 0
  const worker = async (): Promise<void> => {
    for (;;) {
      const k = next++
      if (k >= jobs.length) return
      out[k] = await jobs[k]!()
    }
  }
  await Promise.all(Array.from({ length: Math.min(width, jobs.length) }, worker))
  return out
}
