import type { ErrorSummary } from '../core/index.ts'
import type { RunEnd } from './contract.ts'

/** The guard's report (python/runner/guard.py), parsed. */
export interface Report {
  readonly exit: number | undefined
  readonly signal: number | undefined
  readonly overOutput: boolean
  readonly submission: Uint8Array | undefined
  readonly issue: 'too-large' | 'not-regular' | undefined
  /** CPU seconds of the guard and of all that it waited for. */
  readonly cpuS: number
  /** The program's own word about its exception; it may be forged, and is worth nothing to the forger. */
  readonly own: OwnReport | undefined
}

export interface OwnReport {
  readonly syntax: boolean
  readonly error: ErrorSummary
  readonly errno: number | undefined
  readonly memory: boolean
}

/** Why we ended a program. */
export type Killed = 'cpu' | 'wall' | 'memory' | 'disk' | 'processes'

/** All that is known when a run is over. */
export interface Facts {
  /** The guard said that the program's code runs. */
  readonly started: boolean
  /** The guard's own reason for not starting. */
  readonly setupError: string | undefined
  readonly report: Report | undefined
  readonly killed: Killed | undefined
  readonly starved: boolean
  readonly oomKills: number
  /** Highest memory charged to the program, and its limit; a kill far below it was the whole machine's. */
  readonly peakBytes: number
  readonly memoryLimitBytes: number
  /** The kernel refused a process for the limit, or may have (no cgroups). */
  readonly processLimitHit: boolean
  readonly cpuS: number
  readonly cpuLimitS: number
  /** The program can end its guard (rungs D- and E): a missing report is then the program's doing. */
  readonly guardExposed: boolean
  /** What is known about trouble of ours (launcher's messages), for `infra`. */
  readonly trouble: string
}

/** A program that its own limit killed had come close to it. */
const MACHINE_WIDE_SHARE = 0.8

const ENOSPC = 28
const EFBIG = 27
const EDQUOT = 122
const EAGAIN = 11
const SIGXCPU = 24
const SIGXFSZ = 25

const SIGNAL_NAMES: Readonly<Record<number, string>> = {
  4: 'SIGILL',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  11: 'SIGSEGV',
  13: 'SIGPIPE',
  15: 'SIGTERM',
  31: 'SIGSYS',
}

/**
 * One reason for every end. What only the trusted side can see comes first; the program's own word last. `infra` is
 * decided by the trusted side alone: were it in a program's power, it would be an escape from a low reward.
 */
export function endingOf(f: Facts): RunEnd {
  if (!f.started) return { kind: 'infra', detail: f.setupError ?? detail('the jail did not start', f) }
  if (f.oomKills > 0 && f.peakBytes < MACHINE_WIDE_SHARE * f.memoryLimitBytes) {
    return { kind: 'infra', detail: 'the machine ran out of memory; the program was below its own limit' }
  }
  if (f.oomKills > 0 || f.killed === 'memory') return { kind: 'out-of-memory' }
  const submissionPresent = f.report?.submission !== undefined || f.report?.issue === 'too-large'
  const crashed = (type: string, message: string): RunEnd => ({ kind: 'crashed', error: { type, message } })
  switch (f.killed) {
    case 'cpu':
      return { kind: 'timed-out', limit: 'cpu', submissionPresent }
    case 'wall':
      if (f.starved)
        return { kind: 'infra', detail: 'the machine starved the program of CPU until its wall-clock limit' }
      return { kind: 'timed-out', limit: 'wall', submissionPresent }
    case 'disk':
      return crashed('DiskLimit', 'the scratch directory is full')
    case 'processes':
      return crashed('ProcessLimit', 'too many processes')
    case undefined:
      break
  }
  const r = f.report
  if (r === undefined && f.guardExposed) return crashed('Signal', 'the program ended without a report')
  if (r === undefined) return { kind: 'infra', detail: detail('the sandbox ended without a report', f) }
  if (r.overOutput) return crashed('OutputLimit', 'too much output')
  if (f.cpuS > f.cpuLimitS || r.signal === SIGXCPU) return { kind: 'timed-out', limit: 'cpu', submissionPresent }
  if (r.own !== undefined) return ownEnding(r.own, f.processLimitHit)
  if (r.signal === SIGXFSZ) return crashed('DiskLimit', 'a file grew over the limit')
  if (r.signal !== undefined) return crashed('Signal', SIGNAL_NAMES[r.signal] ?? `signal ${r.signal}`)
  if (r.exit !== 0) return crashed('Exit', `exit status ${r.exit}`)
  return {
    kind: 'finished',
    submission: r.submission,
    ...(r.issue === undefined ? {} : { submissionIssue: r.issue }),
  }
}

function ownEnding(own: OwnReport, processLimitHit: boolean): RunEnd {
  if (own.syntax) return { kind: 'syntax-error', error: own.error }
  if (own.memory) return { kind: 'out-of-memory' }
  const named = limitNamed(own, processLimitHit)
  return { kind: 'crashed', error: named === undefined ? own.error : { ...own.error, type: named } }
}

function limitNamed(own: OwnReport, processLimitHit: boolean): string | undefined {
  if (own.errno === ENOSPC || own.errno === EDQUOT || own.errno === EFBIG) return 'DiskLimit'
  if (!processLimitHit) return undefined
  const threads = own.error.type === 'RuntimeError' && own.error.message.includes("can't start new thread")
  return own.errno === EAGAIN || threads ? 'ProcessLimit' : undefined
}

function detail(what: string, f: Facts): string {
  const trouble = f.trouble.trim().split('\n').at(-1) ?? ''
  if (f.oomKills > 0) return `${what}: the memory limit is below what the jail itself needs`
  return trouble === '' ? what : `${what}: ${trouble.slice(0, 300)}`
}

/** Parses the payload of the guard's `R` frame. @throws on anything else: the guard is ours. */
export function parseReport(payload: Buffer): Report {
  const size = payload.readUInt32LE(0)
  const head = JSON.parse(payload.subarray(4, 4 + size).toString('utf8')) as Record<string, unknown>
  const number = (x: unknown): number | undefined => (typeof x === 'number' ? x : undefined)
  const { issue } = head
  return {
    exit: number(head.exit),
    signal: number(head.signal),
    overOutput: head.overOutput === true,
    submission: head.submission === null ? undefined : new Uint8Array(payload.subarray(4 + size)),
    issue: issue === 'too-large' || issue === 'not-regular' ? issue : undefined,
    cpuS: number(head.cpuS) ?? 0,
    own: parseOwn(head.own),
  }
}

/** Untrusted: written by the program's own process. */
function parseOwn(own: unknown): OwnReport | undefined {
  if (typeof own !== 'object' || own === null) return undefined
  const { syntax, error } = own as Record<string, unknown>
  if (typeof error !== 'object' || error === null) return undefined
  const e = error as Record<string, unknown>
  const { type, message, line, errno } = e
  return {
    syntax: syntax === true,
    error: {
      type: typeof type === 'string' && type !== '' ? type.slice(0, 100) : 'Exception',
      message: typeof message === 'string' ? message.slice(0, 2000) : '',
      ...(Number.isInteger(line) && (line as number) > 0 ? { line: line as number } : {}),
    },
    errno: typeof errno === 'number' ? errno : undefined,
    memory: e.memory === true,
  }
}
