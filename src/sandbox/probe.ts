import { spawnSync } from 'node:child_process'
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { type CgroupHost, discoverCgroups, tryCgroups } from './cgroups.ts'
import type { Rung } from './contract.ts'
import { ownerName, runnerDir } from './host.ts'
import { isPrivileged } from './proc.ts'

export interface FeatureCheck {
  readonly name: string
  readonly status: 'ok' | 'weak' | 'missing'
  readonly detail: string
  /** What the operator can do; empty when nothing is wrong. */
  readonly fix: string
}

export interface RungReport {
  readonly checks: readonly FeatureCheck[]
  /** The best rung that works here. */
  readonly rung: Rung
  readonly contains: readonly string[]
  readonly doesNotContain: readonly string[]
}

/** What was tried, for choosing a rung. */
export interface Features {
  readonly linux: boolean
  readonly bwrap: string | undefined
  readonly namespaces: boolean
  readonly landlockAbi: number
  readonly cgroups: CgroupHost | undefined
  readonly privileged: boolean
  readonly checks: readonly FeatureCheck[]
}

const DELEGATE = 'start under `systemd-run --user --scope -p Delegate=yes`, or as root'
const FORCED_UID = 20_001

/** Tries each feature by using it; nothing is inferred from a version. */
export function tryFeatures(python: string): Features {
  const checks: FeatureCheck[] = []
  const add = (name: string, status: FeatureCheck['status'], detail: string, fix = ''): void => {
    checks.push({ name, status, detail, fix })
  }
  if (process.platform !== 'linux') {
    add(
      'platform',
      'missing',
      `${process.platform}: nothing here contains a program`,
      'use a Linux machine or container',
    )
    return {
      linux: false,
      bwrap: undefined,
      namespaces: false,
      landlockAbi: 0,
      cgroups: undefined,
      privileged: false,
      checks,
    }
  }
  const privileged = isPrivileged()
  const bwrap = findOnPath('bwrap')
  const bwrapTrouble = bwrap === undefined ? 'not found' : tryBwrap(bwrap, privileged, python)
  if (bwrapTrouble === undefined) add('bubblewrap', 'ok', bwrap ?? '')
  else {
    const fix = bwrap === undefined ? 'apt-get install bubblewrap' : 'allow user namespaces (see the next line)'
    add('bubblewrap', 'weak', `${bwrapTrouble}; our own namespaces are used where they work`, fix)
  }
  const nsTrouble = tryNamespaces(python, privileged)
  if (nsTrouble === undefined) add('namespaces', 'ok', privileged ? 'as root' : 'in a user namespace')
  else {
    add(
      'namespaces',
      'missing',
      nsTrouble,
      'sysctl kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0, or the container option --security-opt seccomp=unconfined',
    )
  }
  const abi = landlockAbi(python)
  if (abi >= 6) add('landlock', 'ok', `ABI ${abi}`)
  else if (abi >= 1)
    add('landlock', 'weak', `ABI ${abi}: programs could signal processes of the same user`, 'Linux 6.12')
  else add('landlock', 'missing', 'not in this kernel', 'Linux 5.13, better 6.12')
  const host = discoverCgroups()
  const cgTrouble = tryCgroups(host, `${ownerName()}-probe`)
  const version = host.v1.memory === undefined ? 'v2' : 'v1'
  if (cgTrouble === undefined) add('cgroups', 'ok', `memory, pids, cpu (${version})`)
  else add('cgroups', 'weak', `${cgTrouble}: memory is polled and the CPU share is not capped`, DELEGATE)
  return {
    linux: true,
    bwrap: bwrapTrouble === undefined ? bwrap : undefined,
    namespaces: nsTrouble === undefined,
    landlockAbi: abi,
    cgroups: cgTrouble === undefined ? host : undefined,
    privileged,
    checks,
  }
}

/** The rungs that work with these features, best first; E always "works". */
export function workingRungs(f: Features): Rung[] {
  const rungs: Rung[] = []
  if (f.bwrap && f.cgroups) rungs.push('A')
  if (f.namespaces && f.cgroups) rungs.push('A-')
  if (f.bwrap) rungs.push('B')
  if (f.namespaces) rungs.push('C')
  if (f.landlockAbi >= 6) rungs.push('D')
  if (f.landlockAbi >= 1) rungs.push('D-')
  rungs.push('E')
  return rungs
}

