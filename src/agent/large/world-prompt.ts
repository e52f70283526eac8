import { z } from 'zod'
import { type Attempt, cleanDetail, type OutcomeKind } from '../../core/index.ts'
import type { ChatMessage } from '../../engine/text/index.ts'

/** Ends that a world model is asked to tell apart; no program and syntax errors are known without it. */
const ENDS = [
  'graded',
  'invalid-submission',
  'crashed',
  'timed-out',
  'out-of-memory',
] as const satisfies readonly OutcomeKind[]

const prediction = z.object({
  reason: z.string(),
  outcome: z.enum(ENDS),
  /** Share of the leaderboard that is worse; read for `graded` alone. */
  quality: z.number(),
  feedback: z.string(),
})
export interface Prediction {
  readonly outcome: (typeof ENDS)[number]
  readonly quality: number
  readonly feedback: string
}

/** The answer's JSON schema. The reason comes first: what is written first is thought before the verdict. */
export const WORLD_SCHEMA = {
  name: 'verdict',
  schema: {
    type: 'object',
    additionalProperties: false,
    required: ['reason', 'outcome', 'quality', 'feedback'],
    properties: {
      reason: { type: 'string', maxLength: 1500 },
      outcome: { type: 'string', enum: [...ENDS] },
      quality: { type: 'number', minimum: 0, maximum: 1 },
      feedback: { type: 'string', maxLength: 400 },
    },
  },
} as const

export interface WorldPromptOptions {
  readonly overview: string
  readonly program: string
  /** Earlier programs of the same trajectory with what was seen, newest last. */
  readonly history: Attempt['history']
  readonly cpuS: number
}

/** What a frozen backbone is asked about a program that is not going to be run. */
export function worldPrompt(o: WorldPromptOptions): ChatMessage[] {
  const earlier = o.history.filter((h) => h.action.code !== undefined)
  const last = earlier[earlier.length - 1]
  return [
    {
      role: 'system',
      content: [
        'You foresee how Python programs for prediction tasks end, without running them.',
        `The program runs alone in the folder with the task’s files, without a network, for at most ${o.cpuS} seconds of CPU time, with common scientific libraries.`,
        'Read what the code does, not what its comments claim: a printed score, a promise or a log inside the program says nothing about how it ends.',
        'Check in this order. Does it read files and columns that exist? Do types, shapes and gaps survive each step? Does it finish in time and memory? Does it write submission.csv with the right columns, ids and number of rows? If all holds, how good is the approach for this metric, against people who tried seriously?',
        'Answer with one JSON object and nothing else:',
        '{"reason": short analysis, "outcome": one of ' +
          `${ENDS.map((e) => `"${e}"`).join(', ')}, "quality": share of the leaderboard that is worse (0 to 1; 0 unless the outcome is "graded"), "feedback": for a failure, the last line that Python or the grader would print, else ""}`,
      ].join('\n'),
    },
    {
      role: 'user',
      content: [
        o.overview.trimEnd(),
        ...(last
          ? [
              '',
              `The program before this one ended: ${last.observation.text}`,
              '```python',
              last.action.code!.trimEnd(),
              '```',
            ]
          : []),
        '',
        'The program to judge:',
        '```python',
        o.program.trimEnd(),
        '```',
      ].join('\n'),
    },
  ]
}

/** Reads an answer, guided or not: the last JSON object in it. Undefined where it holds no verdict; the caller counts those. */
export function readPrediction(text: string): Prediction | undefined {
  for (const candidate of objects(text)) {
    let json: unknown
    try {
      json = JSON.parse(candidate)
    } catch {
      continue
    }
    const p = prediction.safeParse(json).data
    // A quality beyond the scale is no verdict; to clip it would invent one.
    if (!p || !(p.quality >= 0 && p.quality <= 1)) continue
    return { outcome: p.outcome, quality: p.quality, feedback: cleanDetail(p.feedback) }
  }
  return undefined
}

/** Substrings that look like whole JSON objects, last first. */
function objects(text: string): string[] {
  const out: string[] = []
  let depth = 0
  let start = -1
  let quoted = false
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (quoted) {
      if (c === '\\') i++
      else if (c === '"') quoted = false
    } else if (c === '"' && depth > 0) quoted = true
    else if (c === '{') {
      if (depth++ === 0) start = i
    } else if (c === '}' && depth > 0 && --depth === 0) out.unshift(text.slice(start, i + 1))
  }
  return out
}
