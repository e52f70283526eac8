import { execFile } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { keyed, SandboxError } from '../core/index.ts'
import type { Limits, ProgramRun, Rung, RunResult } from './contract.ts'
import { programEnv } from './launch.ts'
import { openLocalSandbox } from './open.ts'

export interface SandboxBenchRow {
  readonly backend: 'plain' | 'process' | 'fork-server'
  /** CPU seconds a program, of its whole tree; the fork server's own work since it was ready included. */
  readonly cpuS: number
  /** Programs a second, `workers` at a time. */
  readonly perS: number
}

export interface SandboxBench {
  readonly rung: Rung
  readonly workers: number
  readonly programs: number
  readonly rows: readonly SandboxBenchRow[]
  /** CPU of a program in the fork server over CPU of the same program as a plain process. */
  readonly ratioToPlain: number
}

/** A small solution as a model writes it: read, fit, predict, write. */
const PROGRAM = `import pandas as pd
from sklearn.linear_model import LogisticRegression
a = pd.read_csv('train.csv')
b = pd.read_csv('test.csv')
m = LogisticRegression().fit(a.drop(columns='y'), a.y)
pd.DataFrame({'id': range(len(b)), 'y': m.predict(b)}).to_csv('submission.csv', index=False)
`

const LIMITS: Limits = {
  cpuS: 60,
  wallS: 300,
  memoryMb: 1024,
  outputBytes: 65_536,
  submissionBytes: 1 << 20,
  diskMb: 64,
  processes: 64,
  cpus: 1,
}

/** Runs a child and prints its CPU seconds: Node does not tell a child's resource usage. */
const MEASURE = `import resource, subprocess, sys
subprocess.run([sys.argv[1], 'main.py'], check=True)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(u.ru_utime + u.ru_stime)`

/**
 * The same small program as a plain process, as a jailed process and by the fork server, in interleaved rounds.
 * @param opts.programs programs a backend and round; there are two rounds
 */
export async function benchSandbox(opts: {
  readonly python: string
  readonly stateDir: string
  readonly workers?: number
  readonly programs?: number
  readonly signal?: AbortSignal
}): Promise<SandboxBench> {
  const workers = opts.workers ?? 2
  const programs = opts.programs ?? 6
  const ceiling = AbortSignal.timeout(3_600_000)
  const signal = opts.signal ? AbortSignal.any([opts.signal, ceiling]) : ceiling
  const dir = mkdtempSync(join(tmpdir(), 'wmrl-bench-'))
  chmodSync(dir, 0o755)
  writeTable(dir)
  const open = { python: opts.python, stateDir: opts.stateDir, workers }
  try {
    await using jailed = await openLocalSandbox({ ...open, forkServer: false })
    await using forking = await openLocalSandbox(open)
    const program: ProgramRun = { code: PROGRAM, publicDir: dir, limits: LIMITS, seed: 0 }
    const plain = async (): Promise<number> => {
      const env = programEnv(1, dir)
      const r = await promisify(execFile)(opts.python, ['-I', '-S', '-c', MEASURE, opts.python], {
        cwd: dir,
        env,
        signal,
      })
      return Number(r.stdout)
    }
    const cost = async (run: Promise<RunResult>): Promise<number> => {
      const r = await run
      if (r.end.kind !== 'finished' || r.end.submission === undefined) {
        throw new SandboxError(`the bench program ended as ${JSON.stringify(r.end).slice(0, 200)}`)
      }
      return r.cost.cpuS
    }
    const backends = [
      { backend: 'plain', one: plain },
      { backend: 'process', one: () => cost(jailed.run(program, signal)) },
      { backend: 'fork-server', one: () => cost(forking.run(program, signal)) },
    ] as const
    const sums = backends.map(() => ({ cpuS: 0, wallS: 0 }))
    const before = await forking.serverCpuS()
    for (let round = 0; round < 2; round++) {
      for (const [i, b] of backends.entries()) {
        const began = performance.now()
        sums[i]!.cpuS += await batch(b.one, programs, workers)
        sums[i]!.wallS += (performance.now() - began) / 1000
      }
    }
    sums[2]!.cpuS += (await forking.serverCpuS()) - before
    const rows = backends.map(({ backend }, i): SandboxBenchRow => {
      const { cpuS, wallS } = sums[i]!
      return { backend, cpuS: cpuS / (2 * programs), perS: (2 * programs) / wallS }
    })
    return { rung: forking.rung, workers, programs: 2 * programs, rows, ratioToPlain: rows[2]!.cpuS / rows[0]!.cpuS }
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

/** Runs `n` programs, `workers` at a time; the sum of what they return. */
async function batch(one: () => Promise<number>, n: number, workers: number): Promise<number> {
  let left = n
  let sum = 0
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1
      sum += await one()
    }
  }
  await Promise.all(Array.from({ length: workers }, worker))
  return sum
}

function writeTable(dir: string): void {
  const random = keyed('sandbox-bench')
  const names = Array.from({ length: 20 }, (_, i) => `f${i}`)
  const row = (): number[] => names.map(() => random.next())
  const line = (x: readonly number[]): string => x.map((v) => v.toFixed(5)).join(',')
  const train = Array.from({ length: 1500 }, row).map((x) => `${line(x)},${x[0]! + x[1]! * x[2]! > 0.8 ? 1 : 0}`)
  writeFileSync(join(dir, 'train.csv'), `${names.join(',')},y\n${train.join('\n')}\n`)
  const test = Array.from({ length: 500 }, row).map(line)
  writeFileSync(join(dir, 'test.csv'), `${names.join(',')}\n${test.join('\n')}\n`)
  writeFileSync(join(dir, 'main.py'), PROGRAM)
}
