import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'

export const RECORD_FILE = 'prepared.json'

/** What stands beside a prepared task, so that whoever comes later knows whether it is whole and still the builder's. */
export const preparedRecord = z.strictObject({
  schema: z.literal('wmrl-prepared/1'),
  builder: z.string(),
  digest: z.string(),
  versions: z.record(z.string(), z.string()),
  files: z.array(z.tuple([z.string(), z.number()])),
  /** `folderHash` of public/; records of earlier versions lack it, and their files are told by their sizes alone. */
  publicHash: z.string().optional(),
})
export type PreparedRecord = z.infer<typeof preparedRecord>

/** The first of a task's files that is not there in its recorded size (`undefined`: any), in words. */
export async function damage(
  dir: string,
  files: readonly (readonly [name: string, bytes: number | undefined])[],
): Promise<string | undefined> {
  for (const [name, bytes] of files) {
    const path = join(dir, name)
    const s = await stat(path).catch(() => undefined)
    if (!s?.isFile()) return `${path} is missing`
    if (bytes !== undefined && s.size !== bytes) return `${path} has ${s.size} bytes, ${bytes} were prepared`
  }
  return undefined
}
