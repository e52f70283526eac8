import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod'
import { boundary, EngineError, messageOf } from '../../core/index.ts'
import { type AdamState, freshAdam } from './adam.ts'
import { checkConfig, type ModelConfig, parameterSpecs, type Weights } from './model-config.ts'
import { decodeTensors, encodeTensors, type StoredTensor, type TensorFile } from './safetensors.ts'

const configSchema = z.object({
  layers: z.number(),
  dModel: z.number(),
  heads: z.number(),
  vocab: z.number(),
  context: z.number(),
  logitScale: z.number(),
})

export interface TrainingState {
  readonly config: ModelConfig
  readonly weights: Map<string, Float32Array>
  readonly adam: AdamState
}

const SUFFIX = '.safetensors'
const CHECKPOINT_FIX = 'remove it and go on from an earlier checkpoint'
const BACKBONE_FIX = 'restore it from the package or run npm run pretrain'

/** Weights and metadata in half precision, for shipping. Returns the number of bytes. */
export async function writeBackbone(
  path: string,
  config: ModelConfig,
  weights: Weights,
  metadata: Readonly<Record<string, string>>,
): Promise<number> {
  const bytes = encodeTensors(
    {
      metadata: { ...metadata, format: 'wmrl-backbone', config: JSON.stringify(config) },
      tensors: named(config, weights),
    },
    'F16',
  )
  await mkdir(dirname(path), { recursive: true })
  await writeDurably(path, bytes)
  return bytes.length
}

export async function readBackbone(path: string): Promise<Omit<TrainingState, 'adam'>> {
  const file = decodeTensors(await readAll(path, BACKBONE_FIX), path, BACKBONE_FIX)
  const config = configOf(file, path, BACKBONE_FIX)
  return { config, weights: weightsOf(file, config, '', path, BACKBONE_FIX) }
}

/** Writes weights, moments and step under the digest of the bytes; the same state is the same file. */
export async function writeCheckpoint(
  dir: string,
  state: { readonly config: ModelConfig; readonly weights: Weights; readonly adam: AdamState },
): Promise<string> {
  const { config, weights, adam } = state
  const tensors = new Map<string, StoredTensor>([
    ...named(config, weights),
    ...named(config, adam.first, 'adam.first.'),
    ...named(config, adam.second, 'adam.second.'),
  ])
  const metadata = { format: 'wmrl-checkpoint', config: JSON.stringify(config), step: String(adam.step) }
  const bytes = encodeTensors({ metadata, tensors }, 'F32')
  await boundary(EngineError, `making ${dir}`, () => mkdir(dir, { recursive: true }))
  const path = join(dir, digest(bytes) + SUFFIX)
  await writeDurably(path, bytes)
  return path
}

/** Throws an EngineError naming the file when it is missing, truncated or does not match its digest. */
export async function readCheckpoint(path: string): Promise<TrainingState> {
  const bytes = await readAll(path, CHECKPOINT_FIX)
  const file = decodeTensors(bytes, path, CHECKPOINT_FIX)
  if (digest(bytes) !== basename(path, SUFFIX)) {
    throw new EngineError(`${path} is corrupt: its content does not match its name; ${CHECKPOINT_FIX}`)
  }
  const config = configOf(file, path, CHECKPOINT_FIX)
  const part = (prefix: string): Map<string, Float32Array> => weightsOf(file, config, prefix, path, CHECKPOINT_FIX)
  const adam = { first: part('adam.first.'), second: part('adam.second.'), step: Number(file.metadata.step) }
  return { config, weights: part(''), adam }
}

export const freshState = (config: ModelConfig, weights: Map<string, Float32Array>): TrainingState => ({
  config,
  weights,
  adam: freshAdam(weights),
})

function named(config: ModelConfig, values: Weights, prefix = ''): Map<string, StoredTensor> {
  return new Map(parameterSpecs(config).map((s) => [prefix + s.name, { dims: s.dims, data: values.get(s.name)! }]))
}

function configOf(file: TensorFile, path: string, fix: string): ModelConfig {
  try {
    return checkConfig(configSchema.parse(JSON.parse(file.metadata.config ?? '')))
  } catch (cause) {
    throw new EngineError(`${path} has no usable model configuration (${messageOf(cause)}); ${fix}`, { cause })
  }
}

function weightsOf(
  file: TensorFile,
  config: ModelConfig,
  prefix: string,
  path: string,
  fix: string,
): Map<string, Float32Array> {
  const out = new Map<string, Float32Array>()
  for (const { name, dims } of parameterSpecs(config)) {
    const stored = file.tensors.get(prefix + name)
    if (!stored || stored.dims.join() !== dims.join()) {
      throw new EngineError(`${path} lacks ${prefix + name} of ${dims.join(' x ')}; ${fix}`)
    }
    out.set(name, stored.data)
  }
  return out
}

const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

async function readAll(path: string, fix: string): Promise<Uint8Array> {
  try {
    return await readFile(path)
  } catch (cause) {
    throw new EngineError(`cannot read ${path} (${messageOf(cause)}); ${fix}`, { cause })
  }
}

/** Temporary file, fsync, rename, fsync of the folder: after a power cut the name holds all of the bytes or nothing. */
async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`
  await boundary(EngineError, `writing ${path}`, async () => {
    try {
      const file = await open(temporary, 'wx')
      try {
        await file.writeFile(bytes)
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(temporary, path)
    } catch (e) {
      await rm(temporary, { force: true })
      throw e
    }
    const folder = await open(dirname(path), 'r')
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  })
}
