/** scripts/setup.mjs in a clone of a few files, with programs that stand in for npm and the builder. */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'wmrl-setup-'))
  for (const d of ['scripts', 'src', 'bin', 'python']) mkdirSync(join(root, d))
  copyFileSync(join(import.meta.dirname, '..', 'scripts', 'setup.mjs'), join(root, 'scripts', 'setup.mjs'))
  const files: Record<string, string> = {
    'package.json': '{"name":"wmrl"}',
    'package-lock.json': '{"packages":{"":{},"node_modules/a":{"version":"1.0.0"}}}',
    'tsconfig.json': '{}',
    'tsdown.config.ts': '',
    'src/index.ts': 'export {}\n',
    'python/requirements-solutions.lock': 'a==1\n',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, name), text)
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

/** An npm that leaves the wished-for packages and a builder. */
const NPM = `echo npm "$@" >> calls
mkdir -p node_modules/tsdown/dist
echo '{"packages":{"node_modules/a":{"version":"1.0.0"}}}' > node_modules/.package-lock.json
cat > node_modules/tsdown/dist/run.mjs <<'JS'
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs'
appendFileSync('calls', 'build\\n')
mkdirSync('dist/cli', { recursive: true })
writeFileSync('dist/cli/main.js', '')
JS`

function stub(name: string, body: string): void {
  writeFileSync(join(root, 'bin', name), `#!/bin/sh\nPATH=/usr/bin:/bin\n${body}\n`)
  chmodSync(join(root, 'bin', name), 0o755)
}
function setup(env: Record<string, string> = {}): { code: number | null; lines: string[] } {
  const r = spawnSync(process.execPath, ['scripts/setup.mjs', '--no-system'], {
    cwd: root,
    encoding: 'utf8',
    env: { PATH: join(root, 'bin'), HOME: root, WMRL_PYTHON: process.execPath, ...env },
  })
  return { code: r.status, lines: r.stderr.trim().split('\n') }
}
const calls = (): string[] =>
  existsSync(join(root, 'calls')) ? readFileSync(join(root, 'calls'), 'utf8').trim().split('\n') : []

test('sets up once; the second call does nothing', () => {
  stub('npm', NPM)
  expect(setup().code).toBe(0)
  expect(calls()).toEqual(['npm ci --no-audit --no-fund --loglevel=error', 'build'])
  expect(existsSync(join(root, 'node_modules', '.bin', 'wmrl'))).toBe(true)
  const second = setup()
  expect(second.code).toBe(0)
  expect(second.lines.at(-1)).toMatch(/^setup: ready \(0\.\d s\)$/)
  expect(calls()).toHaveLength(2)
})

test('changed sources are built again, changed dependencies installed again', () => {
  stub('npm', NPM)
  setup()
  writeFileSync(join(root, 'src', 'index.ts'), 'export const a = 1\n')
  setup()
  expect(calls().filter((c) => c === 'build')).toHaveLength(2)
  writeFileSync(join(root, 'src', 'index.test.ts'), '// tests are no sources\n')
  setup()
  expect(calls().filter((c) => c === 'build')).toHaveLength(2)
  rmSync(join(root, 'node_modules', '.package-lock.json'))
  setup()
  expect(calls().filter((c) => c.startsWith('npm'))).toHaveLength(2)
})

test.each([
  ['no npm', {}, undefined, /npm is not on PATH; install npm/],
  [
    'no network',
    {},
    'echo "npm error code ENOTFOUND" >&2; echo "npm error network request failed, reason: getaddrinfo ENOTFOUND" >&2; exit 1',
    /npm ci failed \(.*getaddrinfo ENOTFOUND.*\); see to the network/,
  ],
  ['no such Python', { WMRL_PYTHON: '/nowhere/python' }, NPM, /WMRL_PYTHON names \/nowhere\/python.*; unset it/],
] as const)('%s: one line with the fix, exit code 3', (_, env, npm, said) => {
  if (npm) stub('npm', npm)
  const r = setup(env)
  expect(r.code).toBe(3)
  expect(r.lines.at(-1)).toMatch(said)
  expect(existsSync(join(root, '.wmrl', 'setup.lock'))).toBe(false)
})

test('a build that fails is said, exit code 1', () => {
  stub('npm', `${NPM}\necho 'throw new Error("ERROR: no such module")' > node_modules/tsdown/dist/run.mjs`)
  const r = setup()
  expect(r.code).toBe(1)
  expect(r.lines.at(-1)).toMatch(/the build failed: .*no such module.*; see: npm run build/)
})

test('a lock whose owner is gone is taken over', () => {
  stub('npm', NPM)
  mkdirSync(join(root, '.wmrl'))
  writeFileSync(join(root, '.wmrl', 'setup.lock'), '999999999')
  expect(setup().code).toBe(0)
})

test('a home that cannot be written is said, exit code 3', () => {
  writeFileSync(join(root, 'file'), '')
  const r = setup({ WMRL_HOME: join(root, 'file', 'home') })
  expect(r.code).toBe(3)
  expect(r.lines.at(-1)).toMatch(/cannot be (written|made)/)
})
