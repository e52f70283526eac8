import { type ChildProcess, fork } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { builtEntry, contentHash, messageOf, type Scope } from '../core/index.ts'
import { type Task, testIds } from '../tasks/index.ts'
import type { BoardStore } from './boards.ts'
import type { GradeResult } from './grade.ts'
import type { GraderReply, GraderRequest } from './protocol.ts'

/** Longest that one grade may take, in milliseconds; the process is replaced afterwards. */
const GRADE_CEILING_MS = 60_000

export interface Grader extends AsyncDisposable {
  /** Of the asked scope alone. Never rejects: trouble is a `fault`. */
  grade(task: Task, submission: Uint8Array, scope: Scope): Promise<GradeResult>
  /** Digest of the answers and the board that a grade rests on; part of the grade's cache key. */
  version(task: Task, scope: Scope): Promise<string>
}

/**
 * Grades in another process under another user. That process is sent the answers of a scope when that scope is first asked
 * for, so a training run, which asks for `feedback` only, never holds a final answer.
 */
export class GraderProcess implements Grader {
  private child: ChildProcess | undefined
  private ready: Promise<void> | undefined
  private readonly waiting = new Map<number, (r: GradeResult) => void>()
  private readonly loads = new Map<
    string,
    { promise: Promise<string | undefined>; done: (error: string | undefined) => void }
  >()
  private readonly versions = new Map<string, Promise<string>>()
  private next = 1

  constructor(
    private readonly boards: BoardStore,
    private readonly opts: { ceilingMs?: number } = {},
  ) {}

  async grade(task: Task, submission: Uint8Array, scope: Scope): Promise<GradeResult> {
    try {
      const key = `${task.ref.suite}/${task.ref.id}/${scope}`
      await this.start()
      const error = await this.load(key, task, scope)
      if (error) return { kind: 'fault', where: 'answers', message: error }
      return await this.ask(key, submission)
    } catch (e) {
      return { kind: 'fault', where: 'grader', message: messageOf(e) }
    }
  }

  version(task: Task, scope: Scope): Promise<string> {
    const key = `${task.ref.suite}/${task.ref.id}/${scope}`
    let v = this.versions.get(key)
    if (!v) {
      v = readFile(task.answersPath(scope)).then((a) =>
        contentHash(a, JSON.stringify(this.boards.scores(task.ref, scope))),
      )
      this.versions.set(key, v)
    }
    return v
  }

  private start(): Promise<void> {
    if (this.ready) return this.ready
    const child = fork(builtEntry('grading/worker.js'), [], {
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      execArgv: [],
      env: {},
    })
    this.child = child
    this.ready = new Promise((resolve, reject) => {
      child.once('error', reject)
      child.on('message', (m) => {
        const reply = m as GraderReply
        if (reply.type === 'ready') resolve()
        else if (reply.type === 'loaded') this.loads.get(reply.key)?.done(reply.error)
        else {
          this.waiting.get(reply.id)?.(reply.result)
          this.waiting.delete(reply.id)
        }
      })
      child.once('exit', (code, signal) => {
        reject(new Error('the grader could not start'))
        if (this.child === child) this.forget(`the grader ended (${signal ?? `exit code ${code}`})`)
      })
    })
    return this.ready
  }

  /** The process is gone: whoever waits gets a fault, and the next grade starts another. */
  private forget(why: string): void {
    this.child = undefined
    this.ready = undefined
    for (const done of this.waiting.values()) done({ kind: 'fault', where: 'grader', message: why })
    this.waiting.clear()
    for (const l of this.loads.values()) l.done(why)
    this.loads.clear()
  }

  private load(key: string, task: Task, scope: Scope): Promise<string | undefined> {
    const known = this.loads.get(key)
    if (known) return known.promise
    let done: (error: string | undefined) => void = () => {}
    const promise = new Promise<string | undefined>((r) => {
      done = r
    })
    this.loads.set(key, { promise, done })
    const send = async (): Promise<void> => {
      const [answers, ids] = await Promise.all([readFile(task.answersPath(scope)), testIds(task)])
      this.post({ type: 'load', key, card: task.card, ids, answers, board: this.boards.scores(task.ref, scope), scope })
    }
    send().catch((e) => done(`${messageOf(e)}; run: wmrl tasks prepare ${task.ref.id}`))
    return promise
  }

  private ask(key: string, submission: Uint8Array): Promise<GradeResult> {
    const id = this.next++
    const ceiling = this.opts.ceilingMs ?? GRADE_CEILING_MS
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id)
        resolve({ kind: 'fault', where: 'grader', message: `no grade within ${ceiling} ms` })
        // Forgotten at once, so that the next grade does not wait on a dying process.
        const slow = this.child
        this.forget('the grader was stopped: another grade took too long')
        slow?.kill('SIGKILL')
      }, ceiling)
      this.waiting.set(id, (r) => {
        clearTimeout(timer)
        resolve(r)
      })
      this.post({ type: 'grade', id, key, submission })
    })
  }

  private post(m: GraderRequest): void {
    this.child?.send(m)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.child
    this.child = undefined
    if (!child) return
    const gone = new Promise<void>((r) => child.once('exit', () => r()))
    child.disconnect()
    const timer = setTimeout(() => child.kill('SIGKILL'), 2000)
    await gone
    clearTimeout(timer)
  }
}
