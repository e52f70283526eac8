import { execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { MissingError } from '../core/index.ts'
import { discoverCgroups } from './cgroups.ts'
import type { Limits, RunResult, Sandbox } from './contract.ts'
import { openSandbox } from './open.ts'
import { probeRungs } from './probe.ts'
import { processIds, processTree } from './proc.ts'
import { testPython } from './testing/environment.ts'
import { PROBE_LIMITS, signature } from './testing/hostile.ts'
import { bundle } from './testing/ordinary-user.ts'

const soon = (): AbortSignal => AbortSignal.timeout(100_000)
const out = (r: RunResult): string => Buffer.from(r.stdout).toString('utf8')
const commandLine = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}
const withCommand = (text: string): number[] => processIds().filter((p) => commandLine(p).includes(text))
async function until(what: string, condition: () => boolean, ceilingMs = 15_000): Promise<void> {
  const end = Date.now() + ceilingMs
  while (!condition()) {
    if (Date.now() > end) throw new Error(`not within ${ceilingMs} ms: ${what}`)
    await new Promise((r) => setTimeout(r, 50))
  }
}
/** Cgroups and temporary directories named after a supervisor. */
function leftovers(pid: number): string[] {
  const host = discoverCgroups()
  const places = [...Object.values(host.v1), ...(host.v2 ? [host.v2] : []), tmpdir()]
  const mine = new RegExp(`^wmrl-\\d+-${pid}-`)
  return places.flatMap((p) =>
    readdirSync(p)
      .filter((n) => mine.test(n))
      .map((n) => join(p, n)),
  )
}

const stateDir = mkdtempSync(join(tmpdir(), 'wmrl-test-state-'))
const publicDir = mkdtempSync(join(tmpdir(), 'wmrl-test-public-'))
beforeAll(() => {
  chmodSync(publicDir, 0o755)
  mkdirSync(join(publicDir, 'images'), { mode: 0o755 })
  writeFileSync(join(publicDir, 'images', '1.txt'), 'one', { mode: 0o644 })
  writeFileSync(join(publicDir, 'train.csv'), 'id,x\n1,2\n', { mode: 0o644 })
})
afterAll(() => {
  for (const d of [stateDir, publicDir]) rmSync(d, { recursive: true, force: true })
})

