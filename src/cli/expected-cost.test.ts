import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { packageRoot } from '../core/index.ts'
import { loadConfig } from './config-file.ts'
import { expectedCost } from './expected-cost.ts'

const dir = join(packageRoot(), 'examples')
describe.each(readdirSync(dir).filter((f) => f.endsWith('.yaml')))('examples/%s', (file) => {
  it('resolves, with the paper’s budgets', () => {
    const c = loadConfig({ file: join(dir, file) })
    expect(c.train).toMatchObject({ groups: 8, groupSize: 8, turns: 4, actionTokens: 4096, observationTokens: 1024 })
    expect(c.prediction).toMatchObject({ context: 12_288, maxTokens: 1024 })
    const e = expectedCost(c)
    expect(e.executions).toBe(c.train.steps * 8 * 4)
    expect(e.predictions).toBe(c.train.steps * 64 * 4)
    expect(e.sampledTokens).toBe(c.train.steps * 64 * 4 * 4096)
    expect(e.hours).toBeGreaterThan(1)
  })
})
