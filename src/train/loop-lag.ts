import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'

/** How often the loop is asked, in milliseconds; a block shorter than that may be missed. */
const EVERY = 10

/**
 * How long the event loop of this thread was blocked. While it is, no time-out fires, no heartbeat goes out and nothing is
 * logged, so that a long block looks like a hang without a cause.
 */
export class LoopLag {
  readonly #histogram: IntervalHistogram = monitorEventLoopDelay({ resolution: EVERY })
  constructor() {
    this.#histogram.enable()
  }

  /** Longest block since the last call, in milliseconds. */
  take(): number {
    // What is measured is the time between two looks; the loop owes the rest of it. Nothing measured yet: max is 0.
    const ms = Math.max(0, this.#histogram.max / 1e6 - EVERY)
    this.#histogram.reset()
    return Math.round(ms)
  }

  [Symbol.dispose](): void {
    this.#histogram.disable()
  }
}
