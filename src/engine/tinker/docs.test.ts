import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, it, vi } from 'vitest'
import { packageRoot } from '../../core/index.ts'
import * as tinker from './index.ts'
import { serve } from './testing/serve.ts'
import { fastClock, StubServer } from './testing/stub-server.ts'

afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
})

const text = readFileSync(join(packageRoot(), 'docs', 'tinker.md'), 'utf8')
const programs = [...text.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map((m) => m[1]!)
const AsyncFunction = (async () => undefined).constructor as new (...a: string[]) => (t: typeof tinker) => Promise<void>

it.each(programs.map((p, i) => [i + 1, p] as const))('program %i of docs/tinker.md runs', async (_, program) => {
  const stub = new StubServer({ clock: fastClock, context: 2048 })
  await using server = await serve(stub)
  vi.stubEnv('TINKER_URL', server.url)
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined)
  const body = program.replace(/import (\{[^}]*\}) from 'wmrl\/tinker'/, 'const $1 = tinker')
  expect(body).not.toBe(program)
  await new AsyncFunction('tinker', body)(tinker)
  expect(log).toHaveBeenCalled()
  expect(stub.models.size).toBe(0)
})

it('there are programs', () => {
  expect(programs.length).toBe(3)
})
