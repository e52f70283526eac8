/** IEEE 754 binary16, as the shipped backbone is stored. */
export function toHalf(values: Float32Array): Uint16Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
  return Uint16Array.from(bits, halfBits)
}

export function fromHalf(halves: Uint16Array): Float32Array {
  return Float32Array.from(halves, (h) => {
    const sign = h & 0x8000 ? -1 : 1
    const exponent = (h >> 10) & 0x1f
    const fraction = h & 0x3ff
    if (exponent === 0) return sign * fraction * 2 ** -24
    if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
  })
}

/** Rounds a float32's bits to the nearest half, ties to even; too large becomes infinite. */
function halfBits(x: number): number {
  const sign = (x >>> 16) & 0x8000
  const magnitude = x & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  if (magnitude < 0x38800000) {
    // Subnormal: the value in units of 2^-24, rounded by adding and removing 2^23's ulp-sized bias.
    const value = new Float32Array(Uint32Array.of(magnitude).buffer)[0]!
    return sign | roundEven(value * 2 ** 24)
  }
  const rebased = magnitude - 0x38000000
  return sign | ((rebased + 0xfff + ((rebased >>> 13) & 1)) >>> 13)
}

function roundEven(x: number): number {
  const low = Math.floor(x)
  const rest = x - low
  if (rest !== 0.5) return Math.round(x)
  return low % 2 === 0 ? low : low + 1
}
