#!/usr/bin/env node
/**
 * Sets up a clone, and does nothing where that is done: dependencies, build, the Python environment of the solutions,
 * bubblewrap. No dependencies of its own. What cannot be set up is said in one line with the fix; exit code 3.
 *
 *   node scripts/setup.mjs [--no-system] [--quiet]
 *
 * `--no-system` forbids installing a system package (bubblewrap, by apt, as root).
 */
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const home = process.env.WMRL_HOME ?? join(root, '.wmrl')
const flags = new Set(process.argv.slice(2))
const quiet = flags.has('--quiet')
const started = Date.now()
process.chdir(root)
// Programs in the sandbox run as another user and read the environment.
process.umask(0o022)

const say = (line) => {
  if (!quiet) process.stderr.write(`setup: ${line}\n`)
}

class Missing extends Error {
  constructor(what, fix) {
    super(`${what}; ${fix}`)
  }
}

const sha256 = (...parts) => {
  const h = createHash('sha256')
  for (const p of parts) h.update(p).update('\0')
  return h.digest('hex')
}
const readText = (path) => (existsSync(path) ? readFileSync(path, 'utf8') : undefined)

/** Runs a program, showing the lines that `show` lets through; resolves to its exit code and its last lines. */
function run(program, args, { env = process.env, show = () => undefined } = {}) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] })
    const tail = []
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        if (line.trim() === '') return
        tail.push(line.trim())
        if (tail.length > 60) tail.splice(20, 1)
        const text = show(line)
        if (text) say(text)
      })
    }
    child.once('error', (e) => resolve({ code: 127, tail: [e.message] }))
    child.once('close', (code) => resolve({ code: code ?? 1, tail }))
  })
}

/** The line of a program's output that says what went wrong: the first that names trouble, else the last. */
const reason = (tail) => {
  const plain = tail
    .map((l) => l.replace(/^npm (error|ERR!)\s*/, ''))
    .filter((l) => l !== '' && !/^code [A-Z]+$/.test(l))
  return (
    plain.find((l) => TROUBLE.test(l)) ?? (/^npm /.test(tail[0] ?? '') ? plain[0] : plain.at(-1)) ?? 'no reason given'
  )
}
const TROUBLE = /ENOSPC|No space left|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ERROR|error:/

function needDisk(dir, megabytes) {
  mkdirSync(dir, { recursive: true })
  const s = statfsSync(dir)
  const free = Math.floor((s.bavail * s.bsize) / 2 ** 20)
  if (free < megabytes)
    throw new Missing(`${free} MB are free in ${dir}, ${megabytes} MB are needed`, 'make room and run: npm run setup')
}

// Dependencies

/** Whether node_modules holds what package-lock.json asks for; optional packages of other platforms may be absent. */
function dependenciesFit() {
  const wanted = JSON.parse(readFileSync('package-lock.json', 'utf8')).packages
  const text = readText('node_modules/.package-lock.json')
  if (text === undefined) return false
  const have = JSON.parse(text).packages
  return Object.entries(wanted).every(
    ([path, p]) => path === '' || p.optional || p.devOptional || p.peer || have[path]?.version === p.version,
  )
}

async function dependencies() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 19))
    throw new Missing(`Node ${process.versions.node} is too old`, 'install Node 20.19 or later')
  if (dependenciesFit()) return
  needDisk(root, 1000)
  say('npm ci (about 120 packages)')
  const env = { ...process.env, ONNXRUNTIME_NODE_INSTALL: 'skip' }
  const { code, tail } = await run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { env })
  if (code === 127)
    throw new Missing('npm is not on PATH', 'install npm, which comes with Node, and run: node scripts/setup.mjs')
  if (code !== 0)
    throw new Missing(`npm ci failed (${reason(tail)})`, 'see to the network or the registry and run: npm run setup')
}

// Build

function sources(dir) {
  return readdirSync(dir, { withFileTypes: true }).flatMap((e) => {
    const path = join(dir, e.name)
    if (e.isDirectory()) return e.name === '__fixtures__' ? [] : sources(path)
    return /\.tsx?$/.test(e.name) && !/\.test(-d)?\.ts$/.test(e.name) ? [path] : []
  })
}

