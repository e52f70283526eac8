import type { TaskCard } from './card.ts'

export interface OverviewOptions {
  /** `brief` for a nano agent (facts only, no prose), `full` for a language model. */
  readonly style: 'brief' | 'full'
  /** Tokens that the text may take by `count`. */
  readonly budget: number
  readonly count: (text: string) => number
  /** Public files with sizes in bytes, for the full style. */
  readonly files?: readonly { readonly path: string; readonly bytes: number }[]
}

/** A piece of the overview; those with the highest `cut` go first when the budget is short, line by line from the end. */
interface Section {
  readonly lines: string[]
  readonly cut: number
}

/**
 * The task as the agent sees it, from its files: description, inventory, target columns, submission contract. It fits the
 * budget; columns are cut first, prose next, the contract last.
 * @throws RangeError when the budget cannot even hold the contract.
 */
export function overview(card: TaskCard, opts: OverviewOptions): string {
  const sections = opts.style === 'brief' ? brief(card) : full(card, opts.files ?? [])
  const text = (): string => `${sections.flatMap((s) => s.lines).join('\n')}\n`
  for (;;) {
    const now = text()
    if (opts.count(now) <= opts.budget) return now
    const victim = [...sections].filter((s) => s.lines.length > 0).sort((a, b) => b.cut - a.cut)[0]
    if (!victim || victim.cut === 0)
      throw new RangeError(`a budget of ${opts.budget} tokens cannot hold the submission contract of ${card.id}`)
    victim.lines.pop()
  }
}

/** Columns worth naming in the brief text: those whose name a program of the grammar may need, then the first others. */
const NAMED_TYPES = new Set(['text', 'series', 'file', 'date'])

function brief(card: TaskCard): Section[] {
  const { submission: s, target: t } = card
  const form = card.columns.some((c) => c.type === 'series')
    ? 'series'
    : card.pixels
      ? 'pixels'
      : (card.images ?? (card.columns.some((c) => c.type === 'text') ? 'text' : 'table'))
  const count = (type: string): number => card.columns.filter((c) => c.type === type).length
  const facts = [
    `rows=${round2(card.rows.train)} test=${round2(card.rows.test)} ${card.splitRule}`,
    [
      ...(count('number') ? [`number=${round2(count('number'))}`] : []),
      ...(count('category') ? [`category=${round2(count('category'))}`] : []),
      ...(card.pixels ? [`picture=${card.pixels.height} wide=${card.pixels.width}`] : []),
    ].join(' '),
    card.columns.some((c) => c.missing)
      ? `missing=${round2(card.columns.filter((c) => c.missing).length)}`
      : 'complete',
  ].filter((l) => l !== '')
  const classes = s.classes
    ? `classes=${s.classes.length}${t.rarest === undefined ? '' : t.rarest < 0.05 ? ' rare' : t.rarest < 0.25 ? ' uneven' : ' even'}`
    : s.kind === 'prob'
      ? t.rarest !== undefined && t.rarest < 0.1
        ? 'rare'
        : t.rarest !== undefined && t.rarest < 0.3
          ? 'uneven'
          : 'even'
      : ''
  const contract = [
    `${form} ${card.modality === 'signal' && form === 'table' ? 'signal ' : ''}${s.kind} ${card.metric.name}`,
    `target "${card.targets[0]}" ${t.type}${t.positive ? ' positive' : ''}${t.skewed ? ' skewed' : ''}${classes ? ` ${classes}` : ''}`,
    ...(s.kind === 'value' && s.columns[0] !== card.targets[0]
      ? [`column "${s.columns[0]}"${card.extraTrainColumns.map((c) => ` event "${c}"`).join('')}`]
      : []),
    `id "${s.idColumn}"`,
    ...card.columns
      .filter((c) => NAMED_TYPES.has(c.type) || ((card.images ?? '') !== '' && c.type === 'category'))
      .map((c) => `"${c.name}" ${c.type}`),
  ]
  const top = card.columns.reduce((m, c) => Math.max(m, c.levels ?? 0), 0)
  const levels = top > 0 && form === 'table' ? [`levels ${top > 100 ? 'huge' : top > 20 ? 'many' : 'few'}`] : []
  return [
    { lines: contract, cut: 0 },
    { lines: [...facts, ...levels], cut: 1 },
  ]
}

/** Two significant digits: enough for a choice of model, and few tokens. */
function round2(n: number): number {
  if (n < 100) return n
  const scale = 10 ** (Math.floor(Math.log10(n)) - 1)
  return Math.round(n / scale) * scale
}

const KIND_TEXT: Record<TaskCard['submission']['kind'], string> = {
  value: 'a number',
  prob: 'the probability of class 1',
  label: 'one label',
  proba: 'a probability for each class, one column a class',
  topk: 'up to three labels, best first, separated by spaces',
  multi: 'a number in each target column',
}

function full(card: TaskCard, files: readonly { path: string; bytes: number }[]): Section[] {
  const s = card.submission
  const labels = s.classes && s.kind !== 'proba' ? [`Labels: ${s.classes.join(', ')}`] : []
  return [
    { lines: [`# ${card.title}`, '', card.story, ''], cut: 2 },
    {
      lines: [
        '## Files',
        ...files.map((f) => `- ${f.path} (${f.bytes} bytes)`),
        `train.csv has ${card.rows.train} rows, test.csv ${card.rows.test}.`,
        '',
      ],
      cut: 3,
    },
    {
      lines: [
        '## Columns',
        ...card.columns.map(
          (c) =>
            `- ${c.name}: ${c.type}${c.levels === undefined ? '' : `, ${c.levels} levels`}${c.missing ? ', has gaps' : ''}`,
        ),
      ],
      cut: 4,
    },
    {
      lines: [
        '',
        '## Submission',
        `Target: ${card.targets.join(', ')}. Scored by ${card.metricFormula} (${card.metric.name}, ${card.metric.higherIsBetter ? 'higher' : 'lower'} is better).`,
        `Write submission.csv with the columns ${[s.idColumn, ...s.columns].join(', ')}: for every id of test.csv once, ${KIND_TEXT[s.kind]}.`,
        ...labels,
      ],
      cut: 0,
    },
  ]
}

/** Names that a program may quote, in slot order: target, id, submission column, then the columns the brief text names. */
export function slotNames(card: TaskCard): string[] {
  const names = [
    card.targets[0]!,
    card.submission.idColumn,
    card.submission.columns[0] !== card.targets[0] && card.submission.kind === 'value'
      ? card.submission.columns[0]!
      : undefined,
    ...card.columns
      .filter((c) => NAMED_TYPES.has(c.type) || ((card.images ?? '') !== '' && c.type === 'category'))
      .map((c) => c.name),
  ].filter((n): n is string => n !== undefined)
  return [...new Set(names)].slice(0, 12)
}
