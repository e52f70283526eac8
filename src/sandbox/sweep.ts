import { execFileSync } from 'node:child_process'
import { lstatSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type CgroupHost, killCgroup, removeCgroups } from './cgroups.ts'
import { parseOwner } from './host.ts'
import { environmentOf, pidNamespace, processIds, startTime } from './proc.ts'

/** Things of another pid namespace cannot be told dead by their pid; after this age they are. */
const FOREIGN_AGE_MS = 24 * 3600 * 1000

/** Node's own rm stumbles over names that are no UTF-8 and over very deep trees. */
export function removeTree(dir: string): void {
  execFileSync('rm', ['-rf', '--', dir], { stdio: 'ignore' })
}

/** Removes what supervisors that are dead left: processes, cgroups, directories, registry files. Returns their names. */
export async function sweep(stateDir: string, cgroups: CgroupHost | undefined): Promise<string[]> {
  const swept: string[] = []
  const registry = join(stateDir, 'sandboxes')
  const temps = new Set([tmpdir()])
  for (const name of entries(registry)) {
    if (!isDead(registry, name)) continue
    const temp = recordedTemp(join(registry, name))
    if (temp !== undefined) temps.add(temp)
  }
  for (const pid of processIds()) {
    const tag = /(?:^|\0)WMRL_SANDBOX=([^\0]*)/.exec(environmentOf(pid))?.[1]
    const owner = tag === undefined ? undefined : parseOwner(tag)
    if (!owner || owner.namespace !== pidNamespace() || startTime(owner.pid) === owner.start) continue
    try {
      process.kill(pid, 'SIGKILL')
      swept.push(`process ${pid}`)
    } catch {
      // another user's, or gone
    }
  }
  const bases = cgroups ? new Set([...Object.values(cgroups.v1), ...(cgroups.v2 ? [cgroups.v2] : [])]) : []
  for (const base of bases) {
    for (const name of entries(base)) {
      if (!isDead(base, name)) continue
      killCgroup(join(base, name))
      await removeCgroups([join(base, name)], 10_000)
      swept.push(join(base, name))
    }
  }
  for (const temp of temps) {
    for (const name of entries(temp)) {
      if (!isDead(temp, name)) continue
      removeTree(join(temp, name))
      swept.push(join(temp, name))
    }
  }
  for (const name of entries(registry)) if (isDead(registry, name)) rmSync(join(registry, name), { force: true })
  return swept
}

/** Ours by name and by user, and its owner no longer lives. */
function isDead(dir: string, name: string): boolean {
  const owner = parseOwner(name)
  if (!owner) return false
  let st: ReturnType<typeof lstatSync>
  try {
    st = lstatSync(join(dir, name))
  } catch {
    return false
  }
  if (st.uid !== process.getuid?.()) return false
  if (owner.namespace !== pidNamespace()) return Date.now() - st.ctimeMs > FOREIGN_AGE_MS
  return startTime(owner.pid) !== owner.start
}

function entries(dir: string): string[] {
  try {
    return readdirSync(dir)
  } catch {
    return []
  }
}

function recordedTemp(file: string): string | undefined {
  try {
    const { tmp } = JSON.parse(readFileSync(file, 'utf8')) as { tmp?: unknown }
    return typeof tmp === 'string' ? tmp : undefined
  } catch {
    return undefined
  }
}
