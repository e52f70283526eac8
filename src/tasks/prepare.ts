import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { z } from 'zod'
import { ConfigError, contentHash, folderHash, MissingError, messageOf, TaskError } from '../core/index.ts'
import { alive, fetchArtefact, sha256Of } from './artefacts.ts'
import {
  artefactPins,
  type BuiltSuite,
  builderDigest,
  type CatalogueEntry,
  catalogue,
  pinnedDigests,
  SUITE_SOURCES,
  suiteDir,
} from './catalogue.ts'
import { NotInstalled, runClient } from './client.ts'
import { damage, type PreparedRecord, preparedRecord, RECORD_FILE } from './prepared-record.ts'

export interface PrepareOptions {
  readonly suite: BuiltSuite
  /** Ids to prepare; all where empty. */
  readonly ids: readonly string[]
  readonly dataDir: string
  readonly artefactDir: string
  /** Python of the solutions' environment. */
  readonly python: string
  readonly signal: AbortSignal
  readonly log: (line: string) => void
  /** Called as each task is decided. */
  readonly done?: (r: PrepareResult, left: number) => void
}

export interface PrepareResult {
  readonly id: string
  /** `ready`: was there. `missing`: this machine lacks something. `failed`: the task could not be built. */
  readonly status: 'ready' | 'prepared' | 'failed' | 'missing'
  readonly detail: string
  /** Digest of the task's files. */
  readonly digest?: string
}

const BUILD_CEILING_MS = 60 * 60_000

const builderLine = z.object({
  id: z.string(),
  status: z.enum(['begin', 'built', 'failed']),
  detail: z.string().optional(),
  versions: z.record(z.string(), z.string()).optional(),
})

/**
 * Materialises tasks: fetches the artefacts that they need, builds each in a folder of its own, and moves it into place
 * when it is whole. One broken task never stops the others; what is there already is left alone.
 * @throws ConfigError for an unknown id, with the nearest one
 */
export async function prepareTasks(o: PrepareOptions): Promise<PrepareResult[]> {
  const all = catalogue(o.suite)
  const entries = select(all, o.ids, o.suite)
  const results = new Map<string, PrepareResult>()
  const note = (r: PrepareResult): void => {
    results.set(r.id, r)
    o.done?.(r, entries.length - results.size)
  }
  const todo: CatalogueEntry[] = []
  for (const e of entries) {
    const r = await wholeRecord(o.dataDir, e)
    // Sizes would do to use it; but this is the fix that is named where a file has other bytes.
    if (r && (await unchanged(join(o.dataDir, e.suite, e.id), r)))
      note({ id: e.id, status: 'ready', detail: compare(e, r), digest: r.digest })
    else todo.push(e)
  }
  if (todo.length > 0) await build(o, await fetchable(o, todo, note), note)
  return entries.map((e) => results.get(e.id)!)
}

function select(all: readonly CatalogueEntry[], ids: readonly string[], suite: string): readonly CatalogueEntry[] {
  if (ids.length === 0) return all
  return [...new Set(ids)].map((id) => {
    const e = all.find((x) => x.id === id)
    if (e) return e
    throw new ConfigError('id', `the suite ${suite} has no task ${id}`, `the nearest is ${nearest(id, all)}`)
  })
}

/** The id that shares most letter pairs with what was typed. */
export function nearest(typed: string, all: readonly { readonly id: string }[]): string {
  const pairs = (s: string): Set<string> => new Set(Array.from({ length: s.length - 1 }, (_, i) => s.slice(i, i + 2)))
  const a = pairs(typed)
  const score = (id: string): number => {
    const b = pairs(id)
    return [...a].filter((p) => b.has(p)).length / Math.max(1, a.size + b.size)
  }
  return all.reduce((best, x) => (score(x.id) > score(best) ? x.id : best), all[0]?.id ?? '')
}

