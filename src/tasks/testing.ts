import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../core/index.ts'

/** Python of the solutions' environment for tests; undefined before set-up, where such tests are skipped. */
export function testPython(): string | undefined {
  const path =
    process.env.WMRL_PYTHON ?? join(process.env.WMRL_HOME ?? join(packageRoot(), '.wmrl'), 'venv', 'bin', 'python')
  return existsSync(path) ? path : undefined
}

/** Artefacts that tests fetch are kept with the others. */
export const testArtefacts = (): string => join(process.env.WMRL_HOME ?? join(packageRoot(), '.wmrl'), 'artefacts')
