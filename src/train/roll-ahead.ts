import { EngineError } from '../core/index.ts'

interface Begun<T> {
  readonly step: number
  /** Step whose turn it was when this one was begun: its weights sampled it. */
  readonly at: number
  readonly value: Promise<T>
}

/**
 * Overlap: roll-outs of the next steps begin while earlier ones are still executed and updated. Bounded: at most `most` steps
 * run ahead, so that none is older than `most` updates when its turn comes. What was begun before a resume is begun again.
 */
export class RollAhead<T> {
  #begun: Begun<T>[] = []
  constructor(
    private readonly start: (step: number, signal: AbortSignal) => Promise<T>,
    readonly most: number,
    private readonly signal: AbortSignal,
  ) {}

  /** The roll-outs of a step whose turn it is; begins those of the steps behind it first. */
  async take(step: number, last: number): Promise<{ readonly value: T; readonly staleness: number }> {
    for (let next = step; next <= Math.min(last, step + this.most); next++) {
      if (this.#begun.some((b) => b.step === next)) continue
      const value = this.start(next, this.signal)
      // It is awaited when its turn comes, or never.
      value.catch(() => undefined)
      this.#begun.push({ step: next, at: step, value })
    }
    const mine = this.#begun.find((b) => b.step === step)!
    this.#begun = this.#begun.filter((b) => b.step > step)
    const staleness = step - mine.at
    if (staleness > this.most) throw new EngineError(`step ${step} was sampled ${staleness} updates ago`)
    return { value: await mine.value, staleness }
  }

  /** Waits until nothing runs any more; what was begun is given up by the signal. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#begun.map((b) => b.value))
    this.#begun = []
  }
}