async function build() {
  const files = [...sources('src'), 'tsdown.config.ts', 'tsconfig.json', 'package.json', 'package-lock.json'].sort()
  const digest = sha256(...files.flatMap((f) => [f, readFileSync(f)]))
  const marker = 'dist/.built'
  if (readText(marker) !== digest || !existsSync('dist/cli/main.js')) {
    say('building')
    const { code, tail } = await run(process.execPath, ['node_modules/tsdown/dist/run.mjs', '--logLevel', 'error'])
    if (code !== 0) throw new Error(`the build failed: ${reason(tail)}; see: npm run build`)
    chmodSync('dist/cli/main.js', 0o755)
    writeFileSync(marker, digest)
  }
  // So that `npx wmrl` runs this build.
  const link = 'node_modules/.bin/wmrl'
  if (!existsSync(link)) {
    rmSync(link, { force: true })
    mkdirSync('node_modules/.bin', { recursive: true })
    symlinkSync('../../dist/cli/main.js', link)
  }
}

// The solutions' Python environment

const LOCK = 'python/requirements-solutions.lock'

function pythons() {
  const list = [process.env.WMRL_BASE_PYTHON, 'python3.11', 'python3.12', 'python3.13', 'python3', 'python']
  for (const dir of ['/usr/bin', '/usr/local/bin', '/opt/homebrew/bin'])
    for (const v of ['3.11', '3.12', '3.13']) list.push(join(dir, `python${v}`))
  for (const pyenv of new Set([process.env.PYENV_ROOT, join(homedir(), '.pyenv')])) {
    const versions = pyenv ? join(pyenv, 'versions') : undefined
    if (!versions || !existsSync(versions)) continue
    for (const v of readdirSync(versions)
      .filter((n) => /^3\.1[123]\./.test(n))
      .sort())
      list.push(join(versions, v, 'bin', 'python'))
  }
  return list.filter(Boolean)
}

/** The first Python of 3.11 to 3.13 that can make an environment; `why` tells of those that cannot. */
function findPython() {
  const why = []
  const test = 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable); import venv, ensurepip'
  for (const p of pythons()) {
    const r = spawnSync(p, ['-I', '-c', test], { encoding: 'utf8' })
    const [version, path] = (r.stdout ?? '').trim().split(' ')
    if (!/^3\.1[123]$/.test(version ?? '')) continue
    if (r.status === 0) return { version, path }
    why.push(`${path} lacks ensurepip`)
  }
  const lacking = why.length > 0
  throw new Missing(
    `no Python of 3.11 to 3.13 ${lacking ? `that can make an environment (${[...new Set(why)].join(', ')})` : 'was found'}`,
    lacking
      ? 'install python3-venv and run: npm run setup'
      : 'install one (or set WMRL_BASE_PYTHON) and run: npm run setup',
  )
}

const onPath = (program) => (process.env.PATH ?? '').split(delimiter).some((d) => d && existsSync(join(d, program)))

