/**
 * Writes the protocol buffer wire format: the four wire shapes that an ONNX model needs (varint, 32-bit, bytes, nested
 * message). Reading is not covered.
 */
export class ProtoWriter {
  #buffer = new Uint8Array(256)
  #length = 0

  /** A field of wire type 0. Negative numbers take ten bytes, as the format says. */
  varint(field: number, value: number | bigint): this {
    this.#raw(BigInt(field << 3))
    return this.#raw(BigInt.asUintN(64, BigInt(value)))
  }

  float(field: number, value: number): this {
    this.#raw(BigInt((field << 3) | 5))
    return this.#append(new Uint8Array(Float32Array.of(value).buffer))
  }

  bytes(field: number, value: Uint8Array): this {
    this.#raw(BigInt((field << 3) | 2))
    this.#raw(BigInt(value.length))
    return this.#append(value)
  }

  string(field: number, value: string): this {
    return this.bytes(field, Buffer.from(value, 'utf8'))
  }

  message(field: number, value: ProtoWriter): this {
    return this.bytes(field, value.finish())
  }

  /** The bytes so far; a view that later writes may leave behind. */
  finish(): Uint8Array {
    return this.#buffer.subarray(0, this.#length)
  }

  #raw(value: bigint): this {
    const out: number[] = []
    let rest = value
    while (rest > 127n) {
      out.push(Number(rest & 127n) | 128)
      rest >>= 7n
    }
    out.push(Number(rest))
    return this.#append(Uint8Array.from(out))
  }

  #append(bytes: Uint8Array): this {
    const need = this.#length + bytes.length
    if (need > this.#buffer.length) {
      const grown = new Uint8Array(Math.max(need, this.#buffer.length * 2))
      grown.set(this.#buffer)
      this.#buffer = grown
    }
    this.#buffer.set(bytes, this.#length)
    this.#length = need
    return this
  }
}
