import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Scope } from '../core/index.ts'
import type { BoardStore } from './boards.ts'
import { GraderProcess } from './grader.ts'
import { toyTask } from './testing.ts'

/** The real process: these tests need `npm run build`. */
const BOARDS: BoardStore = { scores: () => [0.1, 1, 10, 1000] }
const csv = (y: number): Uint8Array => new TextEncoder().encode(`id,y\n1,${y}\n2,${y}\n3,${y}\n4,${y}\n`)

/** Processes that this one started, by their command line. */
function children(): number[] {
  const out: number[] = []
  for (const pid of readdirSync('/proc').filter((p) => /^\d+$/.test(p))) {
    try {
      const parent = Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1])
      if (parent === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('grading/worker'))
        out.push(Number(pid))
    } catch {
      // gone meanwhile
    }
  }
  return out
}

test('grades by both scopes, each on its own', async () => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS)
  expect(await grader.grade(toy.task, csv(2), 'feedback')).toEqual({
    kind: 'scored',
    scope: 'feedback',
    score: 0.5,
    percentile: 0.75,
    n: 2,
  })
  expect(await grader.grade(toy.task, csv(2), 'final')).toMatchObject({
    kind: 'scored',
    scope: 'final',
    n: 2,
    percentile: 0.25,
  })
  expect(await grader.grade(toy.task, new Uint8Array(), 'feedback')).toMatchObject({ kind: 'invalid', code: 'empty' })
})

test('a process that was asked for feedback never holds a final answer', async () => {
  using toy = await toyTask()
  // Whatever is read for feedback, the final file is not: it is not even there.
  rmSync(toy.task.answersPath('final'))
  await using grader = new GraderProcess(BOARDS)
  expect(await grader.grade(toy.task, csv(2), 'feedback')).toMatchObject({ kind: 'scored' })
  expect(await grader.grade(toy.task, csv(2), 'final')).toMatchObject({ kind: 'fault', where: 'answers' })
})

test.runIf(process.platform === 'linux' && process.getuid?.() === 0)(
  'the process has another user, and its memory holds the feedback answers alone',
  async () => {
    using toy = await toyTask({}, { 'private/feedback.csv': 'id,y\n1,31415.926\n2,2.5\n' })
    await using grader = new GraderProcess(BOARDS)
    await grader.grade(toy.task, csv(2), 'feedback')
    const [pid] = children()
    expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:\s+65534\s+65534\s+65534\s+65534$/m)
    const found = (text: string): boolean => memoryHolds(pid!, text)
    expect(found('31415.926')).toBe(true)
    expect(found(toy.finalSecret)).toBe(false)
  },
)

/** Whether a process's writable memory holds a text. */
function memoryHolds(pid: number, text: string): boolean {
  const script = `
import re, sys
pid, needle = sys.argv[1], sys.argv[2].encode()
forms = [needle, needle.decode().encode("utf-16-le")]
with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
    for line in maps:
        m = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
        if not m: continue
        a, b = int(m[1], 16), int(m[2], 16)
        try:
            mem.seek(a)
            data = mem.read(b - a)
        except OSError:
            continue
        if any(f in data for f in forms):
            print("found"); sys.exit()
print("none")`
  return execFileSync('python3', ['-c', script, String(pid), text], { encoding: 'utf8' }).trim() === 'found'
}

test('kill -9 in the middle of a grade is a fault, and the next grade works', async () => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS)
  await grader.grade(toy.task, csv(1), 'feedback')
  const [first] = children()
  // Large enough to be in the middle of when the signal comes.
  const big = new TextEncoder().encode(`id,y\n${'1,1\n'.repeat(3_000_000)}`)
  const pending = grader.grade(toy.task, big, 'feedback')
  setTimeout(() => process.kill(first!, 'SIGKILL'), 150)
  expect(await pending).toEqual({ kind: 'fault', where: 'grader', message: 'the grader ended (SIGKILL)' })
  expect(await grader.grade(toy.task, csv(2), 'feedback')).toMatchObject({ kind: 'scored' })
  expect(children()).not.toContain(first)
})

