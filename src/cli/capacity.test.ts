import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, totalmem } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { MissingError } from '../core/index.ts'
import { availableMemory, type Capacity, capacityHere, checkCapacity } from './capacity.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-capacity-'))
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const has = (memoryMb: number, freeMb = 100_000): Capacity => ({ memoryMb, disks: [{ at: '/somewhere', freeMb }] })
const refused = (f: () => unknown): string => {
  try {
    f()
  } catch (e) {
    expect(e).toBeInstanceOf(MissingError)
    return (e as Error).message
  }
  throw new Error('it was let through')
}

describe('before programs are executed', () => {
  it('a laptop of 8 GiB with a browser open is let through, on two cores without a word', () => {
    expect(checkCapacity(2, 'demo', has(3_000))).toEqual([])
    expect(checkCapacity(8, 'demo', has(3_000))).toEqual([
      '3000 MiB of memory are free for 8 programs at a time, of which each may take 2048 MiB; should some end for want of it, set executor.workers=5',
    ])
  })
  it('memory below one program’s limit is refused, with the fix', () => {
    expect(refused(() => checkCapacity(2, 'demo', has(1_500)))).toBe(
      '1500 MiB of memory are free, one program may take 2048 MiB (executor.limits demo); end what else holds memory (ps aux --sort=-rss)',
    )
    expect(refused(() => checkCapacity(1, 'paper', has(32_000)))).toMatch(
      /65536 MiB .*set executor\.limits to board or demo$/,
    )
  })
  it('so is disk; less than for all of them is a warning', () => {
    expect(refused(() => checkCapacity(2, 'demo', has(8_000, 40)))).toMatch(
      /^40 MiB of disk are free at \/somewhere.*WMRL_HOME/,
    )
    expect(checkCapacity(4, 'demo', has(8_000, 200))).toHaveLength(1)
  })
  it('this machine has room', () => {
    const here = capacityHere()
    expect(here.memoryMb).toBeGreaterThan(0)
    expect(here.memoryMb * 2 ** 20).toBeLessThanOrEqual(totalmem())
    expect(here.disks.length).toBeGreaterThan(0)
    expect(checkCapacity(1, 'demo', here)).toEqual([])
  })
})

describe('available memory', () => {
  const tree = (name: string, files: Record<string, string | number>): string => {
    const root = join(dir, name)
    for (const [path, text] of Object.entries({
      'proc/meminfo': 'MemTotal: 9000 kB\nMemAvailable:    8000 kB\n',
      ...files,
    })) {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), `${text}\n`)
    }
    return root
  }
  it('is the machine’s where no control group says less', () => {
    expect(availableMemory(tree('free', {}))).toBe(8_000 * 1024)
    const unlimited = {
      'proc/self/cgroup': '0::/app',
      'sys/fs/cgroup/app/memory.max': 'max',
      'sys/fs/cgroup/app/memory.current': 5_000,
    }
    expect(availableMemory(tree('unlimited', unlimited))).toBe(8_000 * 1024)
  })
  it('is the least that any group above leaves, files’ stale pages not counted', () => {
    const v2 = {
      'proc/self/cgroup': '0::/a/b',
      'sys/fs/cgroup/a/b/memory.max': 'max',
      'sys/fs/cgroup/a/b/memory.current': 10,
      'sys/fs/cgroup/a/memory.max': 1_000_000,
      'sys/fs/cgroup/a/memory.current': 700_000,
      'sys/fs/cgroup/a/memory.stat': 'anon 1\ninactive_file 200000\nfile 3',
    }
    expect(availableMemory(tree('v2', v2))).toBe(500_000)
    const v1 = {
      'proc/self/cgroup': '9:cpu:/\n4:memory:/a\n0::/',
      'sys/fs/cgroup/memory/a/memory.limit_in_bytes': 600_000,
      'sys/fs/cgroup/memory/a/memory.usage_in_bytes': 500_000,
      'sys/fs/cgroup/memory/a/memory.stat': 'inactive_file 1\ntotal_inactive_file 50000',
    }
    expect(availableMemory(tree('v1', v1))).toBe(150_000)
  })
})