describe.each([true, false])('a sandbox, fork server %s', (forkServer) => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await openSandbox({ python: testPython(), stateDir, workers: 2, forkServer })
  })
  afterAll(async () => {
    await sandbox?.[Symbol.asyncDispose]()
    expect(leftovers(process.pid)).toEqual([])
  })
  const run = (code: string, limits: Partial<Limits> = {}, seed = 1): Promise<RunResult> =>
    sandbox.run({ code, publicDir, limits: { ...PROBE_LIMITS, ...limits }, seed }, soon())

  it('shows the public files by relative name and takes the submission', async () => {
    const r = await run(`import os
print(open('train.csv').read(), open('images/1.txt').read(), sorted(os.listdir('.')))
open('submission.csv', 'w').write('id,y\\n1,0\\n')`)
    expect(signature(r)).toBe('finished')
    expect(out(r)).toContain("one ['images', 'main.py', 'train.csv']")
    expect(r.end.kind === 'finished' && Buffer.from(r.end.submission ?? []).toString()).toBe('id,y\n1,0\n')
    expect(r.runner).toBe(forkServer ? 'fork-server' : 'process')
    expect(r.cost.cpuS).toBeGreaterThan(0)
    expect(r.cost.peakBytes).toBeGreaterThan(1 << 20)
  })

  it.each<[string, string, object]>([
    [
      'an exception',
      `def f():\n    return {}['k']\n\nf()`,
      { kind: 'crashed', error: { type: 'KeyError', message: "'k'", line: 2 } },
    ],
    ['a syntax error', `x = 1\ny = (`, { kind: 'syntax-error', error: { type: 'SyntaxError', line: 2 } }],
    ['a syntax error while running', `exec('x = (')`, { kind: 'crashed', error: { type: 'SyntaxError', line: 1 } }],
    [
      'sys.exit with a number',
      `import sys\nsys.exit(3)`,
      { kind: 'crashed', error: { type: 'Exit', message: 'exit status 3' } },
    ],
    [
      'sys.exit with a text',
      `import sys\nsys.exit('no data')`,
      { kind: 'crashed', error: { type: 'Exit', message: 'no data' } },
    ],
    ['a clean exit', `import sys\nsys.exit()`, { kind: 'finished' }],
    [
      'a crash of the interpreter',
      `import ctypes\nctypes.string_at(0)`,
      { kind: 'crashed', error: { type: 'Signal', message: 'SIGSEGV' } },
    ],
    ['a full disk', `open('big', 'wb').write(b'x' * (80 << 20))`, { kind: 'crashed', error: { type: 'DiskLimit' } }],
    ['an absurd allocation', `bytearray(1 << 50)`, { kind: 'out-of-memory' }],
    [
      'a class with a hostile message',
      `class E(Exception):\n    def __str__(self): raise ValueError\nraise E`,
      { kind: 'crashed', error: { type: 'E', message: '' } },
    ],
    ['no code at all', ``, { kind: 'finished', submission: undefined }],
  ])('names %s', async (_, code, end) => {
    expect((await run(code)).end).toMatchObject(end)
  })

  it('names too many processes', async () => {
    const r = await run(`import os, time\nfor i in range(200):\n    if os.fork() == 0: time.sleep(9); os._exit(0)`, {
      processes: 8,
    })
    expect(signature(r)).toBe('crashed ProcessLimit')
  })

  it('counts CPU over the tree, and knows a submission that lay there', async () => {
    const r = await run(
      `import os\nopen('submission.csv','w').write('x')\nfor i in range(3): os.fork()\nwhile True: pass`,
      { cpuS: 1, cpus: 2 },
    )
    expect(r.end).toEqual({ kind: 'timed-out', limit: 'cpu', submissionPresent: true })
    expect(r.cost.cpuS).toBeLessThan(2)
  })

  it('flushes what only the globals hold, as an interpreter does at its end', async () => {
    const r = await run(
      `f = open('submission.csv', 'w')\nf.write('held')\nimport atexit\natexit.register(lambda: print('bye'))`,
    )
    expect(r.end.kind === 'finished' && Buffer.from(r.end.submission ?? []).toString()).toBe('held')
    expect(out(r)).toContain('bye')
  })

  it('seeds by the task: the same seed repeats, another does not', async () => {
    const code = `import random, numpy as np\nprint(random.random(), np.random.rand())`
    const [a, b, c] = [await run(code, {}, 7), await run(code, {}, 7), await run(code, {}, 8)]
    expect(out(a!)).toBe(out(b!))
    expect(out(a!)).not.toBe(out(c!))
  })

  it('cuts output at its limit and no earlier', async () => {
    expect(signature(await run(`import os\nos.write(1, b'x' * 1000)`, { outputBytes: 1000 }))).toBe('finished')
    const r = await run(`import os\nos.write(1, b'x' * 1001)`, { outputBytes: 1000 })
    expect(signature(r)).toBe('crashed OutputLimit')
    expect(r.stdout).toHaveLength(1000)
  })

  it('queues beyond its workers', async () => {
    const runs = await Promise.all(Array.from({ length: 5 }, (_, i) => run(`import time; time.sleep(.2); print(${i})`)))
    expect(runs.map((r) => out(r).trim())).toEqual(['0', '1', '2', '3', '4'])
  })

  it('ends a run that is aborted, and leaves nothing of it', async () => {
    const controller = new AbortController()
    const mark = `4${process.pid}${forkServer ? 1 : 2}`
    const p = sandbox.run(
      { code: `import subprocess\nsubprocess.run(['sleep', '${mark}'])`, publicDir, limits: PROBE_LIMITS, seed: 1 },
      controller.signal,
    )
    await until('the program runs', () => withCommand(`sleep ${mark}`).length > 0)
    controller.abort(new Error('enough'))
    await expect(p).rejects.toThrow('enough')
    expect(withCommand(`sleep ${mark}`)).toEqual([])
  })

  it('checks syntax without running anything', async () => {
    const check = (code: string) => sandbox.checkSyntax(code, soon())
    expect(await check(`print('not run')\nraise SystemExit(3)`)).toBeUndefined()
    expect(await check(`def f(:\n    pass`)).toMatchObject({ type: 'SyntaxError', line: 1 })
    expect(await check(`if x:\nprint(1)`)).toMatchObject({ type: 'IndentationError', line: 2 })
    expect((await check(`x = ${'('.repeat(5000)}${')'.repeat(5000)}`))?.type).toMatch(
      /SyntaxError|MemoryError|RecursionError/,
    )
    expect((await check(`x = ${'-'.repeat(200_000)}1`))?.type).toMatch(/MemoryError|RecursionError/)
    expect(await check(`x = 'a\0b'`)).toBeDefined()
    expect(await check(`x = 1 << 99999999999999`)).toBeUndefined()
  })

  it('is infra, never a crash, when the public files cannot be read', async () => {
    const r = await sandbox.run({ code: '', publicDir: '/nonexistent/x', limits: PROBE_LIMITS, seed: 1 }, soon())
    expect(r.end.kind).toBe('infra')
  })
})

