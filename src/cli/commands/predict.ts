import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { run } from '../command.ts'
import { loadConfig } from '../config-file.ts'
import { programOn, verdictOn } from '../one-program.ts'
import { openRuntime } from '../runtime.ts'
import { makeJudges, openNano } from '../session.ts'

export function predictCommand(program: Command): void {
  program
    .command('predict')
    .description("the world model's verdict on a program: nothing is executed")
    .argument('<file>', 'Python file, - for standard input')
    .requiredOption('--task <id>', 'id of a task, or suite/id')
    .addHelpText('after', '\nExample:\n  wmrl predict --task concrete-strength solution.py')
    .action(
      run(async ({ out, signal }, file: string, opts: { task: string }) => {
        const program = await programOn(file, opts.task)
        const config = loadConfig({ env: process.env })
        const scratch = mkdtempSync(join(tmpdir(), 'wmrl-predict-'))
        try {
          await using rt = await openRuntime({ cache: false, workers: 1 })
          await using nano = await openNano({ threads: config.engine.threads, checkpointDir: scratch }, signal)
          const { predicted } = makeJudges({ config, pool: rt.pool, executor: rt.executor, grader: rt.grader, nano })
          const v = await verdictOn({ out, signal }, predicted, 'predicted', program)
          if (!v) return
          const kinds = new Map<string, number>()
          for (const a of v.belief.alternatives) kinds.set(a.kind, (kinds.get(a.kind) ?? 0) + a.p)
          out.result({ belief: v.belief, score: v.score, spread: v.spread, observation: v.observation.text }, () =>
            [...kinds]
              .filter(([, p]) => p >= 0.001)
              .sort((a, b) => b[1] - a[1])
              .map(([k, p]) => `${k.padEnd(20)} ${p.toFixed(3)}`)
              .concat(
                `expected reward ${v.score.toFixed(3)}, spread ${v.spread.toFixed(3)}`,
                `shown: ${v.observation.text}`,
              )
              .join('\n'),
          )
        } finally {
          rmSync(scratch, { recursive: true, force: true })
        }
      }),
    )
}
