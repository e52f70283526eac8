import type { TaskSample } from './proc.ts'

/**
 * Did the machine starve a program? Run-queue wait of the tree of at least half its wall time, while the tree never had
 * more runnable tasks than its quota has CPUs: then nobody but others can have kept it waiting. Waiting for its own
 * processes (a fork bomb) or its own quota does not count. Sampled: a task that lives between two samples is not seen.
 */
export class Starvation {
  readonly #waits = new Map<string, number>()
  readonly #first = new Map<string, number>()
  #mostRunnable = 0

  sample(tasks: readonly TaskSample[]): void {
    let runnable = 0
    for (const t of tasks) {
      if (t.runnable) runnable += 1
      // A fork inherits nothing, but the guard waited during set-up, before the program's wall clock began.
      if (!this.#first.has(t.id)) this.#first.set(t.id, this.#waits.size === 0 ? t.waitNs : 0)
      this.#waits.set(t.id, t.waitNs)
    }
    this.#mostRunnable = Math.max(this.#mostRunnable, runnable)
  }

  /** Seconds waited for a CPU, over all tasks seen. */
  get waitS(): number {
    let ns = 0
    for (const [id, wait] of this.#waits) ns += wait - (this.#first.get(id) ?? 0)
    return ns / 1e9
  }

  /** @param throttledS seconds that the tree's own quota held it back */
  starved(wallS: number, cpus: number, throttledS: number): boolean {
    return this.#mostRunnable <= Math.max(1, Math.floor(cpus)) && this.waitS - throttledS >= wallS / 2
  }
}