describe('trouble of ours', () => {
  it('is infra when the fork server dies mid-run, and the next program gets a new one', async () => {
    await using sandbox = await openSandbox({ python: testPython(), stateDir, workers: 1 })
    const run = (code: string) => sandbox.run({ code, publicDir, limits: PROBE_LIMITS, seed: 1 }, soon())
    const mark = `5${process.pid}`
    const p = run(`import subprocess\nsubprocess.run(['sleep', '${mark}'])`)
    await until('the program runs', () => withCommand(`sleep ${mark}`).length > 0)
    const server = processTree(process.pid).find((p) => commandLine(p).includes('fork_server.py'))
    process.kill(server ?? 0, 'SIGKILL')
    expect((await p).end.kind).toBe('infra')
    await until('its program is gone', () => withCommand(`sleep ${mark}`).length === 0)
    expect(signature(await run(`print(1)`))).toBe('finished')
  })

  it('counts one failed start for all who waited for it, and starts one server for all', async () => {
    await using sandbox = await openSandbox({ python: testPython(), stateDir, workers: 3 })
    const three = () =>
      Promise.all(
        [1, 2, 3].map((i) => sandbox.run({ code: `print(${i})`, publicDir, limits: PROBE_LIMITS, seed: 1 }, soon())),
      )
    const servers = () => processTree(process.pid).filter((p) => commandLine(p).includes('fork_server.py'))
    const kill = async (): Promise<void> => {
      for (const p of servers()) process.kill(p, 'SIGKILL')
      await until('the fork server is gone', () => servers().length === 0)
      await new Promise((r) => setTimeout(r, 300)) // until its parent was told
    }
    // Its directory holds the socket: without it no server can start.
    const dir = leftovers(process.pid).find((p) => p.startsWith(tmpdir())) ?? ''
    for (let round = 0; round < 2; round++) {
      await kill()
      renameSync(dir, `${dir}.away`)
      const failed = await three()
      renameSync(`${dir}.away`, dir)
      expect(failed.map((r) => r.end.kind)).toEqual(['infra', 'infra', 'infra'])
    }
    expect((await three()).map(signature)).toEqual(['finished', 'finished', 'finished'])
    expect(servers()).toHaveLength(1)
    // The count begins anew after a start that worked.
    await kill()
    expect((await three()).map(signature)).toEqual(['finished', 'finished', 'finished'])
    expect(servers()).toHaveLength(1)
  })

  it('is infra when the pid 1 of a jail is killed from outside', async () => {
    await using sandbox = await openSandbox({ python: testPython(), stateDir, workers: 1 })
    const mark = `6${process.pid}`
    const code = `import subprocess\nsubprocess.run(['sleep', '${mark}'])`
    const p = sandbox.run({ code, publicDir, limits: PROBE_LIMITS, seed: 1 }, soon())
    await until('the program runs', () => withCommand(`sleep ${mark}`).length > 0)
    const [server = 0] = processTree(process.pid).filter((p) => commandLine(p).includes('fork_server.py'))
    process.kill(processTree(server)[1] ?? 0, 'SIGKILL')
    expect((await p).end.kind).toBe('infra')
  })

  it('refuses what contains nothing, and a rung that does not work', async () => {
    const open = (o: object) => openSandbox({ python: testPython(), stateDir, ...o })
    await expect(open({ rung: 'E' })).rejects.toThrow(/rung E contains nothing; .*--allow-unsafe/)
    await expect(open({ python: '/nonexistent/python' })).rejects.toBeInstanceOf(MissingError)
  })

  it('runs uncontained only where that is asked for, and says so', async () => {
    await using sandbox = await openSandbox({
      python: testPython(),
      stateDir,
      rung: 'E',
      allowUnsafe: true,
      workers: 1,
    })
    const r = await sandbox.run({ code: `print(1)`, publicDir, limits: PROBE_LIMITS, seed: 1 }, soon())
    expect([r.rung, r.runner, signature(r)]).toEqual(['E', 'process', 'finished'])
  })

  it('tells a doctor what it tried', () => {
    const report = probeRungs({ python: testPython() })
    expect(report.checks.map((c) => c.name)).toEqual(['bubblewrap', 'namespaces', 'landlock', 'cgroups'])
    expect(report.contains.length).toBeGreaterThan(0)
    expect(report.doesNotContain).toContain('side channels')
    for (const c of report.checks) expect(c.status === 'ok' || c.fix !== '').toBe(true)
  })
})

