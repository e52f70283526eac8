import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type InvalidCode, messageOf, rankCorrelation, type Scope } from '../core/index.ts'
import { type Answers, type BoardFile, type Grader, readAnswers, readCsv } from '../grading/index.ts'
import { type Task, type TaskCard, testIds } from '../tasks/index.ts'
import { CRIPPLED_SHARE, LEAST_ENTRIES, LEAST_STRONG, LEAST_STRONG_FAMILIES } from './boards/compose.ts'

export interface Check {
  readonly name: string
  readonly ok: boolean
  readonly detail: string
}

/** A leaderboard's two orders must agree at least so much (Spearman), else feedback says nothing about the final result. */
const LEAST_AGREEMENT = 0.5
/** A constant must not beat more than this share of the entries. */
const MOST_OF_A_CONSTANT = 0.35

/** Different scores that a board must have; few positives or few rows leave few. */
const LEAST_DISTINCT = 10

const SCOPES: readonly Scope[] = ['feedback', 'final']

/**
 * Grades perfect, sample, constant, malformed and empty submissions by both scopes, and checks the files, the answers and
 * the leaderboards. `board` is left out where a suite has none.
 */
export async function validateTask(task: Task, grader: Grader, board: BoardFile | undefined): Promise<Check[]> {
  const out: Check[] = []
  const check = async (name: string, body: () => Promise<{ ok: boolean; detail: string }>): Promise<void> => {
    out.push({ name, ...(await body().catch((e) => ({ ok: false, detail: messageOf(e) }))) })
  }
  const { card } = task
  const ids = await testIds(task)
  const read = async (s: Scope): Promise<Answers> => readAnswers(card, ids, await readFile(task.answersPath(s)))
  const answers = { feedback: await read('feedback'), final: await read('final') }
  const sample = await readFile(join(task.publicDir, 'sample_submission.csv'))
  const train = await table(join(task.publicDir, 'train.csv'))

  await check('answers', async () => {
    const both = [...answers.feedback.scopeIds, ...answers.final.scopeIds]
    const ok = new Set(both).size === ids.length && both.length === ids.length && both.every((i) => ids.includes(i))
    return { ok, detail: `${answers.feedback.scopeIds.length} feedback + ${answers.final.scopeIds.length} final rows` }
  })
  await check('no leak', async () => {
    const l = card.leakChecks
    const ok = (l.featureRowsInBothSides ?? 0) === 0 && l.proxySuspected === false
    return { ok, detail: ok ? '' : JSON.stringify(l) }
  })
  const graded = async (csv: Uint8Array): Promise<{ ok: boolean; detail: string; percentiles: number[] }> => {
    const results = []
    for (const s of SCOPES) results.push(await grader.grade(task, csv, s))
    const bad = results.find((r) => r.kind !== 'scored')
    if (bad) return { ok: false, detail: `${bad.kind}: ${bad.message}`, percentiles: [] }
    const scored = results.flatMap((r) => (r.kind === 'scored' ? [r] : []))
    const text = scored.map((r) => `${r.scope} ${r.score.toPrecision(4)} (${r.percentile.toFixed(2)})`).join(', ')
    return { ok: true, detail: text, percentiles: scored.map((r) => r.percentile) }
  }
  await check('perfect', async () => {
    const g = await graded(encode(perfect(card, answers)))
    return { ok: g.ok && g.percentiles.every((p) => p === 1), detail: g.detail }
  })
  await check('sample', () => graded(sample))
  await check('constant', async () => {
    const g = await graded(encode(constant(card, ids, train)))
    return { ok: g.ok && (!board || g.percentiles.every((p) => p <= MOST_OF_A_CONSTANT)), detail: g.detail }
  })
  const wrong = malformed(card, ids, new TextDecoder().decode(sample))
  await check('malformed', async () => {
    const said: string[] = []
    for (const w of wrong) {
      for (const s of SCOPES) {
        const r = await grader.grade(task, w.csv, s)
        if (r.kind !== 'invalid' || r.code !== w.code)
          said.push(`${w.what}: ${r.kind === 'invalid' ? r.code : r.kind}, expected ${w.code}`)
      }
    }
    return { ok: said.length === 0, detail: said.length > 0 ? said.join('; ') : wrong.map((w) => w.code).join(', ') }
  })
  await check('empty', async () => {
    const r = await grader.grade(task, new Uint8Array(), 'feedback')
    return { ok: r.kind === 'invalid' && r.code === 'empty', detail: r.kind === 'invalid' ? r.code : r.kind }
  })
  return board ? [...out, ...validateBoard(board)] : out
}

