/** The little of proto3 that the Tinker messages need: varints, doubles and length-delimited fields. */
export class ProtoWriter {
  readonly #parts: Uint8Array[] = []
  #size = 0

  bytes(field: number, value: Uint8Array): this {
    this.#varint((field << 3) | 2)
    this.#varint(value.length)
    return this.#push(value)
  }
  string(field: number, value: string): this {
    return this.bytes(field, Buffer.from(value, 'utf8'))
  }
  message(field: number, write: (w: ProtoWriter) => void): this {
    const inner = new ProtoWriter()
    write(inner)
    return this.bytes(field, inner.finish())
  }
  /** A whole number from 0; proto3 leaves out zero. */
  int(field: number, value: number): this {
    if (value === 0) return this
    this.#varint(field << 3)
    this.#varint(value)
    return this
  }
  double(field: number, value: number): this {
    this.#varint((field << 3) | 1)
    const b = Buffer.alloc(8)
    b.writeDoubleLE(value)
    return this.#push(b)
  }
  finish(): Uint8Array {
    return Buffer.concat(this.#parts, this.#size)
  }

  #push(value: Uint8Array): this {
    this.#parts.push(value)
    this.#size += value.length
    return this
  }
  #varint(value: number): void {
    const out: number[] = []
    let rest = value
    while (rest >= 128) {
      out.push((rest % 128) | 128)
      rest = Math.floor(rest / 128)
    }
    out.push(rest)
    this.#push(Uint8Array.from(out))
  }
}

export type ProtoField =
  | { readonly field: number; readonly value: number }
  | { readonly field: number; readonly bytes: Buffer }

/** Fields of a message in the order of the wire; unknown ones included. @throws RangeError where it is cut or no message. */
export function* protoFields(message: Uint8Array): Generator<ProtoField> {
  const b = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  let at = 0
  const varint = (): bigint => {
    let value = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const c = b[at++]
      if (c === undefined) break
      value |= BigInt(c & 127) << shift
      if ((c & 128) === 0) return value
    }
    throw new RangeError('a protobuf number is cut')
  }
  const take = (n: number): number => {
    if (at + n > b.length) throw new RangeError('a protobuf field is cut')
    at += n
    return at - n
  }
  while (at < b.length) {
    const key = Number(varint())
    const field = Math.floor(key / 8)
    if (field === 0) throw new RangeError('a protobuf field has number 0')
    switch (key & 7) {
      case 0:
        yield { field, value: Number(BigInt.asIntN(64, varint())) }
        break
      case 1:
        yield { field, value: b.readDoubleLE(take(8)) }
        break
      case 2: {
        const n = Number(varint())
        const from = take(n)
        yield { field, bytes: b.subarray(from, from + n) }
        break
      }
      case 5:
        yield { field, value: b.readFloatLE(take(4)) }
        break
      default:
        throw new RangeError(`protobuf wire type ${key & 7}`)
    }
  }
}

const whole = (b: Buffer, width: number): number => {
  if (b.length % width !== 0) throw new RangeError(`${b.length} bytes are no array of ${width}-byte numbers`)
  return b.length / width
}
export const packInt32 = (a: readonly number[]): Uint8Array => {
  const b = Buffer.alloc(a.length * 4)
  a.forEach((v, i) => {
    b.writeInt32LE(v, i * 4)
  })
  return b
}
export const packInt64 = (a: readonly number[]): Uint8Array => {
  const b = Buffer.alloc(a.length * 8)
  a.forEach((v, i) => {
    b.writeBigInt64LE(BigInt(v), i * 8)
  })
  return b
}
export const packFloat32 = (a: readonly number[]): Uint8Array => {
  const b = Buffer.alloc(a.length * 4)
  a.forEach((v, i) => {
    b.writeFloatLE(v, i * 4)
  })
  return b
}
export const readInt32 = (b: Buffer): number[] => Array.from({ length: whole(b, 4) }, (_, i) => b.readInt32LE(i * 4))
export const readInt64 = (b: Buffer): number[] =>
  Array.from({ length: whole(b, 8) }, (_, i) => Number(b.readBigInt64LE(i * 8)))
export const readFloat32 = (b: Buffer): number[] => Array.from({ length: whole(b, 4) }, (_, i) => b.readFloatLE(i * 4))
/** The upper half of a float32. */
export const readBfloat16 = (b: Buffer): number[] => {
  const wide = Buffer.alloc(b.length * 2)
  for (let i = 0; i < whole(b, 2); i++) b.copy(wide, i * 4 + 2, i * 2, i * 2 + 2)
  return readFloat32(wide)
}