describe('after kill -9 of the supervisor', () => {
  it('no process survives, and the next start sweeps the rest', async () => {
    const module = bundle(join(import.meta.dirname, 'testing/victim.ts'))
    const mark = `7${process.pid}`
    const child = spawn(
      process.execPath,
      [module, JSON.stringify({ python: testPython(), stateDir, publicDir, mark })],
      {
        stdio: ['ignore', 'inherit', 'inherit'],
      },
    )
    const pid = child.pid ?? 0
    await until('both programs run', () => withCommand(`sleep ${mark}`).length >= 4, 60_000)
    process.kill(pid, 'SIGKILL')
    await new Promise((r) => child.once('exit', r))
    await until('the programs are gone', () => withCommand(`sleep ${mark}`).length === 0)
    await until('the runners are gone', () => withCommand(`-${pid}-`).length === 0)
    expect(leftovers(pid).length).toBeGreaterThan(0)
    const sandbox = await openSandbox({ python: testPython(), stateDir, workers: 1, forkServer: false })
    await sandbox[Symbol.asyncDispose]()
    expect(leftovers(pid)).toEqual([])
    expect(readdirSync(join(stateDir, 'sandboxes'))).toEqual([])
    expect(readFileSync('/proc/self/mounts', 'utf8')).not.toContain(`-${pid}-`)
    rmSync(dirname(module), { recursive: true })
  })
})

describe('a clone below a home of mode 0700', () => {
  it.each([true, false])('works, fork server %s', async (forkServer) => {
    const venv = dirname(dirname(testPython()))
    const home = mkdtempSync(join(dirname(venv), '.wmrl-test-home-'))
    try {
      chmodSync(home, 0o700)
      try {
        execFileSync('cp', ['-al', `${venv}/`, join(home, 'venv')], { stdio: 'ignore' })
      } catch {
        execFileSync('cp', ['-a', `${venv}/`, join(home, 'venv')])
      }
      mkdirSync(join(home, 'public'), { mode: 0o755 })
      writeFileSync(join(home, 'public/train.csv'), 'a\n1\n', { mode: 0o644 })
      await using sandbox = await openSandbox({
        python: join(home, 'venv/bin/python'),
        stateDir: home,
        workers: 1,
        forkServer,
      })
      const code = `import pandas as pd\nprint(pd.read_csv('train.csv').shape)`
      const r = await sandbox.run({ code, publicDir: join(home, 'public'), limits: PROBE_LIMITS, seed: 1 }, soon())
      expect(signature(r)).toBe('finished')
      expect(out(r)).toContain('(1, 1)')
    } finally {
      execFileSync('rm', ['-rf', home])
    }
  })
})
