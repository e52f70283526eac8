import { spawn } from 'node:child_process'
import { chownSync, lstatSync, mkdirSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { Duplex } from 'node:stream'
import type { Cgroup } from './cgroups.ts'
import type { Limits, ProgramRun } from './contract.ts'
import type { Job, JobPlace, LandlockRules } from './job.ts'
import { COMPILE_LIMITS, makeJob, threadsFor } from './job.ts'
import {
  BOX,
  bwrapArgv,
  INPUT,
  type Launch,
  landlockReadable,
  launcherArgv,
  programEnv,
  RUNNER,
  rootBinds,
  VENV,
} from './launch.ts'
import { CgroupMeter, TreeMeter } from './meter.ts'
import { environmentOf, processIds } from './proc.ts'
import type { Runtime } from './runtime.ts'
import { type Supervised, supervise } from './supervise.ts'
import { removeTree } from './sweep.ts'

const DEVICES = ['/dev/null', '/dev/zero', '/dev/full', '/dev/random', '/dev/urandom']

let boxes = 0

/** A fresh Python process a program, in the jail that the rung names. Nothing is shared between programs. */
export class ProcessRunner {
  readonly #runtime: Runtime
  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  async run(program: ProgramRun, slot: number, group: Cgroup | undefined, signal: AbortSignal): Promise<Supervised> {
    return this.#start(program, 'run', slot, group, signal)
  }

  async compile(code: string, slot: number, group: Cgroup | undefined, signal: AbortSignal): Promise<Supervised> {
    const program = { code, publicDir: join(this.#runtime.dir, 'root'), limits: COMPILE_LIMITS, seed: 0 }
    return this.#start(program, 'compile', slot, group, signal)
  }

  async #start(
    program: ProgramRun,
    mode: Job['mode'],
    slot: number,
    group: Cgroup | undefined,
    signal: AbortSignal,
  ): Promise<Supervised> {
    const rt = this.#runtime
    const box = rt.namespaced ? BOX : this.#makeBox(slot)
    const tag = `${rt.name}-${basename(box)}`
    const place: JobPlace = {
      box,
      input: rt.namespaced ? INPUT : program.publicDir,
      namespaced: rt.namespaced,
      uid: null, // the launcher has taken it
      landlock: rt.rung.startsWith('D') ? this.#rules(box, program.publicDir) : null,
      confined: rt.contained,
      soft: !rt.hasCgroups,
      cgroups: [],
      otherProcesses: rt.namespaced ? 0 : othersOf(rt.slotUid(slot)),
    }
    const job = { ...makeJob(program, place), mode }
    const launch = this.#launch(job, program.limits, slot, group, tag)
    const child = spawn(rt.python.python, launcherArgv(rt.runner, launch), {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      env: { PATH: '/usr/bin:/bin', WMRL_SANDBOX: tag },
      detached: true,
    })
    let stderr = ''
    child.stderr?.on('data', (b: Buffer) => {
      stderr = (stderr + b.toString('utf8')).slice(-4000)
    })
    const exited = new Promise<void>((resolve) => {
      child.once('exit', () => resolve())
      child.once('error', (e) => {
        stderr += e.message
        resolve()
      })
    })
    const channel = child.stdio[3] as Duplex
    const root = child.pid ?? 0
    const meter = group
      ? new CgroupMeter(group)
      : new TreeMeter(root, {
          memoryBytes: program.limits.memoryMb * (1 << 20),
          sharedBytes: 0,
          tag: rt.namespaced ? undefined : tag,
        })
    try {
      const diskBytes = rt.namespaced ? {} : { diskBytes: () => sizeOf(box, 20_000, job.diskBytes) }
      const guardExposed = rt.rung === 'D-' || rt.rung === 'E'
      return await supervise(
        {
          channel,
          job,
          limits: program.limits,
          meter,
          trouble: () => stderr,
          soft: group === undefined,
          guardExposed,
          ...diskBytes,
        },
        signal,
      )
    } finally {
      child.kill('SIGKILL')
      if (child.pid !== undefined) await exited
      child.stderr?.destroy()
      if (!rt.namespaced) removeTree(box)
    }
  }

  #makeBox(slot: number): string {
    boxes += 1
    const box = join(this.#runtime.dir, `box-${boxes}`)
    mkdirSync(box, { mode: 0o700 })
    const uid = this.#runtime.slotUid(slot)
    if (uid !== null) chownSync(box, uid, uid)
    return box
  }

  #rules(box: string, publicDir: string): LandlockRules {
    const rt = this.#runtime
    return { readOnly: landlockReadable(rt.python, rt.runner, publicDir), readWrite: [box], devices: DEVICES }
  }

  #launch(job: Job, limits: Limits, slot: number, group: Cgroup | undefined, tag: string): Launch {
    const rt = this.#runtime
    const threads = threadsFor(limits)
    const publicDir = job.publicDir ?? '/usr/share'
    const binds = rootBinds(rt.python, rt.runner)
    const launch: Launch = {
      kind: 'plain',
      parent: process.pid,
      cgroups: group?.dirs ?? [],
      uid: rt.slotUid(slot),
      privileged: rt.privileged,
      argv: [rt.python.python, '-B', join(rt.runner, 'guard.py')],
      env: { ...programEnv(threads, job.box), WMRL_SANDBOX: tag },
      stage: [],
      binds,
      at: join(rt.dir, 'root'),
      uids: rt.privileged ? [rt.slotUid(slot) ?? 1000] : [1000],
      publicDir,
      diskBytes: job.diskBytes,
      shmBytes: job.shmBytes,
    }
    if (!rt.namespaced) return launch
    const command = [`${VENV}/bin/python`, '-B', `${RUNNER}/guard.py`]
    const env = programEnv(threads, BOX)
    if (rt.rung === 'A-' || rt.rung === 'C') return { ...launch, kind: 'namespaces', argv: command, env }
    const stage = rt.privileged ? this.#stage(binds, publicDir) : undefined
    const { diskBytes, shmBytes } = job
    const plan = { bwrap: rt.bwrap, passwd: rt.passwd(slot), diskBytes, shmBytes, env, command }
    if (stage === undefined) return { ...launch, kind: 'bwrap', argv: bwrapArgv({ ...plan, binds, publicDir }) }
    return {
      ...launch,
      kind: 'bwrap',
      argv: bwrapArgv({ ...plan, binds: stage.binds, publicDir: stage.publicDir }),
      stage: stage.pairs,
    }
  }

  /** Where root puts what a slot's uid may be unable to reach; /usr and /etc are reachable on any system. */
  #stage(binds: readonly (readonly [string, string])[], publicDir: string) {
    const at = (name: string): string => join(this.#runtime.dir, 'stage', name)
    const pairs: [string, string][] = []
    const moved = binds.map(([from, to], i): [string, string] => {
      if (/^\/(usr|etc)(\/|$)/.test(from)) return [from, to]
      pairs.push([from, at(String(i))])
      return [at(String(i)), to]
    })
    pairs.push([publicDir, at('public')])
    return { pairs, binds: moved, publicDir: at('public') }
  }
}

/** Processes of this uid that are none of the program's. */
function othersOf(uid: number | null): number {
  if (uid !== null) return 0
  return processIds().filter((p) => environmentOf(p) !== '').length * 4
}

/** Bytes below `dir`, counting up to the limit; a tree of more than `entries` entries counts as full. */
function sizeOf(dir: string, entries: number, limit: number): number {
  let bytes = 0
  let seen = 0
  const open = [dir]
  for (let d = open.pop(); d !== undefined; d = open.pop()) {
    let names: string[]
    try {
      names = readdirSync(d)
    } catch (e) {
      if ((e as NodeJS.ErrnoException).code === 'ENAMETOOLONG') return Number.POSITIVE_INFINITY
      continue
    }
    seen += names.length
    if (seen > entries) return Number.POSITIVE_INFINITY
    for (const n of names) {
      if (bytes > limit) return Number.POSITIVE_INFINITY
      try {
        const st = lstatSync(join(d, n))
        if (st.isDirectory()) open.push(join(d, n))
        else bytes += st.blocks * 512
      } catch {
        // removed meanwhile
      }
    }
  }
  return bytes
}
