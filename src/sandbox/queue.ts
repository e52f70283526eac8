import { SandboxError } from '../core/index.ts'

/** Hands out slot numbers; waiters are served in order, and their number is bounded. */
export class SlotQueue {
  readonly #free: number[]
  readonly #waiting: ((slot: number) => void)[] = []
  readonly #longest: number

  constructor(slots: number, longest = 10_000) {
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i)
    this.#longest = longest
  }

  /** @throws SandboxError when too many wait; the signal's reason when aborted while waiting */
  async take(signal: AbortSignal): Promise<number> {
    signal.throwIfAborted()
    const slot = this.#free.pop()
    if (slot !== undefined) return slot
    if (this.#waiting.length >= this.#longest) {
      throw new SandboxError(`${this.#longest} programs wait already`, { retryable: true })
    }
    return new Promise<number>((resolve, reject) => {
      const give = (s: number): void => {
        signal.removeEventListener('abort', abort)
        resolve(s)
      }
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(give), 1)
        reject(signal.reason)
      }
      signal.addEventListener('abort', abort, { once: true })
      this.#waiting.push(give)
    })
  }

  give(slot: number): void {
    const next = this.#waiting.shift()
    if (next) next(slot)
    else this.#free.push(slot)
  }
}