async function pythonEnvironment() {
  if (process.env.WMRL_PYTHON) {
    if (!existsSync(process.env.WMRL_PYTHON))
      throw new Missing(`WMRL_PYTHON names ${process.env.WMRL_PYTHON}, which is not there`, 'unset it or correct it')
    return
  }
  const venv = join(home, 'venv')
  const python = join(venv, 'bin', 'python')
  const marker = join(venv, '.wmrl-lock')
  const digest = sha256(readFileSync(LOCK))
  if (readText(marker) === digest && existsSync(python)) return
  const base = findPython()
  needDisk(home, 2000)
  rmSync(venv, { recursive: true, force: true })
  say(`Python ${base.version} environment in ${venv}`)
  // Nothing of the user's own packages or settings of other projects; registry and certificate settings stay.
  const env = {
    ...process.env,
    PYTHONNOUSERSITE: '1',
    PIP_USER: '0',
    PIP_DISABLE_PIP_VERSION_CHECK: '1',
    PIP_NO_INPUT: '1',
  }
  for (const k of ['PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV', 'PIP_TARGET', 'PIP_PREFIX']) delete env[k]
  const failed = (what, tail) =>
    new Missing(`${what} failed (${reason(tail)})`, 'see to the network or the registry and run: npm run setup')
  const made = await run(base.path, ['-m', 'venv', venv], { env })
  if (made.code !== 0)
    throw new Missing(`making ${venv} failed (${reason(made.tail)})`, 'see to it and run: npm run setup')
  const packages = (readFileSync(LOCK, 'utf8').match(/^[A-Za-z0-9._-]+==/gm) ?? []).length
  say(`installing ${packages} packages with their hashes checked (about 150 MB)`)
  const uv = onPath('uv')
  const install = uv
    ? await run('uv', ['pip', 'install', '--python', python, '--require-hashes', '--compile-bytecode', '-r', LOCK], {
        env,
      })
    : await run(
        python,
        [
          '-m',
          'pip',
          'install',
          '--require-hashes',
          '--only-binary',
          ':all:',
          '--compile',
          '--progress-bar',
          'off',
          '-r',
          LOCK,
        ],
        {
          env,
          show: (l) =>
            /^(Collecting|Installing collected)/.test(l) ? l.replace(/ \(from.*/, '').slice(0, 100) : undefined,
        },
      )
  if (install.code !== 0) throw failed(uv ? 'uv pip install' : 'pip install', install.tail)
  const works = await run(python, ['-I', '-c', 'import pandas, sklearn, lightgbm, PIL, scipy'], { env })
  if (works.code !== 0) throw failed('importing the installed packages', works.tail)
  writeFileSync(marker, digest)
}

// Sandbox parts

/** Bubblewrap is the only system package, and its absence costs a rung of containment, not the run. */
async function bubblewrap() {
  if (process.platform !== 'linux' || onPath('bwrap')) return
  const by = 'apt-get install -y --no-install-recommends bubblewrap'
  if (flags.has('--no-system') || process.getuid?.() !== 0 || !onPath('apt-get')) {
    const fix = onPath('apt-get')
      ? `to contain programs better let root run: ${by}`
      : 'to contain programs better install bubblewrap'
    say(`no bubblewrap: the sandbox falls back to a weaker rung (see: npx wmrl doctor); ${fix}`)
    return
  }
  say(by)
  const install = () =>
    run('apt-get', by.split(' ').slice(1), { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } })
  let r = await install()
  if (r.code !== 0) {
    await run('apt-get', ['update'])
    r = await install()
  }
  if (r.code !== 0)
    say(
      `bubblewrap could not be installed (${reason(r.tail)}): the sandbox falls back to a weaker rung; see: npx wmrl doctor`,
    )
}

/** One set-up at a time; a lock whose owner is gone is taken over. */
async function locked(body) {
  try {
    mkdirSync(home, { recursive: true })
  } catch (e) {
    throw new Missing(`${home} cannot be made (${e.code})`, 'make its parent writable or set WMRL_HOME')
  }
  const lock = join(home, 'setup.lock')
  for (let waited = 0; ; waited++) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' })
      break
    } catch (e) {
      if (e.code !== 'EEXIST')
        throw new Missing(`${home} cannot be written (${e.code})`, 'make it writable or set WMRL_HOME')
      const owner = Number(readText(lock) || 0)
      let alive = owner > 0
      try {
        if (alive) process.kill(owner, 0)
      } catch (err) {
        alive = err.code === 'EPERM'
      }
      if (!alive && waited > 0) rmSync(lock, { force: true })
      else if (waited === 1) say(`waiting for another set-up (process ${owner})`)
      if (waited > 1800)
        throw new Missing(`another set-up (process ${owner}) takes too long`, `end it and remove ${lock}`)
      await new Promise((r) => setTimeout(r, 1000))
    }
  }
  const release = () => rmSync(lock, { force: true })
  process.on('exit', release)
  for (const s of ['SIGINT', 'SIGTERM']) process.on(s, () => process.exit(130))
  await body()
}

try {
  await locked(async () => {
    await dependencies()
    await build()
    await pythonEnvironment()
    await bubblewrap()
  })
  say(`ready (${((Date.now() - started) / 1000).toFixed(1)} s)`)
} catch (e) {
  process.stderr.write(`setup: ${e.message}\n`)
  process.exitCode = e instanceof Missing || ['EROFS', 'EACCES', 'ENOSPC'].includes(e.code) ? 3 : 1
}
