/** Something that this process waits for. */
export interface Wait {
  readonly name: string
  /** Milliseconds so far. */
  readonly waited: number
  /** When it is overdue, in milliseconds; absent where it only waits for others that have one each. */
  readonly ceiling?: number
}

/**
 * The waits of a process by name. A ceiling ends its own wait, where that was set; but what else hung with it, only a list of
 * all of them tells: the hang that nobody can explain is one wait behind another.
 */
export class WaitList {
  readonly #open = new Map<symbol, { readonly name: string; readonly since: number; readonly ceiling?: number }>()
  readonly #watchers = new Set<(overdue: Wait, pending: readonly Wait[]) => void>()

  /** Notes a wait until the work is settled. It does not end it: that is for the one who set the ceiling. */
  async during<T>(name: string, ceiling: number | undefined, work: () => Promise<T>): Promise<T> {
    const key = Symbol(name)
    this.#open.set(key, { name, since: performance.now(), ...(ceiling === undefined ? {} : { ceiling }) })
    // Set before the work sets its own timer of the same length, so that the list is told before the work gives up.
    const timer = ceiling === undefined ? undefined : setTimeout(() => this.#tell(key), Math.min(ceiling, LONGEST))
    // A wait keeps no process alive: what is waited for does.
    timer?.unref()
    try {
      return await work()
    } finally {
      clearTimeout(timer)
      this.#open.delete(key)
    }
  }

  /** The longest first. */
  pending(): Wait[] {
    const now = performance.now()
    return [...this.#open.values()]
      .map(({ since, ...w }) => ({ ...w, waited: now - since }))
      .sort((a, b) => b.waited - a.waited)
  }

  /** Told of every wait that reaches its ceiling, with all that wait then. */
  watch(watcher: (overdue: Wait, pending: readonly Wait[]) => void): Disposable {
    this.#watchers.add(watcher)
    return { [Symbol.dispose]: () => void this.#watchers.delete(watcher) }
  }

  #tell(key: symbol): void {
    const mine = this.#open.get(key)
    if (!mine) return
    const { since, ...w } = mine
    const all = this.pending()
    for (const watcher of this.#watchers) watcher({ ...w, waited: performance.now() - since }, all)
  }
}

/** A timer's longest delay; longer ones would fire at once. */
const LONGEST = 2 ** 31 - 1

/** This process's waits. */
export const waits = new WaitList()

/** `engine sample has waited 3600 s, its ceiling; pending: step 3 rolls out 3612 s, 64 x a free slot 3600 s`. */
export function overdueLine(overdue: Wait, pending: readonly Wait[]): string {
  const names = [...new Set(pending.map((w) => w.name))]
  const parts = names.map((name) => {
    const same = pending.filter((w) => w.name === name)
    return `${same.length > 1 ? `${same.length} x ` : ''}${name} ${seconds(same[0]!.waited)}`
  })
  return `${overdue.name} has waited ${seconds(overdue.waited)}, its ceiling; pending: ${parts.join(', ')}`
}

const seconds = (ms: number): string => `${ms < 10_000 ? (ms / 1000).toFixed(1) : (ms / 1000).toFixed(0)} s`
