import type { Cgroup } from './cgroups.ts'
import {
  cpuSecondsOf,
  environmentOf,
  processIds,
  processTree,
  proportionalBytes,
  residentBytes,
  type TaskSample,
  tasksOf,
} from './proc.ts'

export interface Usage {
  readonly cpuS: number
  readonly peakBytes: number
  /** Processes that the kernel killed for memory. */
  readonly oomKills: number
  readonly processLimitHits: number
  readonly throttledS: number
  /** Without cgroups: what is in use now, to be held against the limit by polling. */
  readonly polled?: { readonly bytes: number; readonly processes: number }
}

/** Measures and ends one program's processes. */
export interface Meter {
  usage(): Usage
  tasks(): TaskSample[]
  kill(): void
  /** Waits until no process is left and removes what the meter made. @throws when something stays. */
  close(): Promise<void>
}

export class CgroupMeter implements Meter {
  readonly #group: Cgroup
  constructor(group: Cgroup) {
    this.#group = group
  }
  usage(): Usage {
    return this.#group.stats()
  }
  tasks(): TaskSample[] {
    return this.#group.pids().flatMap(tasksOf)
  }
  kill(): void {
    this.#group.kill()
  }
  close(): Promise<void> {
    return this.#group.remove()
  }
}

/** Without cgroups: the descendants of one process, by polling. What a daemon hides between polls is not counted. */
export class TreeMeter implements Meter {
  readonly #root: number
  readonly #memoryBytes: number
  readonly #sharedBytes: number
  readonly #tag: string | undefined
  #cpuS = 0
  #peak = 0

  /**
   * @param o.memoryBytes the limit; only near it is the exact sum worth its cost
   * @param o.sharedBytes what every process inherits from the fork server
   * @param o.tag value in the initial environment of every process, for the last sweep where no pid namespace ends them
   */
  constructor(
    root: number,
    o: { readonly memoryBytes: number; readonly sharedBytes: number; readonly tag?: string | undefined },
  ) {
    this.#root = root
    this.#memoryBytes = o.memoryBytes
    this.#sharedBytes = o.sharedBytes
    this.#tag = o.tag
  }

  usage(): Usage {
    const pids = processTree(this.#root)
    let cpu = 0
    let bytes = 0
    for (const pid of pids) {
      cpu += cpuSecondsOf(pid)
      bytes += Math.max(0, residentBytes(pid) - this.#sharedBytes)
    }
    if (pids.length <= 4 || bytes > this.#memoryBytes) {
      // Forks share pages, and each process counts them in full: only its share of them is its own.
      bytes = pids.reduce((sum, pid) => sum + (proportionalBytes(pid) ?? residentBytes(pid)), 0)
    }
    this.#cpuS = Math.max(this.#cpuS, cpu)
    this.#peak = Math.max(this.#peak, bytes)
    return {
      cpuS: this.#cpuS,
      peakBytes: this.#peak,
      oomKills: 0,
      processLimitHits: 0,
      throttledS: 0,
      polled: { bytes, processes: pids.length },
    }
  }

  tasks(): TaskSample[] {
    return processTree(this.#root).flatMap(tasksOf)
  }

  kill(): void {
    for (const pid of [...processTree(this.#root).reverse(), ...this.#tagged()]) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // gone already
      }
    }
  }

  #tagged(): number[] {
    const tag = this.#tag
    return tag === undefined ? [] : processIds().filter((p) => environmentOf(p).includes(`WMRL_SANDBOX=${tag}\0`))
  }

  async close(): Promise<void> {
    const until = Date.now() + 10_000
    while (processTree(this.#root).some((p) => residentBytes(p) > 0) || this.#tagged().length > 0) {
      if (Date.now() > until) throw new Error(`processes of ${this.#root} stay`)
      this.kill()
      await new Promise((r) => setTimeout(r, 10))
    }
  }
}
