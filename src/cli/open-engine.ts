import type { RunConfig } from '../train/index.ts'
import type { Out } from './command.ts'
import { type OpenEngine, openNano } from './session.ts'
import { openTinker } from './tinker-session.ts'

/** The engine that a configuration names. `stateDir` keeps its checkpoints or its journal. */
export function openEngine(out: Out, config: RunConfig, stateDir: string, signal: AbortSignal): Promise<OpenEngine> {
  return config.engine.kind === 'tinker'
    ? openTinker(out, config, stateDir, signal)
    : openNano({ backbone: config.engine.backbone, threads: config.engine.threads, checkpointDir: stateDir }, signal)
}

/** Whether a checkpoint's location is a server's and no file of this machine. */
export const onServer = (location: string): boolean => location.startsWith('tinker://')
