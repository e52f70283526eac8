import type { Command } from 'commander'
import { run } from '../command.ts'
import { type ConfigKey, configReference, configSchema } from '../config-file.ts'

export function configCommand(program: Command): void {
  program
    .command('config')
    .description('the configuration reference, generated from the schema')
    .option('--schema', 'the JSON schema instead')
    .addHelpText('after', '\nExample:\n  wmrl config --schema > wmrl.schema.json')
    .action(
      run(async ({ out }, opts: { schema?: boolean }) => {
        const rows = configReference()
        if (opts.schema) {
          process.stdout.write(`${JSON.stringify(configSchema(), null, 1)}\n`)
          return
        }
        out.result(configSchema(), () =>
          rows
            .map(
              (r) =>
                `${r.key.padEnd(34)} ${r.type.padEnd(10)} ${defaults(r)}${r.description ? `   ${r.description}` : ''}`,
            )
            .join('\n'),
        )
      }),
    )
}

/** `= 0.0003 (paper 0.000001)` */
function defaults(r: ConfigKey): string {
  const modes = Object.entries(r.inMode ?? {}).map(([m, v]) => `${m} ${shown(v)}`)
  if (r.default === undefined) return ''
  return `= ${shown(r.default)}${modes.length > 0 ? ` (${modes.join(', ')})` : ''}`
}

/** Small numbers as 1e-6, the form that a file takes too. */
const shown = (v: unknown): string =>
  typeof v === 'number' && v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential() : JSON.stringify(v)
