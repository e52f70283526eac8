import type { Checkpoint } from '../engine/index.ts'
import type { RunState } from './loop.ts'
import type { StepMetrics } from './metrics.ts'
import type { StepOutcome } from './step.ts'

/** A point that a run can go on from. */
export interface SavedRun {
  readonly checkpoint: Checkpoint
  readonly state: RunState
}

/** Port: where a run is recorded. The ledger implements it; every call returns once its rows are durable. */
export interface RunRecord {
  commitStep(m: StepMetrics, o: StepOutcome): void
  /** Names weights already on disk; returns locations that no checkpoint names any more. */
  commitCheckpoint(c: Checkpoint, s: RunState): readonly string[]
  /** Newest first; whether their weights can still be read, the engine knows. */
  checkpoints(): readonly SavedRun[]
  /** Forgets steps and checkpoints later than this one, which are computed again. Verdicts that were paid for stay. */
  resumeAt(step: number): void
}
