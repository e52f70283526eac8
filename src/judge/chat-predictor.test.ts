import { expect, it } from 'vitest'
import { type Attempt, attemptId } from '../core/index.ts'
import type { Completion, CompletionRequest } from '../engine/text/index.ts'
import { ChatPredictor, type ChatPredictorOptions } from './chat-predictor.ts'
import { PredictedJudge } from './predicted.ts'

const signal = new AbortController().signal
const attempt = (code: string | undefined, id = 'a'): Attempt => ({
  id: attemptId(id),
  task: { suite: 'builtin', id: 't', modality: 'tabular', split: 'train' },
  action: { code },
  history: [],
  scope: 'feedback',
})
function predictor(
  answer: (r: CompletionRequest, n: number) => string | undefined,
  o: Partial<ChatPredictorOptions> = {},
) {
  let n = 0
  return new ChatPredictor({
    completer: {
      async complete(r): Promise<Completion> {
        return { text: answer(r, n++), promptTokens: 10, completionTokens: 5 }
      },
    },
    messages: async (a) => [{ role: 'user', content: a.action.code }],
    read: (t) =>
      t.startsWith('q')
        ? { outcome: 'graded', quality: Number(t.slice(1)), feedback: '' }
        : t === 'crash'
          ? { outcome: 'crashed', quality: 0, feedback: 'KeyError' }
          : undefined,
    checkSyntax: async (code) => (code === 'bad(' ? { type: 'SyntaxError', message: 'eof' } : undefined),
    maxTokens: 20,
    draws: 1,
    seed: 3,
    ...o,
  })
}
const judge = (p: ChatPredictor) =>
  new PredictedJudge({ predictor: p, model: 'w' as never, score: 'expected', draws: 1, seed: 1 })

it('draws become the belief, tokens the cost', async () => {
  const p = predictor((_, n) => (n === 0 ? 'q0.4' : n === 1 ? 'crash' : 'nonsense'), { draws: 3 })
  const v = await judge(p).judge([attempt('x')], signal)[0]!
  expect(v).toMatchObject({ source: 'predicted', cost: { predictedTokens: 45 } })
  expect((v as { score: number }).score).toBeCloseTo((0.7 + 0.1) / 2)
  expect(p.counts).toEqual({ asked: 3, unreadable: 1, failed: 0 })
})

it('knows without asking what needs no asking', async () => {
  const p = predictor(() => 'q1')
  const [none, bad] = await Promise.all(p.predict([attempt(undefined), attempt('bad(')], signal))
  expect(none).toMatchObject({ belief: { alternatives: [{ kind: 'malformed', p: 1 }] } })
  expect(bad).toMatchObject({ belief: { alternatives: [{ kind: 'syntax-error', detail: 'SyntaxError: eof' }] } })
  expect(p.counts.asked).toBe(0)
})

it('what cannot be read is asked once more with another seed, then unscorable', async () => {
  const seeds: number[] = []
  const p = predictor((r) => {
    seeds.push(r.seed)
    return 'hm'
  })
  const v = await judge(p).judge([attempt('x')], signal)[0]!
  expect(v).toMatchObject({ unscorable: { cause: 'prediction' } })
  expect(new Set(seeds).size).toBe(2)
})
