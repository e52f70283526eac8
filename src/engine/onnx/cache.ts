import type { ModelConfig } from './model-config.ts'
import { MASKED } from './packing.ts'
import { type Tensors, tensor } from './sessions.ts'

/** Keys and values of one prompt, as a prefill left them: row `position * stride + row` of each layer's [n, d]. */
export interface PromptCache {
  readonly keys: readonly Float32Array[]
  readonly values: readonly Float32Array[]
  readonly stride: number
  readonly row: number
  readonly length: number
}

const STEP = 64

/**
 * Keys and values of all slots, [slots, heads, capacity, width] a layer. The capacity follows the longest slot in steps
 * of 64, so that attention never reads far beyond what is there.
 */
export class SlotCache {
  readonly #counts: Int32Array
  #capacity = STEP
  #keys: Float32Array[]
  #values: Float32Array[]
  #mask: Float32Array

  constructor(
    readonly config: ModelConfig,
    readonly slots: number,
  ) {
    this.#counts = new Int32Array(slots)
    this.#keys = this.#blank()
    this.#values = this.#blank()
    this.#mask = new Float32Array(slots * this.#capacity).fill(MASKED)
  }

  count(slot: number): number {
    return this.#counts[slot]!
  }

  clear(slot: number): void {
    this.#counts[slot] = 0
    this.#mask.fill(MASKED, slot * this.#capacity, (slot + 1) * this.#capacity)
  }

  place(slot: number, prompt: PromptCache): void {
    this.clear(slot)
    this.#fit(prompt.length)
    const { dModel } = this.config
    for (let l = 0; l < this.config.layers; l++) {
      for (let t = 0; t < prompt.length; t++) {
        const from = (t * prompt.stride + prompt.row) * dModel
        this.#write(this.#keys[l]!, prompt.keys[l]!, from, slot, t)
        this.#write(this.#values[l]!, prompt.values[l]!, from, slot, t)
      }
    }
    this.#counts[slot] = prompt.length
    this.#mask.fill(0, slot * this.#capacity, slot * this.#capacity + prompt.length)
  }

  /** Appends the row of each active slot of a step's new keys and values [slots, d]. */
  append(active: readonly number[], keys: readonly Float32Array[], values: readonly Float32Array[]): void {
    for (const slot of active) this.#fit(this.#counts[slot]! + 1)
    const { dModel } = this.config
    for (const slot of active) {
      const t = this.#counts[slot]!++
      for (let l = 0; l < this.config.layers; l++) {
        this.#write(this.#keys[l]!, keys[l]!, slot * dModel, slot, t)
        this.#write(this.#values[l]!, values[l]!, slot * dModel, slot, t)
      }
      this.#mask[slot * this.#capacity + t] = 0
    }
  }

  /** Gives back what finished sequences needed; the copy is worth it from two steps on. */
  shrink(): void {
    const wanted = capacityFor(Math.max(1, ...this.#counts))
    if (wanted <= this.#capacity - 2 * STEP) this.#resize(wanted)
  }

  feeds(): Tensors {
    const { heads, dModel } = this.config
    const dims = [this.slots, heads, this.#capacity, dModel / heads]
    const out: Record<string, Tensors[string]> = { mask: tensor(this.#mask, [this.slots, 1, 1, this.#capacity]) }
    for (let l = 0; l < this.config.layers; l++) {
      out[`pastKey.${l}`] = tensor(this.#keys[l]!, dims)
      out[`pastValue.${l}`] = tensor(this.#values[l]!, dims)
    }
    return out
  }

  #write(to: Float32Array, from: Float32Array, offset: number, slot: number, t: number): void {
    const { heads, dModel } = this.config
    const width = dModel / heads
    for (let h = 0; h < heads; h++) {
      const start = ((slot * heads + h) * this.#capacity + t) * width
      for (let j = 0; j < width; j++) to[start + j] = from[offset + h * width + j]!
    }
  }

  #fit(count: number): void {
    if (count > this.#capacity) this.#resize(capacityFor(count))
  }

  #resize(capacity: number): void {
    const before = this.#capacity
    const old = [...this.#keys, ...this.#values]
    this.#capacity = capacity
    this.#keys = this.#blank()
    this.#values = this.#blank()
    const { heads, dModel } = this.config
    const width = dModel / heads
    ;[...this.#keys, ...this.#values].forEach((to, i) => {
      for (let slot = 0; slot < this.slots; slot++) {
        const length = this.#counts[slot]! * width
        for (let h = 0; h < heads; h++) {
          const block = slot * heads + h
          to.set(old[i]!.subarray(block * before * width, block * before * width + length), block * capacity * width)
        }
      }
    })
    this.#mask = new Float32Array(this.slots * capacity).fill(MASKED)
    this.#counts.forEach((n, slot) => {
      this.#mask.fill(0, slot * capacity, slot * capacity + n)
    })
  }

  #blank(): Float32Array[] {
    const size = this.slots * this.config.dModel * this.#capacity
    return Array.from({ length: this.config.layers }, () => new Float32Array(size))
  }
}

const capacityFor = (count: number): number => Math.ceil(count / STEP) * STEP
