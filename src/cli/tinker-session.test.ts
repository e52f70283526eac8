import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Attempt, attemptId, ConfigError, type TaskRef } from '../core/index.ts'
import { writeByteTokenizer } from '../engine/text/testing/byte-tokenizer.ts'
import { serve } from '../engine/tinker/testing/serve.ts'
import { fastClock, StubServer } from '../engine/tinker/testing/stub-server.ts'
import { cardOf } from '../grading/testing.ts'
import type { Task } from '../tasks/index.ts'
import { runConfig } from '../train/index.ts'
import type { Out } from './command.ts'
import { TaskPool } from './session.ts'
import { openTinker } from './tinker-session.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-session-'))
  writeByteTokenizer(dir)
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const signal = new AbortController().signal
const lines: string[] = []
const out: Out = {
  json: false,
  quiet: false,
  color: false,
  result: () => undefined,
  log: (l) => lines.push(l),
  progress: () => undefined,
}
const ref: TaskRef = { suite: 'builtin', id: 'toy', modality: 'tabular', split: 'train' }
const card = cardOf({ title: 'Toy' })
class ToyPool extends TaskPool {
  override task(): Promise<Task> {
    return Promise.resolve({ card, ref } as unknown as Task)
  }
}
const pool = new ToyPool('unused')
const attempt = (code: string): Attempt => ({
  id: attemptId(`a/${code}`),
  task: ref,
  action: { code },
  history: [{ action: { code: 'print(0)' }, observation: { text: 'error: KeyError' } }],
  scope: 'feedback',
})
const config = (url: string, more: { engine?: object; prediction?: object; train?: object } = {}) =>
  runConfig.parse({
    engine: { kind: 'tinker', url, tokenizer: dir, context: 6000, rank: 4, ...more.engine },
    train: { turns: 2, actionTokens: 300, observationTokens: 40, overviewTokens: 1500, ...more.train },
    prediction: { context: 5000, maxTokens: 40, score: 'sample', ...more.prediction },
  })
const stub = () => new StubServer({ clock: fastClock, vocab: 320, longPollMs: 2_000_000 })

it('prompts in the model’s own template and goes on where the action ended', async () => {
  await using server = await serve(stub())
  const c = config(server.url)
  await using open = await openTinker(out, c, join(dir, 'format'), signal)
  const format = open.format(pool)
  const prompt = await format.prompt(ref)
  const text = open.dialogue.directory.tokenizer.decode([...prompt], { skip_special_tokens: false })
  expect(text).toMatch(/^<\|im_start\|>system\n[\s\S]*2 attempts[\s\S]*<\|im_start\|>user\n# Toy[\s\S]*assistant\n$/)
  const action = open.dialogue.encode('plan\n```python\nprint(1)\n```')
  expect(await format.parse(ref, [...action, open.dialogue.end], true)).toEqual({ code: 'print(1)\n' })
  const next = await format.observe(ref, { text: 'timed out' }, action.at(-1))
  expect(next[0]).toBe(open.dialogue.end)
})

it('a chat endpoint as the world model, its tokens counted', async () => {
  const asked: { messages: { content: string }[] }[] = []
  const chat = createServer((q, s) => {
    let body = ''
    q.on('data', (d) => {
      body += d
    })
    q.on('end', () => {
      asked.push(JSON.parse(body) as (typeof asked)[0])
      const content = JSON.stringify({ reason: 'r', outcome: 'graded', quality: 0.25, feedback: '' })
      s.setHeader('content-type', 'application/json')
      s.end(
        JSON.stringify({ choices: [{ message: { content } }], usage: { prompt_tokens: 90, completion_tokens: 10 } }),
      )
    })
  })
  await new Promise<void>((r) => chat.listen(0, '127.0.0.1', r))
  try {
    await using server = await serve(stub())
    const url = `http://127.0.0.1:${(chat.address() as AddressInfo).port}/v1`
    const c = config(server.url, { prediction: { by: 'chat', url, model: 'm' } })
    {
      await using open = await openTinker(out, c, join(dir, 'chat'), signal)
      const p = open.predictor(c, pool, async () => undefined)
      const r = await p.predict([attempt('print(2)')], signal)[0]!
      expect(r).toEqual({
        belief: { alternatives: [{ kind: 'graded', p: 1, percentile: 0.25 }], shown: 0 },
        tokens: 100,
      })
      const [long] = await Promise.all(p.predict([attempt(`x = "${'a'.repeat(6000)}"`)], signal))
      expect(long).toMatchObject({ cause: 'prediction', detail: expect.stringContaining('prediction.context') })
    }
    expect(asked[0]!.messages[1]!.content).toMatch(/# Toy[\s\S]*KeyError[\s\S]*print\(0\)[\s\S]*print\(2\)/)
    expect(lines.join('\n')).toContain('world model: 1 answers asked for, 0 without a verdict')
  } finally {
    chat.close()
  }
})

it('the frozen backbone as the world model: what it cannot say is unscorable, and counted', async () => {
  await using server = await serve(stub())
  const c = config(server.url)
  await using open = await openTinker(out, c, join(dir, 'frozen'), signal)
  const r = await open.predictor(c, pool, async () => undefined).predict([attempt('print(2)')], signal)[0]!
  expect(r).toMatchObject({ cause: 'prediction', detail: expect.stringContaining('without a verdict') })
})

it('refuses what is missing by its key, before anything is sent', async () => {
  const missing = (engine: object): Promise<unknown> =>
    openTinker(out, config('http://127.0.0.1:9', { engine }), join(dir, 'x'), signal).catch((e: unknown) => e)
  const none = (await missing({ tokenizer: join(dir, 'nowhere') })) as ConfigError
  expect(none).toBeInstanceOf(ConfigError)
  expect(none.path).toBe('engine.tokenizer')
})

it('refuses to go on with another chat template', async () => {
  const server = stub()
  await using s = await serve(server)
  const state = join(dir, 'same')
  await (await openTinker(out, config(s.url), state, signal))[Symbol.asyncDispose]()
  const other = mkdtempSync(join(tmpdir(), 'wmrl-other-'))
  writeByteTokenizer(other)
  writeFileSync(
    join(other, 'chat_template.jinja'),
    '{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}[assistant]',
  )
  const e = (await openTinker(out, config(s.url, { engine: { tokenizer: other } }), state, signal).catch(
    (x: unknown) => x,
  )) as Error
  expect(e.message).toContain('its chat template is not the one that this run began with')
  rmSync(other, { recursive: true, force: true })
})
