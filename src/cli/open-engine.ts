import { ConfigError } from '../core/index.ts'
import type { RunConfig } from '../train/index.ts'
import type { Out } from './command.ts'
import { type OpenEngine, openNano } from './session.ts'
import { openTinker } from './tinker-session.ts'

/** The engine that a configuration names. `stateDir` keeps its checkpoints or its journal. */
export async function openEngine(
  out: Out,
  config: RunConfig,
  stateDir: string,
  signal: AbortSignal,
): Promise<OpenEngine> {
  if (config.engine.kind === 'onnx' && config.train.maxStaleness > 0)
    throw new ConfigError(
      'train.maxStaleness',
      'the embedded engine samples and trains on one thread: nothing would overlap',
      'set it to 0',
    )
  return config.engine.kind === 'tinker'
    ? openTinker(out, config, stateDir, signal)
    : openNano({ backbone: config.engine.backbone, threads: config.engine.threads, checkpointDir: stateDir }, signal)
}

/** Whether a checkpoint's location is a server's and no file of this machine. */
export const onServer = (location: string): boolean => location.startsWith('tinker://')
