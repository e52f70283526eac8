/**
 * Who may import whom (docs/architecture/README.md). Imports of types count; tests may import what they test with. A room
 * is a folder of src/; what it offers stands in its index.ts.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join, normalize, relative, sep } from 'node:path'
import { expect, test } from 'vitest'

const MAY: Readonly<Record<string, readonly string[]>> = {
  core: [],
  method: ['core'],
  tasks: ['core'],
  grading: ['core', 'tasks'],
  sandbox: ['core'],
  executors: ['core', 'sandbox'],
  engine: ['core'],
  judge: ['core', 'tasks', 'grading', 'sandbox', 'executors', 'engine'],
  agent: ['core', 'tasks', 'engine', 'judge'],
  train: ['core', 'method', 'tasks', 'engine', 'judge', 'agent'],
  ledger: ['core'],
  report: ['core', 'method', 'ledger'],
  dashboard: ['core', 'ledger', 'report'],
}
const src = join(import.meta.dirname, '..', 'src')
const rooms = readdirSync(src, { withFileTypes: true })
  .filter((e) => e.isDirectory())
  .map((e) => e.name)
/** `lab` may import all but these, `cli` everything. */
const NOT_FOR_LAB = ['dashboard', 'cli']

function files(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true }).flatMap((e) => {
    const path = join(dir, e.name)
    return e.isDirectory() ? files(path) : /\.tsx?$/.test(e.name) && !/\.test(-d)?\.tsx?$/.test(e.name) ? [path] : []
  })
}

/** What a file imports: static, for types, re-exported, on demand. */
function imports(path: string): string[] {
  const text = readFileSync(path, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '')
  return [...text.matchAll(/(?:\bfrom\s+|\bimport\s+|\bimport\(\s*)'([^']+)'/g)].map((m) => m[1]!)
}

const edges = files(src).flatMap((path) => {
  const from = relative(src, path).split(sep)[0]!
  return imports(path)
    .filter((i) => i.startsWith('.'))
    .map((i) => ({ path: relative(src, path), from, to: relative(src, normalize(join(path, '..', i))).split(sep)[0]! }))
    .filter((e) => e.from !== e.to && rooms.includes(e.from))
})

test('every room is known', () => {
  const known = [...Object.keys(MAY), 'lab', 'cli']
  expect(rooms.filter((r) => !known.includes(r))).toEqual([])
})

test('no room imports what is above it or beside it', () => {
  const wrong = edges.filter(({ from, to }) => {
    if (from === 'cli') return false
    if (from === 'lab') return NOT_FOR_LAB.includes(to)
    return !MAY[from]!.includes(to)
  })
  expect(wrong.map((e) => `${e.path} imports ${e.to}`)).toEqual([])
})

test('the table has no circle', () => {
  const depth = (room: string, path: readonly string[] = []): number => {
    if (path.includes(room)) throw new Error([...path, room].join(' -> '))
    return 1 + Math.max(0, ...(MAY[room] ?? []).map((r) => depth(r, [...path, room])))
  }
  expect(
    Object.keys(MAY)
      .map((r) => depth(r))
      .every((d) => d > 0),
  ).toBe(true)
})

test('the method is pure: no input or output, no clock, no waiting', () => {
  const bad = files(join(src, 'method')).filter((f) => {
    const outside = imports(f).some((i) => !i.startsWith('.'))
    return outside || /\b(async|await|Promise|Date|performance|process|console|setTimeout|Math\.random)\b/.test(code(f))
  })
  expect(bad.map((f) => relative(src, f))).toEqual([])
})

test('each database driver, archive and web server has one importer', () => {
  const importers = (name: string): string[] =>
    files(src)
      .filter((f) => imports(f).includes(name))
      .map((f) => relative(src, f))
  expect(importers('libsql')).toEqual([join('ledger', 'sqlite.ts')])
  expect(importers('onnxruntime-node').every((f) => f.startsWith(join('engine', 'onnx')))).toBe(true)
})

/** A file without comments and texts. */
const code = (path: string): string =>
  readFileSync(path, 'utf8')
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/\/\/.*$/gm, '')
    .replace(/'[^'\n]*'|`[^`]*`/g, "''")

/** May default a handed-in source of randomness: the jitter of retries, which no result depends on. */
const JITTER = join('engine', 'tinker', 'client.ts')

test('no randomness but the keyed one, and no registry hosts', () => {
  const random = files(src)
    .map((f) => relative(src, f))
    .filter((f) => f !== JITTER && /Math\.random/.test(code(join(src, f))))
  expect(random).toEqual([])
  const hosts = /registry\.npmjs|pypi\.org|files\.pythonhosted|deb\.debian/
  expect(files(src).filter((f) => hosts.test(readFileSync(f, 'utf8')))).toEqual([])
})
