import type { TaskRef } from '../../core/index.ts'
import type { ChatDialogue } from '../../engine/text/index.ts'
import type { AgentFormat } from '../format.ts'
import { agentPrompt, observationPrompt, programIn } from './agent-prompt.ts'

export interface LargeFormatOptions {
  readonly dialogue: ChatDialogue
  /** The full overview of a task, within a budget of tokens. */
  overview(task: TaskRef): Promise<string>
  readonly turns: number
  readonly cpuS: number
  readonly actionTokens: number
  readonly observationTokens: number
}

/** A language model's turns: a dialogue in the model's own template, programs in fenced blocks. */
export function largeFormat(o: LargeFormatOptions): AgentFormat {
  const { dialogue } = o
  return {
    stop: dialogue.stop,
    maxActionTokens: o.actionTokens,
    maxObservationTokens: o.observationTokens,
    async prompt(task) {
      const overview = await o.overview(task)
      return dialogue.prompt(agentPrompt({ overview, turns: o.turns, cpuS: o.cpuS }))
    },
    async parse(_task, tokens) {
      // A finished block counts although the words after it were cut.
      const { answer } = dialogue.read(tokens)
      return { code: answer === undefined ? undefined : programIn(answer) }
    },
    async observe(_task, observation, last) {
      return dialogue.observe(last, observationPrompt(observation.text), o.observationTokens)
    },
  }
}
