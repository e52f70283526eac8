import { readFileSync } from 'node:fs'
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
