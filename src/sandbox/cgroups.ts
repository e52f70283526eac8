import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Control groups of this process: where children can be made, by controller. v1 and the hybrid layout were tested; the
 * v2 controllers were not (this project's machines have none), only v2's `cgroup.kill`.
 */
export interface CgroupHost {
  readonly v1: Readonly<Partial<Record<Controller, string>>>
  readonly v2: string | undefined
  /** Controllers that children of `v2` have. */
  readonly v2Controllers: readonly string[]
}
export type Controller = 'memory' | 'pids' | 'cpu' | 'cpuacct'
const CONTROLLERS: readonly Controller[] = ['memory', 'pids', 'cpu', 'cpuacct']

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
const write = (path: string, value: number | string): void => writeFileSync(path, String(value))
const attempt = (fn: () => void): boolean => {
  try {
    fn()
    return true
  } catch {
    return false
  }
}

export function discoverCgroups(): CgroupHost {
  const mounts = read('/proc/self/mounts')
    .trim()
    .split('\n')
    .map((l) => l.split(' '))
  const v1: Partial<Record<Controller, string>> = {}
  let v2: string | undefined
  for (const line of read('/proc/self/cgroup').trim().split('\n')) {
    const [, controllers = '', ...rest] = line.split(':')
    const path = rest.join(':')
    if (controllers === '') {
      const m = mounts.find((x) => x[2] === 'cgroup2')
      if (m?.[1]) v2 = join(m[1], path)
      continue
    }
    for (const c of CONTROLLERS.filter((c) => controllers.split(',').includes(c))) {
      const m = mounts.find((x) => x[2] === 'cgroup' && x[3]?.split(',').includes(c))
      if (m?.[1]) v1[c] = join(m[1], path)
    }
  }
  return { v1, v2, v2Controllers: v2 === undefined ? [] : enableV2(v2) }
}

/** Controllers that children of `own` have, enabling them where that is ours to do (a delegated group). */
function enableV2(own: string): string[] {
  const has = (): string[] => read(join(own, 'cgroup.subtree_control')).trim().split(' ').filter(Boolean)
  const wanted = ['memory', 'pids', 'cpu'].filter((c) => read(join(own, 'cgroup.controllers')).split(/\s+/).includes(c))
  if (wanted.length === 0 || wanted.every((c) => has().includes(c))) return has()
  const enable = (): boolean =>
    attempt(() => write(join(own, 'cgroup.subtree_control'), wanted.map((c) => `+${c}`).join(' ')))
  if (!enable()) {
    // A group with processes of its own can give its children no controllers: step aside into one of them.
    const aside = join(own, 'wmrl-supervisor')
    attempt(() => mkdirSync(aside))
    if (attempt(() => write(join(aside, 'cgroup.procs'), process.pid))) enable()
  }
  return has()
}

export interface CgroupLimits {
  readonly memoryBytes: number
  readonly processes: number
  readonly cpus: number
}

export interface CgroupStats {
  readonly cpuS: number
  readonly peakBytes: number
  readonly oomKills: number
  readonly processLimitHits: number
  readonly throttledS: number
}

/** One directory in every hierarchy. */
export class Cgroup {
  readonly dirs: readonly string[]
  readonly #v1: Partial<Record<Controller, string>> = {}
  readonly #v2: string | undefined

  /** @throws when a directory cannot be made or a limit cannot be set; nothing is left then. */
  constructor(host: CgroupHost, name: string, limits?: CgroupLimits) {
    const made: string[] = []
    try {
      for (const c of CONTROLLERS) {
        const base = host.v1[c]
        if (base === undefined) continue
        const dir = join(base, name)
        if (!made.includes(dir)) {
          mkdirSync(dir)
          made.push(dir)
        }
        this.#v1[c] = dir
      }
      if (host.v2 !== undefined && attempt(() => mkdirSync(join(host.v2!, name)))) {
        this.#v2 = join(host.v2, name)
        made.push(this.#v2)
      }
      this.dirs = made
      if (limits) this.#limit(host, limits)
    } catch (e) {
      for (const d of made) attempt(() => rmdirSync(d))
      throw e
    }
  }

  #limit(host: CgroupHost, limits: CgroupLimits): void {
    const { memory, pids, cpu } = this.#v1
    const v2 = this.#v2
    const inV2 = (c: string): boolean => v2 !== undefined && host.v2Controllers.includes(c)
    if (memory) {
      write(join(memory, 'memory.limit_in_bytes'), limits.memoryBytes)
      attempt(() => write(join(memory, 'memory.memsw.limit_in_bytes'), limits.memoryBytes))
    } else if (inV2('memory')) {
      write(join(v2!, 'memory.max'), limits.memoryBytes)
      attempt(() => write(join(v2!, 'memory.oom.group'), 1))
      attempt(() => write(join(v2!, 'memory.swap.max'), 0))
    }
    if (pids) write(join(pids, 'pids.max'), limits.processes)
    else if (inV2('pids')) write(join(v2!, 'pids.max'), limits.processes)
    const quota = Math.round(limits.cpus * 100_000)
    if (cpu) {
      write(join(cpu, 'cpu.cfs_period_us'), 100_000)
      write(join(cpu, 'cpu.cfs_quota_us'), quota)
    } else if (inV2('cpu')) write(join(v2!, 'cpu.max'), `${quota} 100000`)
  }

  stats(): CgroupStats {
    const field = (text: string, name: string): number =>
      Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)?.[1] ?? 0)
    const { memory, pids, cpu, cpuacct } = this.#v1
    const v2 = this.#v2 ?? ''
    const cpuStat = read(join(cpu ?? v2, 'cpu.stat'))
    return {
      cpuS: cpuacct ? Number(read(join(cpuacct, 'cpuacct.usage'))) / 1e9 : field(cpuStat, 'usage_usec') / 1e6,
      peakBytes: Number(read(memory ? join(memory, 'memory.max_usage_in_bytes') : join(v2, 'memory.peak'))),
      oomKills: memory
        ? field(read(join(memory, 'memory.oom_control')), 'oom_kill')
        : field(read(join(v2, 'memory.events')), 'oom_kill'),
      processLimitHits: field(read(join(pids ?? v2, 'pids.events')), 'max'),
      throttledS: cpu ? field(cpuStat, 'throttled_time') / 1e9 : field(cpuStat, 'throttled_usec') / 1e6,
    }
  }

  pids(): number[] {
    return pidsOf(this.dirs[0] ?? '')
  }

  kill(): void {
    killCgroup(this.#v2 ?? this.dirs[0] ?? '')
  }

  /** Waits for the last process, then removes the directories. @throws after `ceilingMs`, naming what stays. */
  async remove(ceilingMs = 10_000): Promise<void> {
    await removeCgroups(this.dirs, ceilingMs)
  }
}

