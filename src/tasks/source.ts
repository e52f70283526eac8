import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { boundary, messageOf, type Scope, type Suite, TaskError, type TaskRef } from '../core/index.ts'
import { type TaskCard, taskCard } from './card.ts'
import { damage, preparedRecord, RECORD_FILE } from './prepared-record.ts'

/** A prepared task on disk. `publicDir` may be shown to programs; `privateDir` never. No answers are held here. */
export interface Task {
  readonly ref: TaskRef
  readonly card: TaskCard
  readonly dir: string
  readonly publicDir: string
  /** `folderHash` of publicDir as it was prepared; absent where no record says it. */
  readonly publicHash?: string
  /** Path of the answers of one scope; read only by the grader. */
  answersPath(scope: Scope): string
}

export type Readiness =
  | { readonly state: 'ready' }
  | { readonly state: 'needs-data'; readonly how: string }
  | { readonly state: 'broken'; readonly why: string }

export const refOf = (card: TaskCard): TaskRef => ({
  suite: card.suite,
  id: card.id,
  modality: card.modality,
  split: card.split,
})

/**
 * Loads a prepared task.
 * @throws TaskError naming file and fix when it is absent, its card does not parse, or a public file is not the prepared
 * one: a program that cannot read its data would look like a bad program. Answers are left to the grader, whose fault it
 * is when they are bad.
 */
export async function loadTask(dataDir: string, suite: Suite, id: string): Promise<Task> {
  const dir = join(dataDir, suite, id)
  const path = join(dir, 'task.json')
  const text = await readFile(path, 'utf8').catch((cause) => {
    throw new TaskError(`task ${id} is not prepared (${path} cannot be read); run: wmrl tasks prepare ${id}`, { cause })
  })
  const json = await boundary(
    TaskError,
    `${path} is not JSON; run: wmrl tasks prepare ${id}`,
    () => JSON.parse(text) as unknown,
  )
  const parsed = taskCard.safeParse(json)
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!
    throw new TaskError(`${path}: ${issue.path.join('.') || 'card'}: ${issue.message}; run: wmrl tasks prepare ${id}`)
  }
  const card = parsed.data
  const { files, publicHash } = await publicFiles(dir, id)
  const why = await damage(dir, files)
  if (why !== undefined) throw new TaskError(`${why}; run: wmrl tasks prepare ${id}`)
  return {
    ref: refOf(card),
    card,
    dir,
    publicDir: join(dir, 'public'),
    ...(publicHash === undefined ? {} : { publicHash }),
    answersPath: (scope) => join(dir, 'private', `${scope}.csv`),
  }
}

/** Every task has these; a task that was made by hand and has no record is held to them alone. */
const LEAST = ['train.csv', 'test.csv', 'sample_submission.csv'] as const

/** Public files with their recorded sizes, and the digest of them all. @throws TaskError when the record cannot be read */
async function publicFiles(
  dir: string,
  id: string,
): Promise<{ files: [string, number | undefined][]; publicHash: string | undefined }> {
  const least = LEAST.map((name): [string, undefined] => [`public/${name}`, undefined])
  const path = join(dir, RECORD_FILE)
  try {
    const record = preparedRecord.parse(JSON.parse(await readFile(path, 'utf8')))
    const files = [...least, ...record.files.filter(([name]) => name.startsWith('public/'))]
    return { files, publicHash: record.publicHash }
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return { files: least, publicHash: undefined }
    throw new TaskError(`${path} is no record of a prepared task; run: wmrl tasks prepare ${id}`, { cause })
  }
}

/** Ids of the prepared tasks of a suite, sorted; folders without a card (half-made ones) are left out. */
export async function preparedIds(dataDir: string, suite: Suite): Promise<string[]> {
  const root = join(dataDir, suite)
  const names = await readdir(root).catch(() => [] as string[])
  const out: string[] = []
  for (const n of names.sort()) if (await stat(join(root, n, 'task.json')).catch(() => undefined)) out.push(n)
  return out
}

/** Public files with sizes, folders summed up as one entry. */
export async function inventory(task: Task): Promise<{ path: string; bytes: number }[]> {
  const out: { path: string; bytes: number }[] = []
  for (const e of (await readdir(task.publicDir, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (e.isDirectory()) {
      let bytes = 0
      const inner = await readdir(join(task.publicDir, e.name))
      for (const f of inner) bytes += (await stat(join(task.publicDir, e.name, f))).size
      out.push({ path: `${e.name}/ (${inner.length} files)`, bytes })
    } else out.push({ path: e.name, bytes: (await stat(join(task.publicDir, e.name))).size })
  }
  return out
}

/** Ids of test.csv in file order. @throws TaskError when the file or its id column is missing. */
export async function testIds(task: Task): Promise<string[]> {
  const path = join(task.publicDir, 'test.csv')
  const { parse } = await import('csv-parse/sync')
  const rows: string[][] = await boundary(TaskError, path, async () => {
    const bytes = await readFile(path)
    try {
      return parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes), { bom: true })
    } catch (cause) {
      const why = cause instanceof TypeError ? 'is not UTF-8 text' : messageOf(cause)
      throw new TaskError(`${path}: ${why}; run: wmrl tasks prepare ${task.card.id}`, { cause })
    }
  })
  const k = rows[0]?.indexOf(task.card.submission.idColumn) ?? -1
  if (k < 0)
    throw new TaskError(
      `${path} has no column ${task.card.submission.idColumn}; run: wmrl tasks prepare ${task.card.id}`,
    )
  return rows.slice(1).map((r) => r[k]!.trim())
}
