import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { MissingError } from './errors.ts'

let found: string | undefined

/** Folder of this package, whether it runs from source, from `dist/` or from somebody's node_modules. */
export function packageRoot(): string {
  if (found) return found
  for (let dir = dirname(fileURLToPath(import.meta.url)); ; dir = dirname(dir)) {
    const file = join(dir, 'package.json')
    if (existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { name?: string }).name === 'wmrl') {
      found = dir
      return dir
    }
    if (dirname(dir) === dir) throw new Error('the wmrl package has lost its package.json')
  }
}

/** Path of a built entry that runs in a thread or process of its own. @throws MissingError before `npm run build`. */
export function builtEntry(name: string): string {
  const path = join(packageRoot(), 'dist', name)
  if (!existsSync(path)) throw new MissingError(`${path} is not built`, 'run: npm run build')
  return path
}
