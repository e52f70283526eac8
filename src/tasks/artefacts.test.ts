import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { MissingError, TaskError } from '../core/index.ts'
import { fetchArtefact } from './artefacts.ts'
import type { ArtefactPin } from './catalogue.ts'

const CONTENT = 'the artefact\n'
const pin = (registry: ArtefactPin['registry']): ArtefactPin => ({
  key: 'toy',
  registry,
  spec: 'toy@1.0.0',
  file: 'toy-1.0.0.tgz',
  sha256: createHash('sha256').update(CONTENT).digest('hex'),
})
let dir: string
let bin: string
const path = process.env.PATH

beforeEach(() => {
  const root = mkdtempSync(join(tmpdir(), 'wmrl-artefacts-'))
  dir = join(root, 'artefacts')
  bin = join(root, 'bin')
  mkdirSync(bin)
  process.env.PATH = `${bin}:${path}`
})
afterEach(() => {
  process.env.PATH = path
  rmSync(join(dir, '..'), { recursive: true, force: true })
})

/** Puts a program of this name first on the PATH; it notes each call. */
function stub(name: string, body: string): void {
  writeFileSync(join(bin, name), `#!/bin/sh\necho "$@" >> "${bin}/calls"\n${body}\n`)
  chmodSync(join(bin, name), 0o755)
}
const calls = (): string[] => {
  try {
    return readFileSync(join(bin, 'calls'), 'utf8').trim().split('\n')
  } catch {
    return []
  }
}
const giving = (text: string): string => `printf '${text.replace('\n', '\\n')}' > toy-1.0.0.tgz`
const get = (registry: ArtefactPin['registry'] = 'npm', signal = new AbortController().signal): Promise<string> =>
  fetchArtefact(pin(registry), { dir, python: join(bin, 'python'), signal, log: () => {} })
const error = (p: Promise<unknown>): Promise<Error> =>
  p.then(
    () => new Error('nothing was thrown'),
    (e: Error) => e,
  )

test('is fetched once by its own client, then lies there', async () => {
  stub('npm', giving(CONTENT))
  const file = await get()
  expect(readFileSync(file, 'utf8')).toBe(CONTENT)
  expect(await get()).toBe(file)
  expect(calls()).toHaveLength(1)
  expect(calls()[0]).toContain('toy@1.0.0')
  expect(readdirSync(dir)).toEqual(['toy-1.0.0.tgz'])
})

test('a file that is not whole is fetched again', async () => {
  stub('npm', giving(CONTENT))
  mkdirSync(dir)
  writeFileSync(join(dir, 'toy-1.0.0.tgz'), CONTENT.slice(0, 4))
  expect(readFileSync(await get(), 'utf8')).toBe(CONTENT)
})

test('another content than the pinned is refused, and nothing is left', async () => {
  stub('npm', giving('something else'))
  const e = await error(get())
  expect(e).toBeInstanceOf(TaskError)
  expect(e.message).toMatch(/toy-1\.0\.0\.tgz has SHA-256 [0-9a-f]{64}, pinned is/)
  expect(readdirSync(dir)).toEqual([])
})

test('without a network: one line with the fix', async () => {
  stub('npm', 'echo "npm error network getaddrinfo ENOTFOUND" >&2; exit 1')
  stub('python', 'echo "ERROR: Could not find a version" >&2; exit 1')
  for (const r of ['npm', 'pypi'] as const) {
    const e = await error(get(r))
    expect(e).toBeInstanceOf(MissingError)
    expect(e.message).toMatch(/could not fetch toy@1\.0\.0 .*; see to the network/)
    expect(e.message).not.toContain('\n')
  }
})

test('apt: the lists are brought up to date once, as root; otherwise the fix says what to do', async () => {
  stub('apt-get', 'case "$1" in update) exit 0;; esac; echo "E: Unable to locate package" >&2; exit 100')
  const e = await error(get('apt'))
  expect(e).toBeInstanceOf(MissingError)
  const root = process.getuid?.() === 0
  expect(calls().filter((c) => c === 'update')).toHaveLength(root ? 1 : 0)
  expect(e.message).toMatch(root ? /see to the network/ : /let root run: apt-get update/)
})

test('no such client: what is missing and where the file may be put', async () => {
  process.env.PATH = bin
  const e = await error(get('apt'))
  expect(e).toBeInstanceOf(MissingError)
  expect(e.message).toBe(
    `toy@1.0.0 needs apt-get, which this machine lacks; put toy-1.0.0.tgz into ${dir} and run the same command again`,
  )
})

test('an abort ends the client and leaves nothing', async () => {
  stub('npm', 'exec sleep 60')
  const abort = new AbortController()
  const pending = error(get('npm', abort.signal))
  setTimeout(() => abort.abort(new Error('stopped')), 200)
  expect((await pending).message).toBe('stopped')
  expect(readdirSync(dir)).toEqual([])
})

test('what a killed download left is swept', async () => {
  stub('npm', giving(CONTENT))
  mkdirSync(join(dir, '.fetch-999999999-abc'), { recursive: true })
  await get()
  expect(readdirSync(dir)).toEqual(['toy-1.0.0.tgz'])
})