function pidsOf(dir: string): number[] {
  return read(join(dir, 'cgroup.procs')).split('\n').filter(Boolean).map(Number)
}

/** Kills every process in the group: at once by `cgroup.kill` (v2), else by pid. */
export function killCgroup(dir: string): void {
  if (existsSync(join(dir, 'cgroup.kill')) && attempt(() => write(join(dir, 'cgroup.kill'), 1))) return
  for (const pid of pidsOf(dir)) attempt(() => process.kill(pid, 'SIGKILL'))
}

export async function removeCgroups(dirs: readonly string[], ceilingMs: number): Promise<void> {
  const until = Date.now() + ceilingMs
  for (const dir of dirs) {
    for (;;) {
      try {
        rmdirSync(dir)
        break
      } catch (e) {
        if ((e as NodeJS.ErrnoException).code === 'ENOENT') break
        if (Date.now() > until) throw new Error(`cgroup ${dir} cannot be removed: ${(e as Error).message}`)
        killCgroup(dir)
        await sleep(5)
      }
    }
  }
}

/** Whether children with memory, process and CPU limits can be made here; tries it. */
export function tryCgroups(host: CgroupHost, name: string): string | undefined {
  for (const c of ['memory', 'pids', 'cpu'] as const) {
    if (host.v1[c] === undefined && !host.v2Controllers.includes(c)) return `no controller ${c}`
  }
  try {
    const group = new Cgroup(host, name, { memoryBytes: 64 << 20, processes: 16, cpus: 1 })
    for (const d of group.dirs) rmdirSync(d)
    return undefined
  } catch (e) {
    return (e as Error).message
  }
}
