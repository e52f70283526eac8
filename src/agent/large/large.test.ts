import { describe, expect, it } from 'vitest'
import { agentPrompt, programIn } from './agent-prompt.ts'
import { readPrediction, worldPrompt } from './world-prompt.ts'

describe('programs in answers', () => {
  it.each([
    ['plan\n```python\nprint(1)\n```', 'print(1)\n'],
    ['```python\na\n```\nbetter:\n```py\nb\n```\ndone', 'b\n'],
    ['```\nc\n```', 'c\n'],
    ['```python\ncut', undefined],
    ['```bash\nls\n```', undefined],
    ['no block', undefined],
    ['```python\n\n```', undefined],
    ['```python\nx = """\n  not the end ``` here\n"""\n```', 'x = """\n  not the end ``` here\n"""\n'],
  ])('%j', (answer, program) => {
    expect(programIn(answer)).toBe(program)
  })
})

describe('prompts', () => {
  it('say what counts, once', () => {
    const [system, user] = agentPrompt({ overview: '# Task\n', turns: 4, cpuS: 600 })
    expect(system!.content).toContain('4 attempts')
    expect(user!.content).toMatch(/^# Task\n\nWrite/)
    const world = worldPrompt({
      overview: 'O',
      program: 'print(2)',
      cpuS: 600,
      history: [{ action: { code: 'print(1)' }, observation: { text: 'error: KeyError' } }],
    })
    expect(world[1]!.content).toMatch(/error: KeyError[\s\S]*print\(1\)[\s\S]*to judge[\s\S]*print\(2\)/)
  })
})

describe('verdicts in answers', () => {
  const good = { reason: 'r {"x": 1}', outcome: 'graded', quality: 0.4, feedback: '' }
  it('reads guided and unguided answers', () => {
    const want = { outcome: 'graded', quality: 0.4, feedback: '' }
    expect(readPrediction(JSON.stringify(good))).toEqual(want)
    expect(readPrediction(`Sure.\n\`\`\`json\n${JSON.stringify(good, null, 2)}\n\`\`\``)).toEqual(want)
    expect(readPrediction(`{"no": 1} ${JSON.stringify(good)} {"later": 2}`)).toEqual(want)
  })
  it.each([
    '',
    '{',
    '{}',
    JSON.stringify({ ...good, quality: 1.2 }),
    JSON.stringify({ ...good, outcome: 'great' }),
    'quality: 0.9',
  ])('finds none in %j', (text) => {
    expect(readPrediction(text)).toBeUndefined()
  })
  it('cleans what the agent is going to read', () => {
    const p = readPrediction(JSON.stringify({ ...good, outcome: 'crashed', feedback: 'KeyError:\u001b[31m x\n' }))
    expect(p!.feedback).toBe('KeyError: [31m x')
  })
})
