import { z } from 'zod'
import { EngineError, messageOf } from '../../core/index.ts'
import { fromHalf, toHalf } from './half.ts'

/**
 * The safetensors format (huggingface.co/docs/safetensors): eight bytes of header length, a JSON header, the data.
 * Covered: F32 and F16, string metadata. Read values are always float32.
 */
export interface TensorFile {
  readonly metadata: Readonly<Record<string, string>>
  readonly tensors: ReadonlyMap<string, StoredTensor>
}

export interface StoredTensor {
  readonly dims: readonly number[]
  readonly data: Float32Array
}

const entrySchema = z.object({
  dtype: z.enum(['F32', 'F16']),
  shape: z.array(z.number().int().nonnegative()),
  data_offsets: z.tuple([z.number().int().nonnegative(), z.number().int().nonnegative()]),
})
const headerSchema = z.object({ __metadata__: z.record(z.string(), z.string()).optional() }).catchall(entrySchema)

export function encodeTensors(file: TensorFile, precision: 'F32' | 'F16'): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: file.metadata }
  const chunks: Uint8Array[] = []
  let offset = 0
  for (const [name, { dims, data }] of file.tensors) {
    const stored = precision === 'F16' ? toHalf(data) : data
    const bytes = new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength)
    header[name] = { dtype: precision, shape: dims, data_offsets: [offset, offset + bytes.length] }
    chunks.push(bytes)
    offset += bytes.length
  }
  // Spaces bring the data to an eight-byte boundary, as the format asks.
  const json = Buffer.from(JSON.stringify(header), 'utf8')
  const padded = Buffer.alloc(Math.ceil(json.length / 8) * 8, ' ')
  json.copy(padded)
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(padded.length))
  return Buffer.concat([length, padded, ...chunks])
}

/** Throws an EngineError that names the file and says what is wrong with it. */
export function decodeTensors(bytes: Uint8Array, path: string, fix: string): TensorFile {
  const fail = (what: string, cause?: unknown): never => {
    throw new EngineError(`${path} ${what}; ${fix}`, { cause })
  }
  if (bytes.length < 8) fail(`is truncated (${bytes.length} bytes)`)
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const headerLength = Number(view.readBigUInt64LE())
  const start = 8 + headerLength
  if (headerLength < 2 || headerLength > 100_000_000) fail('is not a safetensors file')
  if (start > bytes.length) fail('is truncated in its header')
  let header: z.infer<typeof headerSchema>
  try {
    header = headerSchema.parse(JSON.parse(view.toString('utf8', 8, start)))
  } catch (cause) {
    return fail(`has an unreadable header (${messageOf(cause)})`, cause)
  }
  const { __metadata__: metadata, ...entries } = header
  const tensors = new Map<string, StoredTensor>()
  for (const [name, entry] of Object.entries(entries) as [string, z.infer<typeof entrySchema>][]) {
    const [from, to] = entry.data_offsets
    const count = entry.shape.reduce((a, b) => a * b, 1)
    if (start + to > bytes.length) fail(`is truncated: ${name} ends at byte ${start + to} of ${bytes.length}`)
    if (to - from !== count * (entry.dtype === 'F16' ? 2 : 4)) fail(`is corrupt: ${name} has the wrong size`)
    // A copy, as typed arrays want aligned offsets (a Buffer's own slice would not copy).
    const data = new Uint8Array(bytes.subarray(start + from, start + to)).buffer
    tensors.set(name, {
      dims: entry.shape,
      data: entry.dtype === 'F16' ? fromHalf(new Uint16Array(data)) : new Float32Array(data),
    })
  }
  return { metadata: metadata ?? {}, tensors }
}
