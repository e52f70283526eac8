import { execFile, execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, realpathSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { inspectPython, runnerDir } from '../host.ts'

/** Neither root nor anybody's account. */
export const ORDINARY_UID = 23_456

/** One ES module of a TypeScript entry, for a process that cannot read the sources as vitest does. */
export function bundle(entry: string): string {
  const dir = mkdtempSync(join(tmpdir(), 'wmrl-test-bundle-'))
  chmodSync(dir, 0o755)
  const repo = resolve(import.meta.dirname, '../../..')
  execFileSync(
    process.execPath,
    [
      join(repo, 'node_modules/rolldown/bin/cli.mjs'),
      entry,
      '--platform',
      'node',
      '--format',
      'esm',
      '-o',
      join(dir, 'main.mjs'),
    ],
    { cwd: repo, stdio: 'ignore' },
  )
  execFileSync('cp', ['-r', dirname(runnerDir()), join(dir, 'python')])
  execFileSync('chmod', ['-R', 'go+rX', dir])
  return join(dir, 'main.mjs')
}

/** The topmost directory on the way to `path` that other users may not pass. */
function closedAncestor(path: string): string | undefined {
  const parts = path.split('/').filter(Boolean)
  return parts.map((_, i) => `/${parts.slice(0, i + 1).join('/')}`).find((p) => (statSync(p).mode & 0o001) === 0)
}

/**
 * Runs a bundled module as an ordinary user. In a private mount namespace the environment, its interpreter, Node and
 * `more` stay where they are while a closed directory above them (/root) is covered by an open one.
 */
export async function runAsOrdinaryUser(
  module: string,
  argument: unknown,
  python: string,
  more: readonly string[] = [],
): Promise<string> {
  const host = await inspectPython(python)
  const needed = [host.venv, host.base, dirname(realpathSync(process.execPath)), ...more]
  const closed = new Map<string, string[]>()
  for (const path of needed) {
    const top = closedAncestor(path)
    if (top !== undefined) closed.set(top, [...(closed.get(top) ?? []), path])
  }
  const q = (s: string): string => `'${s.replaceAll("'", `'\\''`)}'`
  const steps: string[] = ['set -e', 'stage=$(mktemp -d)', 'mount -t tmpfs tmpfs "$stage"']
  let n = 0
  for (const [top, paths] of closed) {
    const staged = paths.map((p): [string, string] => [p, `"$stage"/${n++}`])
    for (const [p, at] of staged) steps.push(`mkdir -p ${at}`, `mount --bind ${q(p)} ${at}`)
    steps.push(`mount -t tmpfs -o mode=755 tmpfs ${q(top)}`)
    for (const [p, at] of staged) steps.push(`mkdir -p ${q(p)}`, `mount --bind ${at} ${q(p)}`)
  }
  const user = `setpriv --reuid ${ORDINARY_UID} --regid ${ORDINARY_UID} --clear-groups`
  steps.push(`exec ${user} ${q(process.execPath)} ${q(module)} ${q(JSON.stringify(argument))}`)
  const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' }
  const argv = ['-m', '--propagation', 'private', 'sh', '-c', steps.join('\n')]
  const { stdout } = await promisify(execFile)('unshare', argv, { env, maxBuffer: 64 << 20, timeout: 300_000 })
  return stdout.trim().split('\n').at(-1) ?? ''
}
