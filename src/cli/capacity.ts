import { existsSync, readFileSync, statfsSync } from 'node:fs'
import { freemem, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { MissingError } from '../core/index.ts'
import { LIMIT_PROFILES, type LimitProfile } from '../judge/index.ts'
import { home } from './paths.ts'

const MIB = 2 ** 20

export interface Capacity {
  readonly memoryMb: number
  readonly disks: readonly { readonly at: string; readonly freeMb: number }[]
}

/**
 * What programs may use now. Without this look, a machine whose memory is held by something else (programs that a killed run
 * left, say) lets programs die that did nothing wrong.
 */
export function capacityHere(): Capacity {
  const dirs = [home(), tmpdir()].map((d) => (existsSync(d) ? d : dirname(d))).filter(existsSync)
  return {
    memoryMb: availableMemory() / MIB,
    disks: dirs.map((at) => {
      const s = statfsSync(at)
      return { at, freeMb: (s.bavail * s.bsize) / MIB }
    }),
  }
}

/**
 * Share of its limit that a program takes at most, nearly always: the tasks' data are small. All workers at their limit at
 * once is a ceiling, no need.
 */
const USUAL = 1 / 4

/**
 * Whether so many programs at a time fit; a warning where they may not.
 * @throws MissingError where not even one fits at its limit
 */
export function checkCapacity(workers: number, profile: LimitProfile, has: Capacity = capacityHere()): string[] {
  const limits = LIMIT_PROFILES[profile]
  const mib = (x: number): string => `${Math.floor(x)} MiB`
  const warnings: string[] = []
  if (has.memoryMb < limits.memoryMb)
    throw new MissingError(
      `${mib(has.memoryMb)} of memory are free, one program may take ${mib(limits.memoryMb)} (executor.limits ${profile})`,
      profile === 'paper'
        ? 'take a larger machine, or set executor.limits to board or demo'
        : 'end what else holds memory (ps aux --sort=-rss)',
    )
  const fit = Math.max(1, Math.floor(has.memoryMb / (USUAL * limits.memoryMb)))
  if (fit < workers)
    warnings.push(
      `${mib(has.memoryMb)} of memory are free for ${workers} programs at a time, of which each may take ${mib(limits.memoryMb)}; should some end for want of it, set executor.workers=${fit}`,
    )
  for (const { at, freeMb } of has.disks) {
    if (freeMb < limits.diskMb)
      throw new MissingError(
        `${mib(freeMb)} of disk are free at ${at}, one program may take ${mib(limits.diskMb)} (executor.limits ${profile})`,
        `free some space there, or set ${at === tmpdir() ? 'TMPDIR' : 'WMRL_HOME'} to a larger disk`,
      )
    if (freeMb < workers * limits.diskMb)
      warnings.push(
        `${mib(freeMb)} of disk are free at ${at} for ${workers} programs at a time, of which each may take ${mib(limits.diskMb)}`,
      )
  }
  return warnings
}

/** Bytes that this process and its children can still have: the machine's, or less where a control group says so. */
export function availableMemory(root = '/'): number {
  const text = (...path: string[]): string => {
    try {
      return readFileSync(join(root, ...path), 'utf8')
    } catch {
      return ''
    }
  }
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(text('proc/meminfo'))?.[1]
  let least = kib === undefined ? freemem() : Number(kib) * 1024
  for (const line of text('proc/self/cgroup').trim().split('\n')) {
    const [, controllers = '', ...rest] = line.split(':')
    const v2 = controllers === ''
    if (!v2 && !controllers.split(',').includes('memory')) continue
    const base = v2 ? 'sys/fs/cgroup' : 'sys/fs/cgroup/memory'
    // A limit may stand on any group above.
    for (let group = rest.join(':'); ; group = dirname(group)) {
      const limit = Number(text(base, group, v2 ? 'memory.max' : 'memory.limit_in_bytes').trim() || Number.NaN)
      const used = Number(text(base, group, v2 ? 'memory.current' : 'memory.usage_in_bytes').trim() || Number.NaN)
      // Pages of files that nobody reads any more are given back before anything is refused.
      const idle = new RegExp(`^${v2 ? '' : 'total_'}inactive_file (\\d+)$`, 'm')
      const stale = Number(idle.exec(text(base, group, 'memory.stat'))?.[1] ?? 0)
      // "max" is no number.
      if (Number.isFinite(limit - used)) least = Math.min(least, Math.max(0, limit - used + stale))
      if (group === '/' || group === '.' || group === '') break
    }
  }
  return least
}
