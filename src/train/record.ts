import type { Checkpoint } from '../engine/index.ts'
import type { RunState, StepMetrics } from './loop.ts'
import type { StepOutcome } from './step.ts'

/** Port: where a run is recorded. The ledger implements it; every call returns once its rows are durable. */
export interface RunRecord {
  commitStep(m: StepMetrics, o: StepOutcome): void
  /** Names weights already on disk; returns locations that no checkpoint names any more. */
  commitCheckpoint(c: Checkpoint, s: RunState): readonly string[]
  newestCheckpoint(): { readonly checkpoint: Checkpoint; readonly state: RunState } | undefined
}