/** For `wmrl doctor`: what was tried, the rung that follows, what it contains and what it does not. */
export function probeRungs(opts: { readonly python: string }): RungReport {
  const features = tryFeatures(opts.python)
  const rung = workingRungs(features)[0] ?? 'E'
  return { checks: features.checks, rung, ...promises(rung) }
}

const ALL = [
  'files: answers, other programs, the host',
  'network',
  'processes: signals, memory, environment of others',
  'what is left after the end: processes, files, shared memory',
  'output, submission and disk size',
  'CPU seconds and wall time',
]
const HARD = ['memory of the whole tree', 'CPU share', 'number of processes']
const ALWAYS = ['side channels', 'bugs of the kernel']

/** In words: what a rung contains and what it does not. */
export function promises(rung: Rung): { contains: string[]; doesNotContain: string[] } {
  switch (rung) {
    case 'A':
    case 'A-':
      return { contains: [...ALL, ...HARD], doesNotContain: ALWAYS }
    case 'B':
    case 'C':
      return {
        contains: [...ALL, 'number of processes'],
        doesNotContain: ['total memory between two polls', 'CPU share', ...ALWAYS],
      }
    case 'D':
      return {
        contains: [...ALL.filter((x) => !x.startsWith('output')), 'output and submission size'],
        doesNotContain: [
          'total memory, disk and inodes between two polls',
          'CPU share',
          'changes of file metadata (they are answered, not done)',
          ...ALWAYS,
        ],
      }
    case 'D-':
      return {
        contains: ['files', 'network sockets', 'output and submission size', 'CPU seconds and wall time'],
        doesNotContain: [
          'signals to processes of the same user: a program can end yours',
          'total memory, disk and inodes between two polls',
          'CPU share',
          ...ALWAYS,
        ],
      }
    case 'E':
      return {
        contains: ['CPU seconds and wall time', 'output and submission size'],
        doesNotContain: ['everything else: a program can do what you can do'],
      }
  }
}

function findOnPath(name: string): string | undefined {
  for (const dir of [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/bin']) {
    if (dir === '') continue
    try {
      accessSync(join(dir, name), constants.X_OK)
      return join(dir, name)
    } catch {
      // next
    }
  }
  return undefined
}

/** Runs Python on the runner's own modules; the last line of stderr is the trouble. */
function tryPython(python: string, code: string): { stdout: string; trouble: string | undefined } {
  const full = `import os, sys\nsys.path.insert(0, sys.argv[1])\nimport jail, linux\n${code}`
  const r = spawnSync(python, ['-I', '-S', '-B', '-c', full, runnerDir()], { timeout: 20_000, encoding: 'utf8' })
  if (r.status === 0) return { stdout: r.stdout, trouble: undefined }
  return { stdout: '', trouble: r.error?.message ?? r.stderr.trim().split('\n').at(-1) ?? `exit ${r.status}` }
}

function tryBwrap(bwrap: string, privileged: boolean, python: string): string | undefined {
  const argv = [bwrap, '--unshare-all', '--unshare-user', '--disable-userns', '--as-pid-1', '--die-with-parent']
  argv.push('--ro-bind', '/', '/', '--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '/usr/bin/true')
  const drop = privileged ? `linux.set_ids(${FORCED_UID})\n` : ''
  return tryPython(python, `${drop}os.execv(${JSON.stringify(bwrap)}, ${JSON.stringify(argv)})`).trouble
}

function tryNamespaces(python: string, privileged: boolean): string | undefined {
  const at = mkdtempSync(join(tmpdir(), `${ownerName()}-probe-`))
  try {
    const root = process.getuid?.() === 0
    const drop = root && !privileged ? `linux.set_ids(${FORCED_UID})\n` : ''
    const flag = privileged ? 'True' : 'False'
    const code = `${drop}jail.separate_mounts(${flag})
jail.build_root([('/usr', '/usr')], ${JSON.stringify(at)}, [])
linux.unshare(linux.CLONE_NEWPID)
pid = os.fork()
if pid == 0:
    try:
        jail.enter({'publicDir': '/usr/share', 'diskBytes': 4096, 'shmBytes': 4096}, nested_user=not ${flag})
        os._exit(0 if os.getpid() == 1 and not os.path.exists('/home') else 3)
    except BaseException as e:
        print(e, file=sys.stderr, flush=True)
        os._exit(4)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`
    return tryPython(python, code).trouble
  } finally {
    rmSync(at, { recursive: true, force: true })
  }
}

function landlockAbi(python: string): number {
  return Number(tryPython(python, 'print(linux.landlock_abi())').stdout) || 0
}
