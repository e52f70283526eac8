import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { FileBoards, GraderProcess } from '../../grading/index.ts'
import { LIMIT_PROFILES } from '../../judge/index.ts'
import { collectCorpus, RECIPE, type RecipeDeps } from '../../lab/pretrain/recipe.ts'
import { shipBackbone } from '../../lab/pretrain/ship.ts'
import { programScorer, RAW_BOARDS } from '../../lab/score-program.ts'
import { loadTask, preparedIds, type Task } from '../../tasks/index.ts'
import { type CommandContext, run } from '../command.ts'
import { backboneDir, boardsDir, dataDir, home, smallBoardsFile } from '../paths.ts'
import { openRuntime } from '../runtime.ts'

/** How the shipped artefacts were made; takes CPU-hours, goes on where it stopped. */
export function labCommand(program: Command): void {
  const lab = program
    .command('lab')
    .description('makes the shipped artefacts again: corpus, backbone')
    .addHelpText('after', '\nExample:\n  wmrl lab corpus')
  lab
    .command('corpus')
    .description('executes the programs that the backbone learns from')
    .addHelpText('after', '\nExample:\n  wmrl lab corpus')
    .action(
      run(async (ctx) => {
        await using d = await deps(ctx)
        const rows = await collectCorpus(d, ctx.signal)
        ctx.out.result({ pairs: rows.length, dir: d.dir }, () => `${rows.length} pairs in ${d.dir}`)
      }),
    )
  lab
    .command('pretrain')
    .description('corpus, tokenizer, pre-training, sharpening, model card')
    .option('--out <dir>', 'where model.safetensors, tokenizer.json and card go', backboneDir())
    .addHelpText('after', '\nExample:\n  npm run pretrain')
    .action(
      run(async (ctx, o: { out: string }) => {
        await using d = await deps(ctx)
        const card = await shipBackbone(d, o.out, ctx.signal)
        ctx.out.result(card, () => `backbone written to ${o.out}`)
      }),
    )
}

async function deps(ctx: CommandContext): Promise<RecipeDeps & AsyncDisposable> {
  const rt = await openRuntime({ cache: true })
  const grader = new GraderProcess(RAW_BOARDS)
  const boards = new FileBoards(boardsDir())
  const load = async (suite: 'small' | 'builtin'): Promise<Task[]> =>
    Promise.all((await preparedIds(dataDir(), suite)).map((id) => loadTask(dataDir(), suite, id)))
  const builtin = await load('builtin')
  const dir = join(home(), 'lab')
  if (!existsSync(dir)) mkdirSync(dir, { recursive: true })
  return {
    recipe: RECIPE,
    dir,
    small: await load('small'),
    builtin: builtin.filter((t) => t.card.split === 'train' && t.card.trainable),
    dev: builtin.filter((t) => t.card.split === 'dev'),
    heldout: builtin.filter((t) => t.card.split === 'heldout'),
    scorer: programScorer(rt.executor, grader, LIMIT_PROFILES.demo),
    board: (t) => boards.scores(t.ref, 'feedback'),
    writeSmallBoards: (f) => writeFileSync(smallBoardsFile(), `${JSON.stringify(f)}\n`),
    threads: 2,
    width: rt.workers + 1,
    log: (l) => ctx.out.log(l),
    progress: (l) => ctx.out.progress(l),
    async [Symbol.asyncDispose]() {
      await grader[Symbol.asyncDispose]()
      await rt[Symbol.asyncDispose]()
    },
  }
}
