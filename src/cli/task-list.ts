import { type BuiltSuite, catalogue, loadTask, type Task } from '../tasks/index.ts'
import { suiteOfId } from './one-program.ts'
import { dataDir } from './paths.ts'

/** Loads the named tasks, or the whole suite; what is not prepared is the error that names the fix. */
export async function load(suite: BuiltSuite, ids: readonly string[]): Promise<Task[]> {
  const names = ids.length > 0 ? ids : catalogue(suite).map((e) => e.id)
  return Promise.all(names.map((id) => loadTask(dataDir(), ids.length > 0 ? suiteOfId(id) : suite, id)))
}

/** Columns padded to their widest cell. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const width = rows[0]!.map((_, c) => Math.max(...rows.map((r) => r[c]!.length)))
  return rows
    .map((r) =>
      r
        .map((cell, c) => cell.padEnd(width[c]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
