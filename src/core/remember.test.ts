import { expect, test } from 'vitest'
import { remember } from './index.ts'

test('makes once, joins while under way, and forgets what rejected', async () => {
  const kept = new Map<string, Promise<number>>()
  let made = 0
  const make = async (): Promise<number> => {
    made++
    await Promise.resolve()
    if (made === 1) throw new Error('disk')
    return made
  }
  const both = await Promise.allSettled([remember(kept, 'a', make), remember(kept, 'a', make)])
  expect(both.map((r) => r.status)).toEqual(['rejected', 'rejected'])
  expect(await remember(kept, 'a', make)).toBe(2)
  expect(await remember(kept, 'a', make)).toBe(2)
})
