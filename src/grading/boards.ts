import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { GraderError, messageOf, type Scope, type TaskRef } from '../core/index.ts'

/** One really executed program of a leaderboard's population. */
const entry = z.strictObject({
  recipe: z.string(),
  family: z.string(),
  strength: z.enum(['strong', 'plain', 'crippled']),
  feedback: z.number(),
  final: z.number(),
})
export const boardFile = z.strictObject({
  schema: z.literal('wmrl-board/1'),
  task: z.string(),
  metric: z.string(),
  higherIsBetter: z.boolean(),
  /** Errors of no two entries correlate above this. */
  correlation: z.number(),
  entries: z.array(entry).min(2, 'a leaderboard needs at least two entries'),
  /** Recipes that were run and left out, with the reason. */
  left: z.array(z.strictObject({ recipe: z.string(), why: z.string() })),
})
export type BoardFile = z.infer<typeof boardFile>
export type BoardEntry = z.infer<typeof entry>

/** Where the boards are read from: public knowledge, so no answers are behind it. */
export interface BoardStore {
  /** Scores of the board that a scope is placed on, best first. @throws GraderError when there is none. */
  scores(ref: TaskRef, scope: Scope): readonly number[]
}

/** Boards shipped as `<dir>/<suite>/<id>.json`. */
export class FileBoards implements BoardStore {
  private readonly memo = new Map<string, BoardFile>()
  constructor(readonly dir: string) {}

  file(ref: TaskRef): BoardFile {
    const key = `${ref.suite}/${ref.id}`
    const known = this.memo.get(key)
    if (known) return known
    const path = join(this.dir, `${key}.json`)
    let json: unknown
    try {
      json = JSON.parse(readFileSync(path, 'utf8'))
    } catch (cause) {
      throw new GraderError(`leaderboard ${path}: ${messageOf(cause)}; run: wmrl tasks boards ${ref.id}`, { cause })
    }
    const parsed = boardFile.safeParse(json)
    if (!parsed.success) {
      const i = parsed.error.issues[0]!
      throw new GraderError(`leaderboard ${path}: ${i.path.join('.')}: ${i.message}; run: wmrl tasks boards ${ref.id}`)
    }
    this.memo.set(key, parsed.data)
    return parsed.data
  }

  scores(ref: TaskRef, scope: Scope): readonly number[] {
    const f = this.file(ref)
    return f.entries.map((e) => e[scope]).sort((a, b) => (f.higherIsBetter ? b - a : a - b))
  }
}

const scoresFile = z.strictObject({
  schema: z.literal('wmrl-scores/1'),
  suite: z.string(),
  tasks: z.record(
    z.string(),
    z.strictObject({
      higherIsBetter: z.boolean(),
      feedback: z.array(z.number()).min(2, 'a leaderboard needs at least two entries'),
    }),
  ),
})
export type ScoresFile = z.infer<typeof scoresFile>

/**
 * Feedback boards of a whole suite in one file: the scores that the corpus's programs reached. They serve as rewards of
 * training; there is no final board, so nothing can be reported on them.
 */
export class ScoreBoards implements BoardStore {
  private memo: ScoresFile | undefined
  constructor(readonly path: string) {}

  /** Tasks that have a board; none where the file is missing. */
  ids(): string[] {
    return existsSync(this.path) ? Object.keys(this.file().tasks).sort() : []
  }

  scores(ref: TaskRef, scope: Scope): readonly number[] {
    const t = this.file().tasks[ref.id]
    if (!t || scope !== 'feedback')
      throw new GraderError(
        `${ref.suite}/${ref.id} has no ${scope} leaderboard in ${this.path}; the suite is for training only, evaluate on builtin`,
      )
    return [...t.feedback].sort((a, b) => (t.higherIsBetter ? b - a : a - b))
  }

  private file(): ScoresFile {
    if (this.memo) return this.memo
    let json: unknown
    try {
      json = JSON.parse(readFileSync(this.path, 'utf8'))
    } catch (cause) {
      throw new GraderError(`leaderboards ${this.path}: ${messageOf(cause)}; run: wmrl lab corpus`, { cause })
    }
    const parsed = scoresFile.safeParse(json)
    if (!parsed.success) {
      const i = parsed.error.issues[0]!
      throw new GraderError(`leaderboards ${this.path}: ${i.path.join('.')}: ${i.message}; run: wmrl lab corpus`)
    }
    this.memo = parsed.data
    return parsed.data
  }
}
