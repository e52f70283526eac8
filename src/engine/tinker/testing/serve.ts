import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { StubServer } from './stub-server.ts'

/** The stub behind a real socket on the loopback. Dispose of it. */
export async function serve(stub: StubServer): Promise<{ url: string } & AsyncDisposable> {
  const server: Server = createServer((q, s) => {
    const parts: Buffer[] = []
    q.on('data', (d: Buffer) => parts.push(d))
    q.on('end', async () => {
      try {
        const r = await stub.fetch(`http://stub${q.url}`, {
          method: q.method ?? 'GET',
          headers: q.headers as Record<string, string>,
          ...(parts.length > 0 ? { body: Buffer.concat(parts) } : {}),
        })
        s.writeHead(r.status, Object.fromEntries(r.headers))
        s.end(Buffer.from(await r.arrayBuffer()))
      } catch {
        s.destroy()
      }
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}
