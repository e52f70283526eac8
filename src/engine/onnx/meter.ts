import type { EngineUsage } from '../contract.ts'

/** Adds up what was computed. CPU seconds are of the whole process while the engine worked: an upper bound. */
export class Meter {
  #usage = { promptTokens: 0, sampledTokens: 0, trainedTokens: 0, cpuS: 0 }
  #since: NodeJS.CpuUsage | undefined

  add(part: Partial<EngineUsage>): void {
    for (const [k, v] of Object.entries(part) as [keyof EngineUsage, number][]) this.#usage[k] += v
  }

  get usage(): EngineUsage {
    this.#lap()
    return { ...this.#usage }
  }

  async measure<T>(work: () => Promise<T>): Promise<T> {
    this.#since = process.cpuUsage()
    try {
      return await work()
    } finally {
      this.#lap()
      this.#since = undefined
    }
  }

  #lap(): void {
    if (!this.#since) return
    const { user, system } = process.cpuUsage(this.#since)
    this.#since = process.cpuUsage()
    this.#usage.cpuS += (user + system) / 1e6
  }
}
