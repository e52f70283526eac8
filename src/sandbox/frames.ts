/** Frames of python/runner/guard.py: kind byte, u32 length (little-endian), payload. */
export interface Frame {
  readonly kind: string
  readonly payload: Buffer
}

export function frame(kind: string, payload: Uint8Array = new Uint8Array()): Buffer {
  const head = Buffer.alloc(5)
  head.write(kind, 0, 'latin1')
  head.writeUInt32LE(payload.length, 1)
  return Buffer.concat([head, payload])
}

/** Cuts a byte stream into frames. `push` throws on a frame longer than `limit` bytes. */
export class FrameReader {
  #pending: Buffer[] = []
  #length = 0
  readonly #limit: number

  constructor(limit: number) {
    this.#limit = limit
  }

  push(chunk: Buffer): Frame[] {
    this.#pending.push(chunk)
    this.#length += chunk.length
    const frames: Frame[] = []
    while (this.#length >= 5) {
      const first = this.#pending[0]!
      if (first.length < 5) this.#pending = [Buffer.concat(this.#pending)]
      const head = this.#pending[0]!
      const size = head.readUInt32LE(1)
      if (size > this.#limit) throw new RangeError(`a frame of ${size} bytes`)
      if (this.#length < 5 + size) break
      const all = this.#pending.length === 1 ? head : Buffer.concat(this.#pending)
      frames.push({ kind: String.fromCharCode(all[0]!), payload: all.subarray(5, 5 + size) })
      const rest = all.subarray(5 + size)
      this.#pending = rest.length > 0 ? [rest] : []
      this.#length = rest.length
    }
    return frames
  }
}
