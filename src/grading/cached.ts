import { contentHash, type Scope } from '../core/index.ts'
import type { Task } from '../tasks/index.ts'
import type { GradeResult } from './grade.ts'
import type { Grader } from './grader.ts'

/**
 * A grader that grades equal bytes once, for as long as the process lives: by task, submission, version of the grade and
 * scope. Equal requests under way are joined. A fault is never kept.
 */
export class CachedGrader implements Grader {
  private readonly known = new Map<string, Promise<GradeResult>>()
  constructor(private readonly inner: Grader) {}

  async grade(task: Task, submission: Uint8Array, scope: Scope): Promise<GradeResult> {
    // Answers or boards that cannot be read are the inner grader's to report.
    const version = await this.version(task, scope).catch(() => undefined)
    if (version === undefined) return this.inner.grade(task, submission, scope)
    const key = contentHash('grade/1', task.ref.suite, task.ref.id, version, scope, submission)
    const known = this.known.get(key)
    if (known) return known
    const grade = this.inner.grade(task, submission, scope)
    this.known.set(key, grade)
    const g = await grade
    if (g.kind === 'fault') this.known.delete(key)
    return g
  }

  version(task: Task, scope: Scope): Promise<string> {
    return this.inner.version(task, scope)
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.inner[Symbol.asyncDispose]()
  }
}
