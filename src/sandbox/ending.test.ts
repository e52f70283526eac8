import { describe, expect, it } from 'vitest'
import { endingOf, type Facts, type OwnReport, parseReport, type Report } from './ending.ts'

const report = (r: Partial<Report> = {}): Report => ({
  exit: 0,
  signal: undefined,
  overOutput: false,
  submission: undefined,
  issue: undefined,
  cpuS: 0,
  own: undefined,
  ...r,
})
const facts = (f: Partial<Facts> = {}): Facts => ({
  started: true,
  setupError: undefined,
  report: report(),
  killed: undefined,
  starved: false,
  oomKills: 0,
  peakBytes: 100,
  memoryLimitBytes: 100,
  processLimitHit: false,
  cpuS: 0.1,
  cpuLimitS: 4,
  guardExposed: false,
  trouble: '',
  ...f,
})
const own = (type: string, o: Partial<OwnReport> & { message?: string } = {}): OwnReport => ({
  syntax: false,
  error: { type, message: o.message ?? 'm', line: 3 },
  errno: undefined,
  memory: false,
  ...o,
})
const failed = (o: OwnReport): Report => report({ exit: 1, own: o })

describe('endingOf', () => {
  it('hands out the submission of a program that came through', () => {
    const submission = new Uint8Array([1])
    expect(endingOf(facts({ report: report({ submission }) }))).toEqual({ kind: 'finished', submission })
    expect(endingOf(facts({ report: report({ issue: 'too-large' }) }))).toEqual({
      kind: 'finished',
      submission: undefined,
      submissionIssue: 'too-large',
    })
  })

  it.each([
    ['KeyError', own('KeyError'), 'KeyError'],
    ['a full disk', own('OSError', { errno: 28 }), 'DiskLimit'],
    ['a file over the limit', own('OSError', { errno: 27 }), 'DiskLimit'],
  ])('names %s', (_, o, type) => {
    expect(endingOf(facts({ report: failed(o) }))).toMatchObject({ kind: 'crashed', error: { type, line: 3 } })
  })

  it('calls a refused fork a ProcessLimit only where the limit was hit', () => {
    const refused = failed(own('BlockingIOError', { errno: 11 }))
    expect(endingOf(facts({ report: refused, processLimitHit: true }))).toMatchObject({
      error: { type: 'ProcessLimit' },
    })
    expect(endingOf(facts({ report: refused }))).toMatchObject({ error: { type: 'BlockingIOError' } })
    const threads = failed(own('RuntimeError', { message: "can't start new thread" }))
    expect(endingOf(facts({ report: threads, processLimitHit: true }))).toMatchObject({
      error: { type: 'ProcessLimit' },
    })
  })

  it('keeps a syntax error apart from one raised while running, and apart from memory', () => {
    expect(endingOf(facts({ report: failed(own('SyntaxError', { syntax: true })) })).kind).toBe('syntax-error')
    expect(endingOf(facts({ report: failed(own('SyntaxError')) })).kind).toBe('crashed')
    expect(endingOf(facts({ report: failed(own('MemoryError', { syntax: true, memory: true })) })).kind).toBe(
      'syntax-error',
    )
    expect(endingOf(facts({ report: failed(own('MemoryError', { memory: true })) })).kind).toBe('out-of-memory')
  })

  it('believes the kernel before the program', () => {
    expect(endingOf(facts({ oomKills: 1, report: report({ signal: 9, exit: undefined }) })).kind).toBe('out-of-memory')
    expect(endingOf(facts({ cpuS: 4.2, report: failed(own('KeyError')) }))).toMatchObject({
      kind: 'timed-out',
      limit: 'cpu',
    })
    expect(endingOf(facts({ report: report({ overOutput: true, signal: 9 }) }))).toMatchObject({
      error: { type: 'OutputLimit' },
    })
  })

  it('says whether a submission lay there when the time was up', () => {
    const r = report({ signal: 9, submission: new Uint8Array() })
    expect(endingOf(facts({ killed: 'wall', report: r }))).toEqual({
      kind: 'timed-out',
      limit: 'wall',
      submissionPresent: true,
    })
    expect(endingOf(facts({ killed: 'cpu', report: undefined }))).toMatchObject({ submissionPresent: false })
  })

  it('is infra only by the trusted side: no start, starvation, no report', () => {
    expect(endingOf(facts({ started: false, setupError: 'no mount' }))).toEqual({ kind: 'infra', detail: 'no mount' })
    expect(endingOf(facts({ killed: 'wall', starved: true })).kind).toBe('infra')
    expect(endingOf(facts({ killed: 'cpu', starved: true })).kind).toBe('timed-out')
    expect(endingOf(facts({ report: undefined, trouble: 'x\nlast words' }))).toMatchObject({
      kind: 'infra',
      detail: expect.stringContaining('last words'),
    })
    expect(endingOf(facts({ report: undefined, guardExposed: true })).kind).toBe('crashed')
    for (const exit of [70, 71, 72, 73, 74, 90, 97]) {
      expect(endingOf(facts({ report: report({ exit }) }))).toMatchObject({ kind: 'crashed', error: { type: 'Exit' } })
    }
  })

  it('is infra when the whole machine ran out of memory', () => {
    const end = endingOf(facts({ oomKills: 1, killed: 'memory', peakBytes: 50 }))
    expect(end).toMatchObject({ kind: 'infra', detail: expect.stringContaining('the machine') })
  })

  it('names signals', () => {
    const by = (signal: number) => endingOf(facts({ report: report({ exit: undefined, signal }) }))
    expect(by(11)).toMatchObject({ error: { type: 'Signal', message: 'SIGSEGV' } })
    expect(by(24)).toMatchObject({ kind: 'timed-out', limit: 'cpu' })
    expect(by(25)).toMatchObject({ error: { type: 'DiskLimit' } })
  })
})

describe('parseReport', () => {
  const payload = (head: unknown, submission = ''): Buffer => {
    const text = Buffer.from(JSON.stringify(head))
    const size = Buffer.alloc(4)
    size.writeUInt32LE(text.length)
    return Buffer.concat([size, text, Buffer.from(submission)])
  }

  it('reads the head and the submission', () => {
    const r = parseReport(
      payload({ exit: 0, signal: null, overOutput: false, issue: null, submission: 3, own: null }, 'a,b'),
    )
    expect(Buffer.from(r.submission ?? []).toString()).toBe('a,b')
    expect(r.exit).toBe(0)
  })

  it.each([[1], ['x'], [{}], [{ error: 1 }], [{ error: { type: 5, message: [], line: -1 } }]])(
    'survives a forged report of its own: %j',
    (forged) => {
      const r = parseReport(payload({ exit: 1, submission: null, own: forged }))
      expect(r.own === undefined || r.own.error.type === 'Exception').toBe(true)
    },
  )
})
