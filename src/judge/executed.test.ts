import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Attempt, attemptId, folderHash, type Verdict } from '../core/index.ts'
import { CachedExecutor, type Execution, type Executor, memoryStore } from '../executors/index.ts'
import type { GradeResult, Grader } from '../grading/index.ts'
import { toyTask } from '../grading/testing.ts'
import type { RunEnd } from '../sandbox/index.ts'
import type { Task } from '../tasks/index.ts'
import { ExecutedJudge, LIMIT_PROFILES } from './index.ts'

const signal = new AbortController().signal
const graded: GradeResult = { kind: 'scored', scope: 'feedback', score: 2, percentile: 0.5, n: 2 }

interface Trouble {
  /** Ends and faults of the first calls; what comes after works. */
  readonly ends?: readonly RunEnd[]
  readonly grades?: readonly GradeResult[]
  readonly syntax?: readonly Error[]
  readonly tasks?: readonly Error[]
}

/** A judge whose sandbox writes another submission every time that it is started. */
function judgeOf(task: Task, change: Trouble = {}) {
  const trouble: Required<Trouble> = { ends: [], grades: [], syntax: [], tasks: [], ...change }
  const count = { syntax: 0, executions: 0, grades: 0, tasks: 0 }
  const seen: string[] = []
  const inner: Executor = {
    rung: 'A',
    environment: 'e',
    checkSyntax: async () => {
      const e = trouble.syntax[count.syntax++]
      if (e) throw e
      return undefined
    },
    execute: async (): Promise<Execution> => {
      const end = trouble.ends[count.executions++] ?? {
        kind: 'finished',
        submission: new TextEncoder().encode(`run ${count.executions}`),
      }
      const none = new Uint8Array()
      const cost = { cpuS: 1, wallS: 2, peakBytes: 3 }
      return { end, stdout: none, stderr: none, cost, rung: 'A', cached: false }
    },
    [Symbol.asyncDispose]: async () => {},
  }
  const grader: Grader = {
    grade: async (_, submission, scope) => {
      seen.push(`${scope} ${new TextDecoder().decode(submission)}`)
      return trouble.grades[count.grades++] ?? { ...graded, scope }
    },
    version: async () => 'v',
    [Symbol.asyncDispose]: async () => {},
  }
  const judge = new ExecutedJudge({
    executor: new CachedExecutor(inner, memoryStore()),
    grader,
    limits: LIMIT_PROFILES.demo,
    taskSeed: 0,
    task: async () => {
      const e = trouble.tasks[count.tasks++]
      if (e) throw e
      return task
    },
  })
  const one = (scope: 'feedback' | 'final' = 'feedback'): Promise<Verdict> => {
    const a: Attempt = { id: attemptId('x'), task: task.ref, action: { code: 'p' }, history: [], scope }
    return judge.judge([a], signal)[0]!
  }
  return { one, count, seen }
}

const infra: RunEnd = { kind: 'infra', detail: 'the fork server ended' }
const fault: GradeResult = { kind: 'fault', where: 'grader', message: 'the grader ended (SIGKILL)' }

describe('trouble of ours is tried once more', () => {
  test.each<[string, Trouble, number]>([
    ['a sandbox that ends', { ends: [infra] }, 2],
    ['a grader that dies: the program is not run again', { grades: [fault] }, 1],
    ['a syntax check without an answer', { syntax: [new Error('the fork server ended')] }, 1],
    ['a task that cannot be read', { tasks: [new Error('EIO')] }, 1],
  ])('%s', async (_, trouble, executions) => {
    using toy = await toyTask()
    const { one } = judgeOf(toy.task, trouble)
    const v = await one()
    expect(v).toMatchObject({ outcome: { kind: 'graded', percentile: 0.5 } })
    // Both starts were paid for.
    expect(v.cost).toMatchObject({ executions, sandboxCpuS: executions })
  })
  test.each<[string, Trouble, object]>([
    ['infra', { ends: [infra, infra] }, { cause: 'infra', detail: 'the fork server ended' }],
    ['grader', { grades: [fault, fault] }, { cause: 'grader', detail: 'grader: the grader ended (SIGKILL)' }],
    ['what was thrown', { syntax: [new Error('a'), new Error('b')] }, { cause: 'infra', detail: 'b' }],
  ])('and no more: %s', async (_, trouble, unscorable) => {
    using toy = await toyTask()
    const { one } = judgeOf(toy.task, trouble)
    expect(await one()).toMatchObject({ unscorable })
    // The next attempt finds a system that works.
    expect(await one()).toMatchObject({ outcome: { kind: 'graded' } })
  })
  test('public files that cannot be read are read again', async () => {
    using toy = await toyTask()
    const { one } = judgeOf(toy.task)
    renameSync(toy.task.publicDir, `${toy.task.publicDir}.away`)
    expect(await one()).toMatchObject({ unscorable: { cause: 'infra', detail: expect.stringMatching(/ENOENT/) } })
    renameSync(`${toy.task.publicDir}.away`, toy.task.publicDir)
    expect(await one()).toMatchObject({ outcome: { kind: 'graded' } })
  })
})

test('a public file of the prepared size with other bytes is trouble of ours, and nothing runs', async () => {
  using toy = await toyTask()
  const publicHash = await folderHash(toy.task.publicDir)
  const { one, count } = judgeOf({ ...toy.task, publicHash })
  const path = join(toy.task.publicDir, 'train.csv')
  const text = readFileSync(path, 'utf8')
  writeFileSync(path, text.replaceAll(',', ';'))
  const detail = expect.stringMatching(/public have other bytes than were prepared; run: wmrl tasks prepare toy$/)
  expect(await one()).toMatchObject({ unscorable: { cause: 'infra', detail } })
  expect(count.executions).toBe(0)
  writeFileSync(path, text)
  expect(await one()).toMatchObject({ outcome: { kind: 'graded' } })
})

test('without a cache of earlier processes both scopes still grade the submission of one run', async () => {
  using toy = await toyTask()
  const { one, count, seen } = judgeOf(toy.task)
  expect((await one()).cost.executions).toBe(1)
  expect((await one('final')).cost.executions).toBe(0)
  expect(count.executions).toBe(1)
  expect(seen).toEqual(['feedback run 1', 'final run 1'])
})
