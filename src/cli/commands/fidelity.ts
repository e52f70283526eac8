import type { Command } from 'commander'
import { ConfigError } from '../../core/index.ts'
import { RunLedger } from '../../ledger/index.ts'
import { type Fidelity, fidelity } from '../../report/index.ts'
import { run } from '../command.ts'
import { num } from '../figures.ts'
import { needRun } from '../runtime.ts'

export function fidelityCommand(program: Command): void {
  program
    .command('fidelity')
    .description('predicted against executed, on the programs that were both')
    .argument('<run>', 'run directory')
    .addHelpText('after', '\nExample:\n  wmrl fidelity runs/first')
    .action(
      run(async ({ out }, dir: string) => {
        const f = fidelityOf(dir)
        out.result(f, () => fidelityText(f))
      }),
    )
}

/**
 * Every attempt of a run that has a shadow prediction beside its execution.
 * @throws ConfigError where several world models made them: one figure over both would be of neither
 */
export function fidelityOf(dir: string): Fidelity {
  const ledger = RunLedger.openReadOnly(needRun(dir))
  try {
    const models = ledger.worldModels()
    if (models.length > 1)
      throw new ConfigError(
        'run',
        `${dir} holds predictions of ${models.length} backbones (${models.map((m) => m.slice(0, 12)).join(', ')})`,
        'an earlier version went on with it from another backbone; train anew',
      )
    const task = new Map(ledger.groups().map((g) => [`${g.step}/${g.group}`, g.task]))
    return fidelity(
      ledger.attempts().flatMap((a) =>
        a.shadow
          ? [
              {
                task: task.get(`${a.step}/${a.group}`) ?? '?',
                step: a.step,
                group: a.group,
                predicted: a.shadow,
                executed: a.verdict,
              },
            ]
          : [],
      ),
    )
  } finally {
    ledger.close()
  }
}

export function fidelityText(f: Fidelity): string {
  if (f.n === 0) return 'no program of this run was both predicted and executed'
  return [
    `${f.n} programs were both predicted and executed${f.unscorable ? `, ${f.unscorable} more were unscorable on one side` : ''}`,
    `outcome accuracy ${num(f.outcomeAccuracy)} (always the most frequent: ${num(f.majority)})`,
    `rank correlation within a task ${num(f.spearmanWithinTask)}, among valid programs ${num(f.spearmanAmongValid)} (${f.tasksWithoutCorrelation} tasks without one), within a group ${num(f.spearmanWithinGroup)} (${f.groupsWithoutCorrelation} groups without one)`,
    `signed R2 ${num(f.signedR2)}, mean absolute error ${num(f.mae)}, bias ${num(f.bias)}, calibration error of P(valid) ${num(f.ece)}`,
    ...f.curve.map((c) => `  predicted ${num(c.predicted, 2)}  executed ${num(c.executed, 2)}  n ${c.n}`),
    ...f.bySuite.map((x) => `  suite ${x.suite}: ${x.tasks} tasks, rank correlation within a task ${num(x.spearman)}`),
    ...f.byThird.map(
      (t) => `  third ${t.third} of the run: n ${t.n}, rank correlation ${num(t.spearman)}, error ${num(t.mae)}`,
    ),
  ].join('\n')
}
