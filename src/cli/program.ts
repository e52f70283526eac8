import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { packageRoot } from '../core/index.ts'
import { commands } from './commands/index.ts'

/** `wmrl` with all of its commands, not yet run. */
export function wmrlProgram(): Command {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string }
  const program = new Command('wmrl')
    .description('post-trains research agents on predicted outcomes, corrected by a few real executions')
    .version(version)
    .option('--json', 'one JSON document on stdout, logs on stderr')
    .option('--quiet', 'no logs')
    .option('--no-color', 'no colours')
    .showHelpAfterError('(--help shows the options and an example)')
    .showSuggestionAfterError()
    .addHelpText(
      'after',
      '\nExample:\n  wmrl tasks prepare\n  wmrl train --set train.steps=20 --run runs/first\n  wmrl eval runs/first',
    )
    .exitOverride()
  for (const add of commands) add(program)
  for (const c of program.commands) c.exitOverride()
  return program
}
