import { weightsVersion } from '../core/index.ts'
import type { Checkpoint } from '../engine/index.ts'
import type { AttemptRow, GroupRow, RunLedger, TrajectoryRow } from '../ledger/index.ts'
import type { RunRecord, RunState, StepMetrics, StepOutcome } from '../train/index.ts'

/** Checkpoints kept: the newest, and one before it should the newest turn out damaged. */
const KEEP = 2

/** Adapts the ledger to the training loop's port. */
export function runRecord(ledger: RunLedger, fileExists: (path: string) => boolean): RunRecord {
  return {
    commitStep(m: StepMetrics, o: StepOutcome) {
      const { groups, trajectories, attempts } = rowsOf(m.step, o)
      // Times differ between a run and its resumed twin; they live in metrics.jsonl, not in the record.
      const { seconds: _seconds, ...record } = m
      ledger.commitStep(
        { step: m.step, record: { ...record, method: o.result.state.map } },
        groups,
        trajectories,
        attempts,
      )
    },
    commitCheckpoint(c: Checkpoint, s: RunState) {
      ledger.commitCheckpoint({
        step: s.step,
        weights: c.version,
        location: c.location,
        state: { run: s, name: c.name },
      })
      return ledger.pruneCheckpoints(KEEP)
    },
    newestCheckpoint() {
      for (const row of ledger.checkpoints()) {
        if (!fileExists(row.location)) continue
        const { run, name } = row.state as { run: RunState; name: string }
        return { checkpoint: { name, location: row.location, version: weightsVersion(row.weights) }, state: run }
      }
      return undefined
    },
  }
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
