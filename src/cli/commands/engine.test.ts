import { Command } from 'commander'
import { afterEach, expect, it, vi } from 'vitest'
import { serve } from '../../engine/tinker/testing/serve.ts'
import { fastClock, StubServer } from '../../engine/tinker/testing/stub-server.ts'
import { engineCommand } from './engine.ts'

afterEach(() => {
  vi.restoreAllMocks()
  process.exitCode = 0
})

async function check(...args: string[]): Promise<{ stdout: string; stderr: string; code: unknown }> {
  let stdout = ''
  let stderr = ''
  vi.spyOn(process.stdout, 'write').mockImplementation((t) => {
    stdout += String(t)
    return true
  })
  vi.spyOn(process.stderr, 'write').mockImplementation((t) => {
    stderr += String(t)
    return true
  })
  const program = new Command('wmrl').option('--json').option('--quiet')
  engineCommand(program)
  process.exitCode = 0
  await program.parseAsync(['node', 'wmrl', 'engine', 'check', ...args])
  return { stdout, stderr, code: process.exitCode }
}

it('prints the table of a server, and a document with --json', async () => {
  const stub = new StubServer({ clock: fastClock, reduction: 'sequence-mean', isolation: 'none' })
  await using server = await serve(stub)
  const table = await check(server.url, '--vocab', '32')
  expect(table.code).toBe(0)
  expect(table.stdout).toMatch(/sampler isolation +none +weak/)
  expect(table.stdout).toContain('a run can train on it')
  const document = await check('--json', server.url, '--vocab', '32')
  expect(JSON.parse(document.stdout)).toMatchObject({
    usable: true,
    capabilities: { wire: 'protobuf', reduction: 'sequence-mean' },
  })
})

it('fails on a server that no run can use, with exit code 1', async () => {
  const stub = new StubServer({ clock: fastClock, sampler: 'zeros' })
  await using server = await serve(stub)
  const r = await check(server.url, '--vocab', '32')
  expect(r.code).toBe(1)
  expect(r.stdout).toContain('not usable')
})

it('says that nobody answers', async () => {
  const r = await check('http://127.0.0.1:9')
  expect(r.code).toBe(1)
  expect(r.stderr).toContain('does not answer')
})

it('refuses what is no URL with exit code 2', async () => {
  expect((await check('localhost')).code).toBe(2)
})
