import {
  type Attempt,
  type Cost,
  folderHash,
  keyedSeed,
  messageOf,
  NO_COST,
  type Outcome,
  remember,
  render,
  rewardOf,
  shownOf,
  TaskError,
  type TaskRef,
  type Unscorable,
  type Verdict,
} from '../core/index.ts'
import { type Execution, type Executor, executionKey } from '../executors/index.ts'
import type { Grader } from '../grading/index.ts'
import type { Limits } from '../sandbox/index.ts'
import type { Task } from '../tasks/index.ts'
import type { Judge } from './judge.ts'

export interface ExecutedJudgeOptions {
  readonly executor: Executor
  readonly grader: Grader
  readonly limits: Limits
  /** Seed of the task, part of the execution key: the same program on the same task sees the same seed. */
  readonly taskSeed: number
  task(ref: TaskRef): Promise<Task>
  /** Told of every sandbox start and of every stored answer. */
  readonly onExecution?: (e: { cached: boolean; cpuS: number; wallS: number; execution: Execution }) => void
  /** False where recorded results stand for every rung. */
  readonly keyWithRung?: boolean
}

/** Runs the program in the sandbox, then grades its submission in the grader's process. */
export class ExecutedJudge implements Judge {
  readonly source = 'executed'
  readonly scope = 'turn'
  private readonly hashes = new Map<string, Promise<string>>()
  constructor(private readonly o: ExecutedJudgeOptions) {}

  judge(attempts: readonly Attempt[], signal: AbortSignal): readonly Promise<Verdict>[] {
    return attempts.map(async (a) => {
      const first = await this.tried(a, signal)
      if (!('unscorable' in first) || signal.aborted) return first
      // One retry of trouble of ours, whatever it was (invariant 1). What the first try cost was paid.
      const second = await this.tried(a, signal)
      return { ...second, cost: sum(first.cost, second.cost) }
    })
  }

  /** One try; what is thrown is trouble of ours. */
  private async tried(a: Attempt, signal: AbortSignal): Promise<Verdict> {
    try {
      return await this.one(a, signal)
    } catch (e) {
      return failed({ cause: signal.aborted ? 'cancelled' : 'infra', detail: messageOf(e) }, NO_COST)
    }
  }

  /** The execution behind an attempt, graded on nothing. */
  async execution(task: Task, code: string, signal: AbortSignal): Promise<Execution> {
    const { executor, limits, taskSeed } = this.o
    const seed = keyedSeed('task', taskSeed, task.ref.suite, task.ref.id)
    const rung = this.o.keyWithRung === false ? undefined : executor.rung
    const dataHash = await this.dataHash(task)
    const key = executionKey({ code, dataHash, environment: executor.environment, limits, seed, rung })
    const e = await executor.execute({ key, code, publicDir: task.publicDir, limits, seed }, signal)
    this.o.onExecution?.({ cached: e.cached, cpuS: e.cost.cpuS, wallS: e.cost.wallS, execution: e })
    return e
  }

  /** @throws TaskError where the files are not those that were prepared: whatever a program made of them is not its fault */
  private dataHash(task: Task): Promise<string> {
    return remember(this.hashes, task.publicDir, async () => {
      const hash = await folderHash(task.publicDir)
      if (task.publicHash === undefined || task.publicHash === hash) return hash
      throw new TaskError(
        `files in ${task.publicDir} have other bytes than were prepared; run: wmrl tasks prepare ${task.ref.id}`,
      )
    })
  }

  private async one(a: Attempt, signal: AbortSignal): Promise<Verdict> {
    const code = a.action.code
    if (code === undefined) return verdict({ kind: 'malformed' }, NO_COST)
    const fault = await this.o.executor.checkSyntax(code, signal)
    if (fault) return verdict({ kind: 'syntax-error', error: fault }, NO_COST)
    const task = await this.o.task(a.task)
    const e = await this.execution(task, code, signal)
    const cost: Cost = e.cached
      ? NO_COST
      : { ...NO_COST, executions: 1, sandboxCpuS: e.cost.cpuS, sandboxWallS: e.cost.wallS }
    const outcome = await this.outcome(task, e, a)
    return 'cause' in outcome ? failed(outcome, cost) : verdict(outcome, cost)
  }

  private async outcome(task: Task, e: Execution, a: Attempt): Promise<Outcome | Unscorable> {
    const end = e.end
    switch (end.kind) {
      case 'infra':
        return { cause: 'infra', detail: end.detail }
      case 'crashed':
      case 'syntax-error':
        return { kind: end.kind, error: end.error }
      case 'timed-out':
        return { kind: 'timed-out', submissionPresent: end.submissionPresent }
      case 'out-of-memory':
        return { kind: 'out-of-memory' }
      case 'finished': {
        if (end.submissionIssue === 'too-large')
          return { kind: 'invalid-submission', code: 'too-large', message: 'submission.csv is too large' }
        if (end.submissionIssue)
          return { kind: 'invalid-submission', code: 'unreadable', message: 'submission.csv is not a regular file' }
        if (!end.submission) return { kind: 'invalid-submission', code: 'missing', message: 'no submission.csv' }
        const g = await this.o.grader.grade(task, end.submission, a.scope)
        if (g.kind === 'fault') return { cause: 'grader', detail: `${g.where}: ${g.message}` }
        if (g.kind === 'invalid') return { kind: 'invalid-submission', code: g.code, message: g.message }
        return { kind: 'graded', score: g.score, percentile: g.percentile, scope: g.scope }
      }
    }
  }
}

function verdict(outcome: Outcome, cost: Cost): Verdict {
  return { source: 'executed', outcome, score: rewardOf(outcome), observation: render(shownOf(outcome)), cost }
}

function failed(unscorable: Unscorable, cost: Cost): Verdict {
  return { source: 'executed', unscorable, cost }
}

const sum = (a: Cost, b: Cost): Cost => ({
  sandboxCpuS: a.sandboxCpuS + b.sandboxCpuS,
  sandboxWallS: a.sandboxWallS + b.sandboxWallS,
  executions: a.executions + b.executions,
  predictedTokens: a.predictedTokens + b.predictedTokens,
})
