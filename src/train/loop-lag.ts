/** How often the loop is asked, in milliseconds; a shorter block may be missed. */
const EVERY = 20

/**
 * How long the event loop of this thread was blocked. While it is, no time-out fires, no heartbeat goes out and nothing is
 * logged, so that a long block looks like a hang without a cause. A timer of our own: after a reset Node's
 * monitorEventLoopDelay leaves out the first block in version 24 and counts it in 20.
 */
export class LoopLag {
  #last = performance.now()
  #longest = 0
  readonly #timer = setInterval(() => this.#look(), EVERY).unref()

  /** Longest block since the last call, in milliseconds. */
  take(): number {
    this.#look()
    const ms = Math.round(this.#longest)
    this.#longest = 0
    return ms
  }

  #look(): void {
    const now = performance.now()
    // The loop owes what lies between two looks beyond the interval itself.
    this.#longest = Math.max(this.#longest, now - this.#last - EVERY)
    this.#last = now
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }
}
