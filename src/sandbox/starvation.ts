import type { TaskSample } from './proc.ts'

/** Share of the waiting that may fall on tasks beyond the quota's CPUs before the crowd is held to be the program's. */
const STRAY_SHARE = 0.2

/**
 * Did the machine starve a program? Run-queue wait of the tree of at least half its wall time, while the tree never had
 * more runnable tasks than its quota has CPUs: then nobody but others can have kept it waiting. Waiting for its own
 * processes (a fork bomb) or its own quota does not count. A sample's states alone would miss a crowd whose members
 * each run for an instant, so the waiting between two samples must also lie on no more tasks than the quota has CPUs.
 * Not seen: a task that lives between two samples; its waiting does not count either.
 */
export class Starvation {
  readonly #waits = new Map<string, number>()
  readonly #cpus: number
  #waitNs = 0
  #strayNs = 0
  #crowded = false

  constructor(cpus: number) {
    this.#cpus = Math.max(1, Math.floor(cpus))
  }

  sample(tasks: readonly TaskSample[]): void {
    const isFirst = this.#waits.size === 0
    const grown: number[] = []
    for (const t of tasks) {
      // The first sample holds the set-up's waiting, from before the program's wall clock.
      grown.push(t.waitNs - (this.#waits.get(t.id) ?? (isFirst ? t.waitNs : 0)))
      this.#waits.set(t.id, t.waitNs)
    }
    if (tasks.filter((t) => t.runnable).length > this.#cpus) this.#crowded = true
    const total = grown.reduce((a, b) => a + b, 0)
    const most = grown
      .sort((a, b) => b - a)
      .slice(0, this.#cpus)
      .reduce((a, b) => a + b, 0)
    this.#waitNs += total
    this.#strayNs += total - most
  }

  /** Seconds waited for a CPU, over all tasks seen. */
  get waitS(): number {
    return this.#waitNs / 1e9
  }

  /** @param throttledS seconds that the tree's own quota held it back */
  starved(wallS: number, throttledS: number): boolean {
    if (this.#crowded || this.#strayNs > STRAY_SHARE * this.#waitNs) return false
    return this.waitS - throttledS >= wallS / 2
  }
}
