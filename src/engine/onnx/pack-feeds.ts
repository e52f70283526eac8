import type { TokenSequence } from '../contract.ts'
import { type Pack, packTensors } from './packing.ts'
import { type Tensors, tensor } from './sessions.ts'

/** The inputs that every graph over packed rows has. */
export function packFeeds(pack: Pack, sequences: readonly TokenSequence[]): Tensors {
  const { batch, length } = pack.shape
  const { tokens, positions, mask } = packTensors(pack, sequences)
  return {
    tokens: tensor(tokens, [batch * length]),
    positions: tensor(positions, [batch * length, 1]),
    mask: tensor(mask, [batch, 1, length, length]),
  }
}