/** Grades for as long as the process of one after another is killed, at once, later, or between two grades. */
test('kill -9 at any moment ends no run: every grade is a score or a fault, and the last one works', async () => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS)
  const thrown: unknown[] = []
  const note = (e: unknown): void => void thrown.push(e)
  process.on('uncaughtException', note)
  try {
    const big = new TextEncoder().encode(`id,y\n${'1,1\n'.repeat(300_000)}`)
    const kinds = new Set<string>()
    for (let round = 0; round < 12; round++) {
      await grader.grade(toy.task, csv(1), 'feedback')
      const [pid] = children()
      const kill = (): void => void process.kill(pid!, 'SIGKILL')
      if (round % 3 === 0) kill()
      // Sent before, while and after the channel closes: none may write to it unheard.
      const grades = [grader.grade(toy.task, big, 'feedback'), grader.grade(toy.task, csv(2), 'feedback')]
      if (round % 3 === 1) kill()
      if (round % 3 === 2) setTimeout(kill, round)
      for (let i = 0; i < 20; i++) {
        await new Promise((r) => setTimeout(r, i % 4))
        grades.push(grader.grade(toy.task, csv(2), i % 2 ? 'feedback' : 'final'))
      }
      for (const g of await Promise.all(grades)) kinds.add(g.kind)
    }
    expect([...kinds]).toEqual(expect.arrayContaining(['fault', 'scored']))
    expect(await grader.grade(toy.task, csv(2), 'feedback')).toMatchObject({ kind: 'scored' })
    expect(thrown).toEqual([])
  } finally {
    process.off('uncaughtException', note)
  }
})

test.each([
  ['a grade', 'feedback', 'no grade'],
  ['a load of answers', 'final', 'no answers loaded'],
] as const)('%s that takes too long is a fault, and the process is replaced', async (_, scope, missed) => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS, { ceilingMs: 5000 })
  await grader.grade(toy.task, csv(1), 'feedback')
  const [stopped] = children()
  process.kill(stopped!, 'SIGSTOP')
  expect(await grader.grade(toy.task, csv(2), scope)).toEqual({
    kind: 'fault',
    where: 'grader',
    message: `${missed} within 5000 ms`,
  })
  expect(await grader.grade(toy.task, csv(2), scope)).toMatchObject({ kind: 'scored' })
  expect(children()).not.toContain(stopped)
})

test('a start that takes too long is a fault', async () => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS, { ceilingMs: 1 })
  expect(await grader.grade(toy.task, csv(2), 'feedback')).toEqual({
    kind: 'fault',
    where: 'grader',
    // On a starved machine the start and its limit come due in one turn of the event loop: then the next wait ends it.
    message: expect.stringMatching(/^no (start|answers loaded) within 1 ms$/),
  })
})

test('who waits when the grader is closed gets a fault at once', async () => {
  using toy = await toyTask()
  const grader = new GraderProcess(BOARDS)
  await grader.grade(toy.task, csv(1), 'feedback')
  process.kill(children()[0]!, 'SIGSTOP')
  const pending = grader.grade(toy.task, csv(2), 'feedback')
  await new Promise((r) => setTimeout(r, 50))
  await grader[Symbol.asyncDispose]()
  expect(await pending).toMatchObject({ kind: 'fault', message: 'the grader was closed' })
})

test('files that cannot be read are faults that name the fix', async () => {
  using toy = await toyTask()
  await using grader = new GraderProcess(BOARDS)
  writeFileSync(toy.task.answersPath('final'), new Uint8Array([0x69, 0xff]))
  const g = await grader.grade(toy.task, csv(1), 'final')
  expect(g).toMatchObject({ kind: 'fault', where: 'answers' })
  expect(g.kind === 'fault' && g.message).toMatch(/UTF-8/)
  rmSync(toy.task.answersPath('feedback'))
  const h = await grader.grade(toy.task, csv(1), 'feedback')
  expect(h.kind === 'fault' && h.message).toMatch(/run: wmrl tasks prepare toy/)
  // What failed is read again once it is mended.
  writeFileSync(toy.task.answersPath('feedback'), 'id,y\n1,1.5\n2,2.5\n')
  expect(await grader.grade(toy.task, csv(1), 'feedback')).toMatchObject({ kind: 'scored' })
})

test('a board that cannot be had is a fault', async () => {
  using toy = await toyTask()
  const none: BoardStore = {
    scores: () => {
      throw new Error('no leaderboard')
    },
  }
  await using grader = new GraderProcess(none)
  expect(await grader.grade(toy.task, csv(1), 'feedback')).toMatchObject({ kind: 'fault' })
})

test('the version changes with the answers and with the board, by scope', async () => {
  using toy = await toyTask()
  const version = (boards: BoardStore, scope: Scope): Promise<string> =>
    new GraderProcess(boards).version(toy.task, scope)
  const a = await version(BOARDS, 'feedback')
  expect(await version(BOARDS, 'feedback')).toBe(a)
  expect(await version(BOARDS, 'final')).not.toBe(a)
  expect(await version({ scores: () => [1, 2] }, 'feedback')).not.toBe(a)
  writeFileSync(toy.task.answersPath('feedback'), 'id,y\n1,1\n2,2\n')
  expect(await version(BOARDS, 'feedback')).not.toBe(a)
})
