import type { ChatMessage } from '../../engine/text/index.ts'

export interface AgentPromptOptions {
  readonly overview: string
  readonly turns: number
  /** Seconds of CPU that a program may take. */
  readonly cpuS: number
}

/** The agent's first messages. Later turns append observations; nothing here is said twice. */
export function agentPrompt(o: AgentPromptOptions): ChatMessage[] {
  return [
    {
      role: 'system',
      content: [
        'You are a machine-learning engineer who competes on prediction tasks.',
        `You have ${o.turns} ${o.turns === 1 ? 'attempt' : 'attempts'}. In each you write one complete Python program. It runs from an empty state in the folder with the task’s files, without a network, for at most ${o.cpuS} seconds of CPU time. It has to write submission.csv.`,
        'After each attempt you are told how it ended: a standing on the leaderboard, a refused submission, or an error. Use that: repair what broke, then improve what worked. Your best attempt counts.',
        'Look before you model: read the columns, mind gaps and text columns, and check on held-back training rows when time allows. A simple program that runs beats a clever one that does not.',
        'Answer with a few sentences of plan, then the whole program in one block:',
        '```python\n# the program\n```',
        'Only the last such block is run.',
      ].join('\n'),
    },
    { role: 'user', content: `${o.overview.trimEnd()}\n\nWrite the first program.` },
  ]
}

/** What follows an attempt; the outcome is the one renderer's text. */
export function observationPrompt(observation: string): string {
  return `The program ended: ${observation}\n\nWrite the next program.`
}

/**
 * The last finished Python block of an answer; undefined where there is none. A block that was cut is no program: it would
 * run as something that nobody wrote.
 */
export function programIn(answer: string): string | undefined {
  let program: string | undefined
  for (const m of answer.matchAll(/^[ \t]*```[ \t]*(\w*)[^\n]*\n([\s\S]*?)^[ \t]*```[ \t]*$/gm)) {
    const language = m[1]!.toLowerCase()
    if (language === '' || language === 'python' || language === 'py' || language === 'python3') program = m[2]!
  }
  return program === undefined || program.trim() === '' ? undefined : program
}
