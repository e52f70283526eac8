import { setTimeout as wait } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { TinkerClient } from './client.ts'
import { isFailure } from './failure.ts'
import { serve } from './testing/serve.ts'
import { fastClock, StubServer, TOY_BASE } from './testing/stub-server.ts'

it('beats on a thread of its own and tells when the session is gone', async () => {
  const stub = new StubServer({ clock: fastClock })
  await using server = await serve(stub)
  const client = new TinkerClient({ baseUrl: server.url, heartbeatEvery: 40 })
  const session = await client.createSession()
  const beats = (): number => stub.seen.filter((s) => s.path === '/session_heartbeat').length
  await expect.poll(beats, { timeout: 10_000 }).toBeGreaterThan(1)
  stub.sessions.clear()
  await expect.poll(() => session.lost, { timeout: 10_000 }).toContain('does not know session')
  const e = await session.createModel({ baseModel: TOY_BASE, lora: { rank: 4 } }).catch((x: unknown) => x)
  expect(isFailure(e, 'model-lost')).toBe(true)
  await session[Symbol.asyncDispose]()
  const after = beats()
  await wait(150)
  expect(beats()).toBe(after)
})

it('keeps beating while the event loop of the controller is blocked', async () => {
  // The server lives in another process, or it would be blocked too.
  const { spawn } = await import('node:child_process')
  const child = spawn(process.execPath, [
    '-e',
    `let n = 0; require('http').createServer((q, s) => { q.resume(); q.on('end', () => { if (q.url.endsWith('heartbeat')) n++; s.setHeader('content-type','application/json'); s.end(JSON.stringify({ session_id: 's', n })) }) }).listen(0, '127.0.0.1', function () { console.log(this.address().port) })`,
  ])
  try {
    const port = await new Promise<string>((resolve) =>
      child.stdout.once('data', (d: Buffer) => resolve(String(d).trim())),
    )
    const url = `http://127.0.0.1:${port}`
    const client = new TinkerClient({ baseUrl: url, heartbeatEvery: 50 })
    const session = await client.createSession()
    const count = async (): Promise<number> => ((await (await fetch(url)).json()) as { n: number }).n
    await expect.poll(count, { timeout: 10_000 }).toBeGreaterThan(0)
    const before = await count()
    const end = Date.now() + 1_500
    while (Date.now() < end);
    expect((await count()) - before).toBeGreaterThan(5)
    await session[Symbol.asyncDispose]()
  } finally {
    child.kill()
  }
})
