import { parentPort } from 'node:worker_threads'
import { ConfigError, messageOf } from '../../core/index.ts'
import { errorKind, Host } from './host.ts'
import type { FromWorker, SamplePart, ToWorker } from './protocol.ts'

/**
 * Entry of the engine's worker thread: ONNX Runtime's `run` blocks the thread it is called on. An abort message is read
 * between two runs, at batch boundaries.
 */
const port = parentPort
if (!port) throw new Error('engine/onnx/worker runs as a worker thread only')
const host = new Host()
const running = new Map<number, AbortController>()
const send = (message: FromWorker): void => port.postMessage(message)

port.on('message', async (message: ToWorker) => {
  if (message.type === 'abort') {
    running.get(message.id)?.abort()
    return
  }
  const { id, method, args } = message
  const controller = new AbortController()
  running.set(id, controller)
  try {
    const value = await host.call(method, args, {
      signal: controller.signal,
      part: (part: SamplePart) => send({ type: 'part', id, part, usage: host.usage(method, args) }),
    })
    send({ type: 'done', id, value, usage: host.usage(method, args) })
  } catch (e) {
    const path = e instanceof ConfigError ? e.path : ''
    const stack = e instanceof Error ? (e.stack ?? '') : ''
    const error = { kind: errorKind(e), message: messageOf(e), path, stack }
    send({ type: 'failed', id, error, usage: host.usage(method, args) })
  } finally {
    running.delete(id)
  }
})
