import { Worker } from 'node:worker_threads'

export interface HeartbeatOptions {
  readonly url: string
  readonly key: string | undefined
  readonly sessionId: string
  readonly everyMs: number
  readonly ceilingMs: number
  /** The session is unknown to the server, or nobody answered for so long that it must have expired. */
  readonly onLost: (detail: string) => void
}

export interface Heartbeat {
  /** A new key, where keys expire. */
  key(key: string): void
  stop(): Promise<void>
}
export type StartHeartbeat = (o: HeartbeatOptions) => Heartbeat

/**
 * The thread's whole program, as text, so that it needs no file of its own wherever this package runs from. Its timer and
 * its fetch are the thread's own: a controller that blocks its event loop for minutes keeps its session.
 */
const PROGRAM = `
const { parentPort, workerData: o } = require('node:worker_threads')
let key = o.key, failing = 0
const beat = async () => {
  try {
    const r = await fetch(o.url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...(key === undefined ? {} : { 'X-API-Key': key }) },
      body: JSON.stringify({ session_id: o.sessionId, type: 'session_heartbeat' }),
      signal: AbortSignal.timeout(o.ceilingMs),
    })
    await r.arrayBuffer()
    if (r.status === 404) parentPort.postMessage('the server does not know session ' + o.sessionId)
    failing = r.ok ? 0 : failing + 1
  } catch (e) { failing++ }
  if (failing * o.everyMs > 300000 && failing * o.everyMs - o.everyMs <= 300000)
    parentPort.postMessage('no heartbeat was answered for 300 s')
}
beat()
const timer = setInterval(beat, o.everyMs)
parentPort.on('message', (m) => { if (m.stop) { clearInterval(timer); process.exit(0) } else key = m.key })
`

/** Beats on a worker thread of its own. */
export const threadHeartbeat: StartHeartbeat = (o) => {
  const { onLost, ...workerData } = o
  const worker = new Worker(PROGRAM, { eval: true, workerData })
  worker.unref()
  worker.on('message', (m: unknown) => onLost(String(m)))
  worker.on('error', (e) => onLost(`the heartbeat thread died (${e.message})`))
  return {
    key: (key) => worker.postMessage({ key }),
    async stop() {
      worker.removeAllListeners('message')
      await worker.terminate()
    },
  }
}
