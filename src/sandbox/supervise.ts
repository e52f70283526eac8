import type { Duplex } from 'node:stream'
import type { Limits, RunCost, RunEnd } from './contract.ts'
import { endingOf, type Killed, parseReport, type Report } from './ending.ts'
import { FrameReader, frame } from './frames.ts'
import { type Job, wallLimit } from './job.ts'
import type { Meter } from './meter.ts'
import { Starvation } from './starvation.ts'

export interface Supervised {
  readonly end: RunEnd
  /** Of the report's own word; for the syntax check. */
  readonly report: Report | undefined
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  readonly cost: RunCost
}

export interface Supervision {
  /** Control socket of the guard. */
  readonly channel: Duplex
  readonly job: Job
  readonly limits: Limits
  readonly meter: Meter
  /** Last words of the launcher or the fork server. */
  readonly trouble: () => string
  /** Polled size of a scratch directory that no file system limits, in bytes. */
  readonly diskBytes?: () => number
  readonly guardExposed: boolean
  /** Without cgroups nobody counts refused forks: the exception alone says it. */
  readonly soft: boolean
}

const POLL_MS = 50
/** Every how many polls tasks are sampled and polled limits are held against use. */
const SLOW_POLLS = 4
const SETUP_CEILING_MS = 60_000
/** From asking the guard to end the program until we kill everything, guard included. */
const GRACE_MS = 3_000

/**
 * Follows one program from the job's delivery to the last process's end. When it returns nothing of the run is left.
 * @throws the signal's reason after the clean-up, and whatever the clean-up itself could not do
 */
export async function supervise(s: Supervision, signal: AbortSignal): Promise<Supervised> {
  const { channel, meter, limits } = s
  const out: Buffer[] = []
  const err: Buffer[] = []
  const starvation = new Starvation(limits.cpus)
  const reader = new FrameReader(limits.submissionBytes + (1 << 20))
  let report: Report | undefined
  let setupError: string | undefined
  let startedAt: number | undefined
  let endedAt: number | undefined
  let killed: Killed | undefined
  let protocol = ''

  let over = (): void => {}
  const done = new Promise<void>((resolve) => {
    over = resolve
  })
  let grace: NodeJS.Timeout | undefined
  const endProgram = (why: Killed): void => {
    if (killed !== undefined || report !== undefined) return
    killed = why
    channel.write(frame('K'))
    grace = setTimeout(() => {
      meter.kill()
      over()
    }, GRACE_MS)
  }

  channel.on('data', (chunk: Buffer) => {
    try {
      for (const f of reader.push(chunk)) {
        if (f.kind === 'S') {
          startedAt = performance.now()
          starvation.sample(meter.tasks())
        } else if (f.kind === 'O') out.push(f.payload)
        else if (f.kind === 'E') err.push(f.payload)
        else if (f.kind === 'X') setupError = f.payload.toString('utf8').slice(0, 500)
        else if (f.kind === 'R') {
          report = parseReport(f.payload)
          endedAt = performance.now()
        }
      }
    } catch (e) {
      protocol = `the guard broke its protocol: ${(e as Error).message}`
      over()
    }
    if (report !== undefined || setupError !== undefined) over()
  })
  channel.resume() // the fork server's socket was paused after its first line
  channel.on('error', () => over())
  channel.on('close', () => over())
  const abort = (): void => {
    meter.kill()
    over()
  }
  if (signal.aborted) abort()
  else signal.addEventListener('abort', abort, { once: true })

  const setup = setTimeout(() => {
    if (startedAt === undefined) {
      setupError = 'the jail was not ready within 60 s'
      meter.kill()
      over()
    }
  }, SETUP_CEILING_MS)
  let polls = 0
  let stopped = false
  let pollTimer: NodeJS.Timeout | undefined
  const check = (): void => {
    polls += 1
    const usage = meter.usage()
    if (usage.cpuS >= limits.cpuS && startedAt !== undefined) endProgram('cpu')
    if (usage.oomKills > 0) endProgram('memory')
    if (usage.polled && usage.polled.bytes > limits.memoryMb * (1 << 20)) endProgram('memory')
    if (startedAt !== undefined && performance.now() - startedAt > 1000 * wallLimit(limits)) {
      starvation.sample(meter.tasks())
      endProgram('wall')
    }
    if (polls % SLOW_POLLS === 0 && startedAt !== undefined) {
      starvation.sample(meter.tasks())
      if (usage.polled && usage.polled.processes > limits.processes + 8) endProgram('processes')
      if (s.diskBytes && s.diskBytes() > s.job.diskBytes) endProgram('disk')
    }
  }
  const poll = (): void => {
    try {
      check()
    } finally {
      if (!stopped) pollTimer = setTimeout(poll, POLL_MS)
    }
  }
  poll()
  channel.write(frame('J', Buffer.from(JSON.stringify(s.job), 'utf8')))

  await done
  stopped = true
  endedAt ??= performance.now()
  clearTimeout(setup)
  clearTimeout(grace)
  clearTimeout(pollTimer)
  signal.removeEventListener('abort', abort)
  const last = meter.usage()
  meter.kill()
  channel.destroy()
  await meter.close()
  signal.throwIfAborted()

  const cpuS = s.soft ? Math.max(last.cpuS, report?.cpuS ?? 0) : last.cpuS
  const wallS = startedAt === undefined ? 0 : (endedAt - startedAt) / 1000
  const end = endingOf({
    started: startedAt !== undefined,
    setupError,
    report,
    killed,
    starved: starvation.starved(Math.min(wallS, wallLimit(limits)), last.throttledS),
    oomKills: last.oomKills,
    peakBytes: last.peakBytes,
    memoryLimitBytes: limits.memoryMb * (1 << 20),
    processLimitHit: s.soft || last.processLimitHits > 0,
    cpuS,
    cpuLimitS: limits.cpuS,
    guardExposed: s.guardExposed,
    trouble: protocol || s.trouble(),
  })
  return {
    end,
    report,
    stdout: Buffer.concat(out),
    stderr: Buffer.concat(err),
    cost: { wallS, cpuS, peakBytes: last.peakBytes },
  }
}
