import { existsSync, readdirSync, rmSync } from 'node:fs'
import { basename, isAbsolute, join, relative, resolve } from 'node:path'
import { weightsVersion } from '../core/index.ts'
import type { Checkpoint } from '../engine/index.ts'
import type { AttemptRow, GroupRow, RunLedger, TrajectoryRow } from '../ledger/index.ts'
import type { RunConfig, RunRecord, RunState, SavedRun, StepMetrics, StepOutcome } from '../train/index.ts'
import { onServer } from './open-engine.ts'

/** Checkpoints kept: the newest, and one before it should the newest turn out damaged. */
const KEEP = 2

/** What a checkpoint's row holds beside the weights: all that the run goes on with. */
interface Saved {
  readonly run: RunState
  readonly name: string
  /** Resolved; rows of earlier versions lack it. */
  readonly config?: RunConfig
}

export const checkpointDir = (runDir: string): string => join(runDir, 'checkpoints')

/** Whether a ledger holds anything that was computed or paid for. One that could not start, or was killed before, does not. */
export const hasBegun = (ledger: RunLedger): boolean =>
  ledger.steps().length > 0 || ledger.checkpoints().length > 0 || ledger.verdictCount() > 0

/** Adapts the ledger to the training loop's port. */
export function runRecord(ledger: RunLedger, runDir: string, config: RunConfig): RunRecord {
  return {
    commitStep(m: StepMetrics, o: StepOutcome) {
      const { groups, trajectories, attempts } = rowsOf(m.step, o)
      // Times differ between a run and its resumed twin; they live in metrics.jsonl, not in the record.
      const { seconds: _seconds, loopLagMs: _lag, ...record } = m
      ledger.commitStep(
        { step: m.step, record: { ...record, method: o.result.state.map } },
        groups,
        trajectories,
        attempts,
      )
    },
    commitCheckpoint(c: Checkpoint, s: RunState) {
      const state: Saved = { run: s, name: c.name, config }
      ledger.commitCheckpoint({ step: s.step, weights: c.version, location: kept(runDir, c.location), state })
      const gone = ledger.pruneCheckpoints(KEEP)
      const named = new Set(ledger.checkpoints().map((r) => basename(r.location)))
      // Only what lies in this run's own folder is the run's to remove.
      return gone
        .filter((l) => !onServer(l) && !named.has(basename(l)))
        .map((l) => join(checkpointDir(runDir), basename(l)))
    },
    checkpoints: () => savedRuns(ledger, runDir),
    resumeAt: (step) => ledger.rewind(step),
  }
}

/** A run's complete checkpoints, newest first. */
export function savedRuns(ledger: RunLedger, runDir: string): SavedRun[] {
  return ledger.checkpoints().map((row) => {
    const { run, name } = row.state as Saved
    return {
      checkpoint: { name, location: found(runDir, row.location), version: weightsVersion(row.weights) },
      state: run,
    }
  })
}

/** The configuration that the newest checkpoint was made with. */
export const savedConfig = (ledger: RunLedger): RunConfig | undefined =>
  (ledger.checkpoints()[0]?.state as Saved | undefined)?.config

/** Removes weights that no row names: left by a process that was killed between writing a file and naming it. */
export function sweepCheckpoints(ledger: RunLedger, runDir: string): void {
  const named = new Set(ledger.checkpoints().map((r) => basename(r.location)))
  for (const f of readdirSync(checkpointDir(runDir)))
    if (/\.(safetensors|tmp)$/.test(f) && !named.has(f)) rmSync(join(checkpointDir(runDir), f))
}

/** As a row keeps it: below the run's folder, which may be moved or named from elsewhere; a server's address as it is. */
function kept(runDir: string, location: string): string {
  if (onServer(location)) return location
  const path = relative(resolve(runDir), resolve(location))
  return path.startsWith('..') || isAbsolute(path) ? resolve(location) : path
}

/** Where a row's weights are now. Files are named by their content, so one of the same name is the same. */
function found(runDir: string, location: string): string {
  if (onServer(location)) return location
  const own = join(checkpointDir(runDir), basename(location))
  // Rows of earlier versions hold the path as it was given, in a folder that runs may have shared.
  return !existsSync(own) && existsSync(location) ? location : own
}

function rowsOf(
  step: number,
  o: StepOutcome,
): { groups: GroupRow[]; trajectories: TrajectoryRow[]; attempts: AttemptRow[] } {
  const groups = o.plans.map((p, g): GroupRow => {
    const r = o.result.groups[g]!
    const e = o.evidence[g]!
    return {
      step,
      group: g,
      task: `${p.task.suite}/${p.task.id}`,
      anchor: o.anchors[g]!,
      predicted: e.predicted,
      executed: e.executed,
      corrected: r.corrected,
      advantages: r.advantages,
      skipped: r.skipped,
    }
  })
  const coefficient = new Map(o.data.map((d) => [`${d.trajectory.group}/${d.trajectory.index}`, d.datum.advantage]))
  const trajectories = o.trajectories.map(
    (t): TrajectoryRow => ({
      step,
      group: t.group,
      trajectory: t.index,
      ended: t.ended,
      tokens: t.tokens,
      mask: t.mask,
      logprobs: t.logprobs,
      coefficient: coefficient.get(`${t.group}/${t.index}`) ?? null,
      unscorable: t.unscorable
        ? `${t.unscorable.cause}: ${t.unscorable.detail}`.slice(0, 200).replaceAll('\0', '')
        : undefined,
    }),
  )
  const attempts = o.trajectories.flatMap((t) =>
    t.turns.map(
      (x, turn): AttemptRow => ({
        step,
        group: t.group,
        trajectory: t.index,
        turn,
        code: x.action.code,
        verdict: x.verdict,
        shadow: x.shadow,
      }),
    ),
  )
  return { groups, trajectories, attempts }
}
