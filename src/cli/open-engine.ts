import { ConfigError } from '../core/index.ts'
import type { RunConfig } from '../train/index.ts'
import type { Out } from './command.ts'
import { backboneAt, type OpenEngine, openNano } from './session.ts'
import { checkTinker, openTinker } from './tinker-session.ts'

/** What can be said of an engine before anything is made or started. @throws ConfigError naming the key */
export function checkEngine(config: RunConfig): void {
  if (config.engine.kind === 'tinker') {
    checkTinker(config)
    return
  }
  backboneAt(config.engine.backbone)
  if (config.train.maxStaleness > 0)
    throw new ConfigError(
      'train.maxStaleness',
      'the embedded engine samples and trains on one thread: nothing would overlap',
      'set it to 0',
    )
}

/** The engine that a configuration names. `stateDir` keeps its checkpoints or its journal. */
export async function openEngine(
  out: Out,
  config: RunConfig,
  stateDir: string,
  signal: AbortSignal,
): Promise<OpenEngine> {
  checkEngine(config)
  return config.engine.kind === 'tinker'
    ? openTinker(out, config, stateDir, signal)
    : openNano({ backbone: config.engine.backbone, threads: config.engine.threads, checkpointDir: stateDir }, signal)
}

/** Whether a checkpoint's location is a server's and no file of this machine. */
export const onServer = (location: string): boolean => location.startsWith('tinker://')