/** The record of a prepared task that is whole and was made by today's builder. */
async function wholeRecord(dataDir: string, e: CatalogueEntry): Promise<PreparedRecord | undefined> {
  const dir = join(dataDir, e.suite, e.id)
  const text = await readFile(join(dir, RECORD_FILE), 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  let r: PreparedRecord
  try {
    r = preparedRecord.parse(JSON.parse(text))
  } catch {
    return undefined
  }
  if (r.builder !== (await builderDigest(e))) return undefined
  return (await damage(dir, r.files)) === undefined ? r : undefined
}

/** Whether a task's files are, byte for byte, those that were built. */
const unchanged = (dir: string, r: PreparedRecord): Promise<boolean> =>
  digestFolder(dir).then(
    (now) => now.digest === r.digest,
    () => false,
  )

/** Whether a task is there, whole, and made by today's builder. */
export const isPrepared = async (dataDir: string, e: CatalogueEntry): Promise<boolean> =>
  (await wholeRecord(dataDir, e)) !== undefined

function compare(e: CatalogueEntry, r: { digest: string; versions: Record<string, string> }): string {
  const pinned = pinnedDigests()[e.suite][e.id]
  if (pinned === undefined || pinned === r.digest) return ''
  const made = Object.entries(r.versions)
    .map(([k, v]) => `${k} ${v}`)
    .join(', ')
  return `its files differ from those that the boards were made on (built with ${made})`
}

/** Fetches what the tasks need; those whose artefacts cannot be had are noted and left out. */
async function fetchable(
  o: PrepareOptions,
  todo: readonly CatalogueEntry[],
  note: (r: PrepareResult) => void,
): Promise<CatalogueEntry[]> {
  const trouble = new Map<string, unknown>()
  for (const key of new Set(todo.flatMap((e) => e.sources))) {
    try {
      await fetchArtefact(artefactPins().get(key)!, { ...o, dir: o.artefactDir })
    } catch (e) {
      if (o.signal.aborted) throw e
      trouble.set(key, e)
      const ids = todo.filter((t) => t.sources.includes(key)).map((t) => t.id)
      o.log(`${messageOf(e)} (needed by ${ids.length > 6 ? `${ids.length} tasks` : ids.join(', ')})`)
    }
  }
  return todo.filter((e) => {
    const bad = e.sources.find((s) => trouble.has(s))
    if (bad === undefined) return true
    const why = trouble.get(bad)
    note({ id: e.id, status: why instanceof MissingError ? 'missing' : 'failed', detail: messageOf(why) })
    return false
  })
}

/** Runs the builder until every task is decided; where it dies, the task it was at is the broken one. */
async function build(
  o: PrepareOptions,
  entries: readonly CatalogueEntry[],
  note: (r: PrepareResult) => void,
): Promise<void> {
  const left = new Map(entries.map((e) => [e.id, e]))
  const root = join(o.dataDir, o.suite)
  const staging = join(o.dataDir, '.building', String(process.pid))
  await sweep(join(o.dataDir, '.building'))
  await mkdir(root, { recursive: true })
  const decide = (r: PrepareResult): void => {
    left.delete(r.id)
    note(r)
  }
  try {
    while (left.size > 0) {
      let at: string | undefined
      const args = ['build', '--suite', o.suite, '--artefacts', o.artefactDir, '--out', staging]
      const ids = left.size === catalogue(o.suite).length ? [] : ['--ids', [...left.keys()].join(',')]
      const end = await runBuilder(o, [...args, ...ids, '--prepared', join(o.dataDir, 'builtin')], async (line) => {
        const m = builderLine.parse(JSON.parse(line))
        if (m.status === 'begin') at = m.id
        const e = left.get(m.id)
        if (!e || m.status === 'begin') return
        if (m.status === 'failed') return decide({ id: m.id, status: 'failed', detail: m.detail ?? 'no reason given' })
        const r = await settle(join(staging, m.id), join(root, m.id), e, m.versions ?? {})
        decide({ id: m.id, status: 'prepared', detail: compare(e, r), digest: r.digest })
      })
      if (end === '') {
        // The builder went through; what it never named is not in the suite.
        for (const id of left.keys()) decide({ id, status: 'failed', detail: 'the builder knows no such task' })
      } else if (at !== undefined && left.has(at)) decide({ id: at, status: 'failed', detail: end })
      else for (const id of left.keys()) decide({ id, status: 'failed', detail: end })
    }
  } finally {
    await rm(staging, { recursive: true, force: true })
  }
}

/** How the builder ended: '' or one line. @throws MissingError where there is no such Python or it lacks a library */
async function runBuilder(
  o: Pick<PrepareOptions, 'python' | 'signal'>,
  args: readonly string[],
  onLine: (line: string) => Promise<void>,
): Promise<string> {
  const one = { OMP_NUM_THREADS: '1', OPENBLAS_NUM_THREADS: '1', MKL_NUM_THREADS: '1' }
  const env = { ...process.env, ...one, PYTHONNOUSERSITE: '1', PYTHONDONTWRITEBYTECODE: '1', PYTHONHASHSEED: '0' }
  try {
    const r = await runClient(o.python, [join(suiteDir(), 'main.py'), ...args], {
      signal: o.signal,
      ceilingMs: BUILD_CEILING_MS,
      env,
      onLine,
    })
    if (r.lastError.startsWith('suite: ')) throw new MissingError(r.lastError.slice(7), 'run: npm run setup')
    return r.code === 0 ? '' : `the builder ended (${r.killedBy ?? `exit code ${r.code}`}): ${r.lastError}`
  } catch (e) {
    if (e instanceof NotInstalled) throw new MissingError(`there is no ${o.python}`, 'run: npm run setup', { cause: e })
    throw e
  }
}

/** Records a built task and moves it into place. */
async function settle(
  from: string,
  to: string,
  e: CatalogueEntry,
  versions: Record<string, string>,
): Promise<PreparedRecord> {
  const builder = await builderDigest(e)
  const publicHash = await folderHash(join(from, 'public'))
  const r: PreparedRecord = { schema: 'wmrl-prepared/1', builder, versions, ...(await digestFolder(from)), publicHash }
  await writeFile(join(from, RECORD_FILE), JSON.stringify(r))
  await rm(to, { recursive: true, force: true })
  await rename(from, to)
  return r
}

/** Digest of every file of a task but its record, names included, and the files with their sizes. */
async function digestFolder(dir: string): Promise<{ digest: string; files: [string, number][] }> {
  const files = (await listFiles(dir)).filter(([name]) => name !== RECORD_FILE).sort(([a], [b]) => (a < b ? -1 : 1))
  const parts: string[] = []
  for (const [name] of files) parts.push(name, await sha256Of(join(dir, name)))
  return { digest: contentHash(...parts), files }
}

/**
 * Builds a whole suite apart and gives the digest of each task, for python/suite/digests.json; for whoever changes a
 * builder. `small` is checked against the prepared built-in suite.
 */
export async function suiteDigests(
  o: Omit<PrepareOptions, 'ids' | 'done'>,
): Promise<{ digests: Record<string, string>; failed: PrepareResult[] }> {
  for (const key of new Set(SUITE_SOURCES[o.suite]))
    await fetchArtefact(artefactPins().get(key)!, { ...o, dir: o.artefactDir })
  const out = join(o.dataDir, '.building', String(process.pid))
  const digests: Record<string, string> = {}
  const failed: PrepareResult[] = []
  const args = ['build', '--suite', o.suite, '--artefacts', o.artefactDir, '--out', out]
  try {
    const end = await runBuilder(o, [...args, '--prepared', join(o.dataDir, 'builtin')], async (line) => {
      const m = builderLine.parse(JSON.parse(line))
      if (m.status === 'failed') failed.push({ id: m.id, status: 'failed', detail: m.detail ?? '' })
      if (m.status !== 'built') return
      digests[m.id] = (await digestFolder(join(out, m.id))).digest
      o.log(`${m.id} ${digests[m.id]}`)
      await rm(join(out, m.id), { recursive: true, force: true })
    })
    if (end !== '') throw new TaskError(end)
  } finally {
    await rm(out, { recursive: true, force: true })
  }
  return { digests, failed }
}

async function listFiles(root: string, dir = root): Promise<[string, number][]> {
  const out: [string, number][] = []
  for (const e of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, e.name)
    if (e.isDirectory()) out.push(...(await listFiles(root, path)))
    else out.push([relative(root, path), (await stat(path)).size])
  }
  return out
}

/** Removes half-made tasks of processes that are gone. */
async function sweep(dir: string): Promise<void> {
  for (const name of await readdir(dir).catch(() => []))
    if (!alive(Number(name))) await rm(join(dir, name), { recursive: true, force: true })
}