/** Size, strong and crippled entries, spread and agreement of a leaderboard. */
export function validateBoard(b: BoardFile): Check[] {
  const n = b.entries.length
  const crippled = b.entries.filter((e) => e.strength === 'crippled').length
  const strong = b.entries.filter((e) => e.strength === 'strong')
  const families = new Set(strong.map((e) => e.family)).size
  const spread = SCOPES.map((s) => {
    const x = b.entries.map((e) => e[s]).sort((p, q) => (b.higherIsBetter ? q - p : p - q))
    return { best: x[0]!, median: x[n >> 1]!, last: x[n - 1]!, distinct: new Set(x).size }
  })
  const agreement =
    rankCorrelation(
      b.entries.map((e) => e.feedback),
      b.entries.map((e) => e.final),
    ) ?? 0
  return [
    { name: 'board size', ok: n >= LEAST_ENTRIES, detail: `${n} entries` },
    {
      name: 'board strong',
      ok: strong.length >= LEAST_STRONG && families >= LEAST_STRONG_FAMILIES,
      detail: `${strong.length} from ${families} families`,
    },
    { name: 'board crippled', ok: crippled <= CRIPPLED_SHARE * n, detail: `${crippled} of ${n}` },
    {
      name: 'board spread',
      ok: spread.every((s) => s.best !== s.median && s.median !== s.last && s.distinct >= LEAST_DISTINCT),
      detail: spread.map((s) => [s.best, s.median, s.last].map((v) => v.toPrecision(4)).join(' / ')).join('; '),
    },
    { name: 'board agreement', ok: agreement >= LEAST_AGREEMENT, detail: agreement.toFixed(3) },
  ]
}

async function table(path: string): Promise<{ header: string[]; rows: string[][] }> {
  const t = readCsv(await readFile(path, 'utf8'))
  if ('error' in t) throw new Error(`${path}: ${t.error}`)
  return t
}

const encode = (rows: readonly (readonly string[])[]): Uint8Array =>
  new TextEncoder().encode(`${rows.map((r) => r.join(',')).join('\n')}\n`)

function header(card: TaskCard): string[] {
  return [card.submission.idColumn, ...card.submission.columns]
}

/** The submission that no other can beat, from the answers of both scopes. */
function perfect(card: TaskCard, answers: Record<Scope, Answers>): string[][] {
  const rows = SCOPES.flatMap((s) => {
    const a = answers[s]
    return a.scopeIds.map((id, i) => {
      const truth = a.truth.map((c) => c[i]!)
      if (card.submission.kind === 'proba')
        return [id, ...card.submission.columns.map((c) => (c === truth[0] ? '1' : '0'))]
      if (card.metric.name === 'cindex') return [id, String(-Number(truth[0]))]
      return [id, ...truth]
    })
  })
  return [header(card), ...rows]
}

/** What one would say without looking at a row: mean, base rate, the most frequent label. */
function constant(card: TaskCard, ids: readonly string[], train: { header: string[]; rows: string[][] }): string[][] {
  const column = (name: string): string[] => train.rows.map((r) => r[train.header.indexOf(name)]!)
  const counts = new Map<string, number>()
  for (const v of column(card.targets[0]!)) counts.set(v, (counts.get(v) ?? 0) + 1)
  const often = [...counts].sort((a, b) => b[1] - a[1]).map(([v]) => v)
  const mean = (x: readonly string[]): string => String(x.reduce((s, v) => s + Number(v), 0) / x.length)
  const cells = (() => {
    switch (card.submission.kind) {
      case 'label':
        return [often[0]!]
      case 'topk':
        return [often.slice(0, 3).join(' ')]
      case 'proba':
        return card.submission.columns.map((c) => String((counts.get(c) ?? 0) / train.rows.length))
      default:
        return card.metric.name === 'cindex' ? ['0'] : card.targets.map((t) => mean(column(t)))
    }
  })()
  return [header(card), ...ids.map((id) => [id, ...cells])]
}

/** The sample, broken in one place each, with the refusal that must come back. */
function malformed(
  card: TaskCard,
  ids: readonly string[],
  sample: string,
): { what: string; csv: Uint8Array; code: InvalidCode }[] {
  const lines = sample.trimEnd().split('\n')
  const text = (l: readonly string[]): Uint8Array => new TextEncoder().encode(`${l.join('\n')}\n`)
  const cell = (v: string): string[] => {
    const [first, ...rest] = lines[1]!.split(',')
    return [lines[0]!, [first, v, ...rest.slice(1)].join(','), ...lines.slice(2)]
  }
  const label = card.submission.kind === 'label' || card.submission.kind === 'topk'
  return [
    { what: 'a missing row', csv: text(lines.slice(0, -1)), code: 'row-count' },
    { what: 'a repeated row', csv: text([...lines, lines[1]!]), code: 'id-duplicate' },
    { what: 'another id', csv: text([...lines, lines[1]!.replace(ids[0]!, '7')]), code: 'id-unknown' },
    {
      what: 'a renamed column',
      csv: text([lines[0]!.replace(/,[^,]*$/, ',guess'), ...lines.slice(1)]),
      code: 'columns',
    },
    { what: 'a cell of text', csv: text(cell('nonsense!')), code: label ? 'unknown-label' : 'not-finite' },
    { what: 'bytes that are no text', csv: new Uint8Array([0xff, 0xfe, 0x00, 0xd8]), code: 'unreadable' },
  ]
}
