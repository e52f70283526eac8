import { expect, it } from 'vitest'
import { overdueLine, type Wait, WaitList } from './waits.ts'

const after = (ms: number): Promise<void> => new Promise((r) => setTimeout(r, ms))

it('a wait that reaches its ceiling is told once, before its own time-out, with all that is pending', async () => {
  const list = new WaitList()
  const told: string[] = []
  const order: string[] = []
  using _watch = list.watch((overdue, pending) => {
    told.push(overdueLine(overdue, pending))
    order.push('watchdog')
  })
  const stuck = list.during('engine sample', 200, async () => {
    await after(200)
    order.push('time-out')
    await after(100)
  })
  const others = [1, 2].map(() => list.during('a free slot', undefined, () => after(400)))
  const quick = list.during('grader', 5_000, () => after(10))
  await quick
  expect(list.pending().map((w) => w.name)).toEqual(['engine sample', 'a free slot', 'a free slot'])
  await stuck
  expect(order).toEqual(['watchdog', 'time-out'])
  expect(told).toHaveLength(1)
  expect(told[0]).toMatch(
    /^engine sample has waited \d\.\d s, its ceiling; pending: engine sample \d\.\d s, 2 x a free slot \d\.\d s$/,
  )
  await Promise.all(others)
  expect(list.pending()).toEqual([])
})

it('what fails is no longer waited for, and a watcher that was let go hears nothing', async () => {
  const list = new WaitList()
  const told: Wait[] = []
  list.watch((w) => told.push(w))[Symbol.dispose]()
  await expect(list.during('x', 10, () => after(50).then(() => Promise.reject(new Error('no'))))).rejects.toThrow('no')
  expect([list.pending(), told]).toEqual([[], []])
})
