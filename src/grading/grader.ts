import { type ChildProcess, fork } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { builtEntry, contentHash, GraderError, messageOf, remember, type Scope, waits } from '../core/index.ts'
import { type Task, testIds } from '../tasks/index.ts'
import type { BoardStore } from './boards.ts'
import type { GradeResult } from './grade.ts'
import type { GraderReply, GraderRequest } from './protocol.ts'

/** Longest that a start, a load of answers or one grade may take, in milliseconds; the process is replaced afterwards. */
const CEILING_MS = 60_000

export interface Grader extends AsyncDisposable {
  /** Of the asked scope alone. Never rejects: trouble is a `fault`. */
  grade(task: Task, submission: Uint8Array, scope: Scope): Promise<GradeResult>
  /** Digest of the answers and the board that a grade rests on; part of the grade's cache key. */
  version(task: Task, scope: Scope): Promise<string>
}

/** Names the file and the fix. */
const badAnswers = (task: Task, scope: Scope, why: string): string =>
  `${task.answersPath(scope)}: ${why}; run: wmrl tasks prepare ${task.ref.id}`

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
    {
      promise: Promise<string | undefined>
      done: (error: string | undefined) => void
      /** What the process says of the answers that it was sent; it does not know their file. */
      loaded: (error: string | undefined) => void
    }
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
      await this.within('no start', this.start())
      const error = await this.within('no answers loaded', this.load(key, task, scope))
      if (error) return { kind: 'fault', where: 'answers', message: error }
      const g = await this.within('no grade', this.ask(key, submission))
      return g.kind === 'fault' && g.where === 'answers' ? { ...g, message: badAnswers(task, scope, g.message) } : g
    } catch (e) {
      return { kind: 'fault', where: 'grader', message: messageOf(e) }
    }
  }

  version(task: Task, scope: Scope): Promise<string> {
    const key = `${task.ref.suite}/${task.ref.id}/${scope}`
    return remember(this.versions, key, async () =>
      contentHash(await readFile(task.answersPath(scope)), JSON.stringify(this.boards.scores(task.ref, scope))),
    )
  }

  /** What the process was asked, or the end of the ceiling; a process that does not answer is replaced. */
  private within<T>(missed: string, answer: Promise<T>): Promise<T> {
    const ceiling = this.opts.ceilingMs ?? CEILING_MS
    return waits.during(`grader (${missed} yet)`, ceiling, () => this.race(missed, ceiling, answer))
  }

  private async race<T>(missed: string, ceiling: number, answer: Promise<T>): Promise<T> {
    const child = this.child
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(new Error(`${missed} within ${ceiling} ms`))
        // Forgotten at once, so that the next grade does not wait on a dying process.
        this.forget(child, 'the grader was stopped: another request took too long')
        child?.kill('SIGKILL')
      }, ceiling)
    })
    try {
      return await Promise.race([answer, late])
    } finally {
      clearTimeout(timer)
    }
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
      // For as long as it lives: an error that nobody listens to would end the whole run.
      child.on('error', (e) => {
        reject(e)
        this.forget(child, `the grader could not be reached (${messageOf(e)})`)
        child.kill('SIGKILL')
      })
      child.on('message', (m) => {
        const reply = m as GraderReply
        if (reply.type === 'ready') resolve()
        else if (reply.type === 'loaded') this.loads.get(reply.key)?.loaded(reply.error)
        else {
          this.waiting.get(reply.id)?.(reply.result)
          this.waiting.delete(reply.id)
        }
      })
      child.once('exit', (code, signal) => {
        reject(new Error('the grader could not start'))
        this.forget(child, `the grader ended (${signal ?? `exit code ${code}`})`)
      })
    })
    return this.ready
  }

  /** The process is gone: whoever waits gets a fault, and the next grade starts another. */
  private forget(child: ChildProcess | undefined, why: string): void {
    if (this.child !== child) return
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
    let settle: (error: string | undefined) => void = () => {}
    const promise = new Promise<string | undefined>((r) => {
      settle = r
    })
    const entry = {
      promise,
      done: (error: string | undefined): void => {
        // What failed is tried again by the next grade.
        if (error !== undefined && this.loads.get(key) === entry) this.loads.delete(key)
        settle(error)
      },
      loaded: (error: string | undefined): void =>
        entry.done(error === undefined ? undefined : badAnswers(task, scope, error)),
    }
    this.loads.set(key, entry)
    const send = async (): Promise<void> => {
      const [answers, ids] = await Promise.all([readFile(task.answersPath(scope)), testIds(task)])
      this.post({ type: 'load', key, card: task.card, ids, answers, board: this.boards.scores(task.ref, scope), scope })
    }
    send().catch((e) =>
      entry.done(e instanceof GraderError ? e.message : `${messageOf(e)}; run: wmrl tasks prepare ${task.ref.id}`),
    )
    return promise
  }

  private async ask(key: string, submission: Uint8Array): Promise<GradeResult> {
    const id = this.next++
    this.post({ type: 'grade', id, key, submission })
    return new Promise((resolve) => this.waiting.set(id, resolve))
  }

  /** @throws GraderError where there is no process; one that dies meanwhile is told by its exit. */
  private post(m: GraderRequest): void {
    const child = this.child
    if (!child) throw new GraderError('the grader is gone')
    // A channel that closed under the message: the process is ending, or is of no use any more.
    child.send(m, (e) => {
      if (e) child.kill('SIGKILL')
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.child
    if (!child) return
    const gone = new Promise<void>((r) => {
      child.once('exit', () => r())
      child.once('error', () => r())
    })
    this.forget(child, 'the grader was closed')
    if (child.connected) child.disconnect()
    const timer = setTimeout(() => child.kill('SIGKILL'), 2000)
    await gone
    clearTimeout(timer)
  }
}
