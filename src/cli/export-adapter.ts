import { copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { adapterFiles, type TinkerEngine } from '../engine/tinker/index.ts'
import { methodOf, type RunConfig } from '../train/index.ts'

export interface ExportFacts {
  readonly config: RunConfig
  readonly tokenizerDir: string
  readonly templateHash: string
  readonly steps: number
  readonly executions: number
  readonly predictions: number
}

const TEXT_FILES = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja', 'generation_config.json']

/** Writes the trained adapter with the base model's tokenizer and a card; false where no model is open. */
export async function exportAdapter(
  engine: TinkerEngine,
  dir: string,
  f: ExportFacts,
  signal: AbortSignal,
): Promise<boolean> {
  const archive = await engine.archive(`export-${f.steps}`, signal)
  if (!archive) return false
  mkdirSync(dir, { recursive: true })
  for (const [name, bytes] of adapterFiles(archive)) writeFileSync(join(dir, name), bytes)
  for (const name of TEXT_FILES)
    if (existsSync(join(f.tokenizerDir, name))) copyFileSync(join(f.tokenizerDir, name), join(dir, name))
  writeFileSync(join(dir, 'README.md'), card(engine, f))
  return true
}

function card(engine: TinkerEngine, f: ExportFacts): string {
  const { train, tasks, seed } = f.config
  return `# Adapter of a research agent

Trained by WMRL on predicted outcomes, corrected by a few real executions.

| | |
|---|---|
| base model | \`${engine.baseModel}\` |
| adapter | rank ${f.config.engine.rank}, ${engine.server.training} |
| steps | ${f.steps} of ${train.groups} groups of ${train.groupSize} |
| executions / predictions | ${f.executions} / ${f.predictions} |
| tasks | suite ${tasks.suite}, split ${tasks.split} |
| seed | ${seed} |
| chat template | sha256 ${f.templateHash} |

It writes one Python program a turn in a fenced block and reads how the program ended. Use the chat template beside this file:
with another one the prompts differ from those that it was trained on.

Nothing here says how good it is: evaluate it by real execution on held-out tasks (\`wmrl eval RUN\`).

\`\`\`yaml
${stringify({ method: methodOf(f.config), train }).trimEnd()}
\`\`\`
`
}
