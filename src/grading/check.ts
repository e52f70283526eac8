import { parse } from 'csv-parse/sync'
import type { InvalidCode } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'

/** Largest submission that is looked at, in bytes. */
export const MAX_SUBMISSION_BYTES = 64 * 1024 * 1024

export interface Refusal {
  readonly code: InvalidCode
  /** For the agent: names the row or column at fault, never an answer. */
  readonly message: string
}

export interface CheckedSubmission {
  /** Cells by submission column, in the order of the ids asked for. Labels are canonical ("3", not "3.0"). */
  readonly predicted: readonly (readonly string[])[]
}

/** Decodes UTF-8 strictly; a byte-order mark is dropped. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** Parses RFC 4180 text to rows of cells, or says what is wrong with it. Every row has the header's length. */
export function readCsv(text: string): { header: string[]; rows: string[][] } | { error: string } {
  try {
    const all: string[][] = parse(text, { bom: true, relax_column_count: true, skip_empty_lines: true })
    const header = all[0]
    if (!header) return { error: 'the file is empty' }
    const rows = all.slice(1)
    const bad = rows.findIndex((r) => r.length !== header.length)
    if (bad >= 0) return { error: `row ${bad + 1} has ${rows[bad]!.length} cells, the header has ${header.length}` }
    return { header, rows }
  } catch (e) {
    return { error: e instanceof Error ? e.message.split('\n')[0]! : 'not a csv file' }
  }
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/
const quote = (s: string): string => JSON.stringify(s.length > 40 ? `${s.slice(0, 37)}...` : s)

/** A label as the classes write it: an integer-valued decimal counts as that integer. */
export function canonicalLabel(cell: string): string {
  const m = /^([+-]?\d+)\.0*$/.exec(cell)
  return m ? m[1]! : cell
}

const PROBABILITY_METRICS = new Set(['log_loss', 'brier'])

/**
 * The strict check that stands before every metric: columns, id set, duplicates, finite numbers, ranges, labels; rows may
 * come in any order. `ids` are all test ids; the result follows their order.
 */
export function checkSubmission(
  card: TaskCard,
  ids: readonly string[],
  bytes: Uint8Array,
): CheckedSubmission | Refusal {
  if (bytes.length > MAX_SUBMISSION_BYTES)
    return refuse('too-large', `submission.csv is larger than ${MAX_SUBMISSION_BYTES} bytes`)
  const text = decodeUtf8(bytes)
  if (text === undefined) return refuse('unreadable', 'submission.csv is not UTF-8 text')
  if (text.trim() === '') return refuse('empty', 'submission.csv is empty')
  const table = readCsv(text)
  if ('error' in table) return refuse('unreadable', `submission.csv: ${table.error}`)
  const { idColumn, columns } = card.submission
  const wanted = [idColumn, ...columns]
  const shape = columnsFault(table.header, wanted)
  if (shape) return refuse('columns', shape)
  const at = wanted.map((c) => table.header.indexOf(c))
  const idAt = at[0]!
  const place = new Map(ids.map((id, i) => [id, i]))
  const order = new Array<number>(ids.length).fill(-1)
  for (let r = 0; r < table.rows.length; r++) {
    const id = table.rows[r]![idAt]!.trim()
    if (id === '') return refuse('id-missing', `row ${r + 1} has no ${idColumn}`)
    const k = place.get(id)
    if (k === undefined) return refuse('id-unknown', `row ${r + 1}: ${idColumn} ${quote(id)} is not in test.csv`)
    if (order[k]! >= 0)
      return refuse('id-duplicate', `${idColumn} ${quote(id)} stands in rows ${order[k]! + 1} and ${r + 1}`)
    order[k] = r
  }
  if (table.rows.length !== ids.length) {
    return refuse(
      'row-count',
      `${table.rows.length} rows, expected ${ids.length}; ${idColumn} ${quote(ids[order.indexOf(-1)]!)} is missing`,
    )
  }
  const predicted = columns.map((_, c) => order.map((r) => table.rows[r]![at[c + 1]!]!.trim()))
  for (let c = 0; c < columns.length; c++) {
    const fault = columnFault(card, columns[c]!, predicted[c]!, order)
    if (fault) return fault
  }
  const kind = card.submission.kind
  if (kind === 'label') return { predicted: predicted.map((col) => col.map(canonicalLabel)) }
  if (kind === 'proba') {
    const zero = ids.findIndex((_, i) => predicted.every((col) => Number(col[i]) === 0))
    if (zero >= 0) return refuse('row-sum', `row ${order[zero]! + 1}: all class columns are 0`)
  }
  return { predicted }
}

function columnsFault(header: readonly string[], wanted: readonly string[]): string | undefined {
  const missing = wanted.filter((c) => !header.includes(c))
  if (missing.length > 0) return `column ${quote(missing[0]!)} is missing`
  const extra = header.filter((c) => !wanted.includes(c))
  if (extra.length > 0) return `column ${quote(extra[0]!)} does not belong there`
  if (header.length !== wanted.length) return 'a column name stands twice'
  return undefined
}

function columnFault(
  card: TaskCard,
  name: string,
  cells: readonly string[],
  order: readonly number[],
): Refusal | undefined {
  const { kind, classes } = card.submission
  const metric = card.metric.name
  const row = (i: number): string => `row ${order[i]! + 1}, column ${quote(name)}`
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i]!
    if (kind === 'label') {
      if (cell === '') return refuse('not-finite', `${row(i)} is empty`)
      if (classes && !classes.includes(canonicalLabel(cell)))
        return refuse('unknown-label', `${row(i)}: ${quote(cell)} is no label of this task`)
      continue
    }
    if (kind === 'topk') {
      const words = cell.split(/\s+/).filter((w) => w !== '')
      if (words.length === 0) return refuse('not-finite', `${row(i)} is empty`)
      if (words.length > 3) return refuse('out-of-range', `${row(i)} holds more than three guesses`)
      const unknown = classes ? words.find((w) => !classes.includes(canonicalLabel(w))) : undefined
      if (unknown !== undefined) return refuse('unknown-label', `${row(i)}: ${quote(unknown)} is no label of this task`)
      continue
    }
    const v = NUMBER.test(cell) ? Number(cell) : Number.NaN
    if (!Number.isFinite(v)) return refuse('not-finite', `${row(i)} is not a finite number`)
    if ((kind === 'proba' && v < 0) || (PROBABILITY_METRICS.has(metric) && (v < 0 || v > 1))) {
      return refuse('out-of-range', `${row(i)}: ${cell} is no probability`)
    }
    if (metric === 'rmsle' && v < 0) return refuse('out-of-range', `${row(i)}: ${cell} is negative`)
  }
  return undefined
}

const refuse = (code: InvalidCode, message: string): Refusal => ({ code, message })
