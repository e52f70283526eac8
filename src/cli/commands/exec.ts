import type { Command } from 'commander'
import { ConfigError } from '../../core/index.ts'
import type { Execution } from '../../executors/index.ts'
import { ExecutedJudge, LIMIT_PROFILES, type LimitProfile } from '../../judge/index.ts'
import { run } from '../command.ts'
import { programOn, verdictOn } from '../one-program.ts'
import { openRuntime } from '../runtime.ts'

/** Terminal control sequences of a program's output, made visible. */
const printable = (b: Uint8Array): string =>
  new TextDecoder()
    .decode(b)
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`)

export function execCommand(program: Command): void {
  program
    .command('exec')
    .description('runs one program in the sandbox and grades it on the feedback scope')
    .argument('<file>', 'Python file, - for standard input')
    .requiredOption('--task <id>', 'id of a task, or suite/id')
    .option('--no-cache', 'run it even if the same program ran before, and keep nothing of it')
    .option('--allow-unsafe', 'run it where nothing contains it: for your own programs only')
    .option('--limits <profile>', `limits: ${Object.keys(LIMIT_PROFILES).join(', ')}`, 'demo')
    .addHelpText('after', '\nExample:\n  wmrl exec --task concrete-strength solution.py')
    .action(
      run(
        async (
          { out, signal },
          file: string,
          opts: { task: string; cache: boolean; allowUnsafe?: boolean; limits: string },
        ) => {
          if (!Object.hasOwn(LIMIT_PROFILES, opts.limits))
            throw new ConfigError(
              '--limits',
              `unknown profile ${opts.limits}`,
              `one of ${Object.keys(LIMIT_PROFILES).join(', ')}`,
            )
          const limits = LIMIT_PROFILES[opts.limits as LimitProfile]
          const program = await programOn(file, opts.task)
          await using rt = await openRuntime({
            cache: opts.cache,
            workers: 1,
            ...(opts.allowUnsafe ? { allowUnsafe: true } : {}),
          })
          let e: Execution | undefined
          const judge = new ExecutedJudge({
            executor: rt.executor,
            grader: rt.grader,
            limits,
            taskSeed: 0,
            task: async () => program.task,
            onExecution: (x) => {
              e = x.execution
            },
          })
          const v = await verdictOn({ out, signal }, judge, 'executed', program)
          if (!v) return
          const stdout = e ? printable(e.stdout) : ''
          const stderr = e ? printable(e.stderr) : ''
          const cost = e
            ? { wallS: e.cost.wallS, cpuS: e.cost.cpuS, peakBytes: e.cost.peakBytes }
            : { wallS: 0, cpuS: 0, peakBytes: 0 }
          out.result(
            {
              outcome: v.outcome,
              score: v.score,
              stdout,
              stderr,
              observation: v.observation.text,
              cost,
              rung: rt.executor.rung,
              cached: e?.cached === true,
            },
            () =>
              [
                stdout.trimEnd(),
                stderr.trimEnd(),
                `${v.observation.text}`,
                `reward ${v.score.toFixed(3)}${v.outcome.kind === 'graded' ? `, ${program.task.card.metric.name} ${v.outcome.score.toPrecision(5)} on the feedback rows, percentile ${v.outcome.percentile.toFixed(3)}` : ''}`,
                `${cost.cpuS.toFixed(2)} CPU s, ${(cost.peakBytes / 2 ** 20).toFixed(0)} MiB, sandbox rung ${rt.executor.rung}${e?.cached ? ', from the cache' : ''}`,
              ]
                .filter((l) => l !== '')
                .join('\n'),
          )
        },
      ),
    )
}
