import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Digest of every file of a folder, names included, in sorted order. */
export async function folderHash(dir: string): Promise<string> {
  const h = createHash('sha256')
  const visit = async (path: string, name: string): Promise<void> => {
    const entries = await readdir(path, { withFileTypes: true })
    for (const e of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const inner = join(path, e.name)
      const label = `${name}/${e.name}`
      if (e.isDirectory()) await visit(inner, label)
      else {
        const bytes = await readFile(inner)
        h.update(`${label}:${bytes.length}:`)
        h.update(bytes)
      }
    }
  }
  await visit(dir, '')
  return h.digest('hex')
}
