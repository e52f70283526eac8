import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

/** Python of the solutions' environment, for tests. @throws with what to do: a test without it must not pass silently */
export function testPython(): string {
  const python = process.env.WMRL_PYTHON ?? join(resolve(import.meta.dirname, '../../..'), '.wmrl/venv/bin/python')
  if (!existsSync(python)) {
    throw new Error(
      `no Python at ${python}: run \`npm run setup\`, or set WMRL_PYTHON to the solutions' <venv>/bin/python`,
    )
  }
  return python
}

export const isRoot = process.getuid?.() === 0
