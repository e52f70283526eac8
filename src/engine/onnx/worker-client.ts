import { Worker } from 'node:worker_threads'
import { ConfigError, EngineError, waits } from '../../core/index.ts'
import type { EngineUsage } from '../contract.ts'
import type { Calls, FromWorker, Method, SamplePart, ToWorker, WireError } from './protocol.ts'
import { workerPath } from './worker-path.ts'

/**
 * Longest wait for each call's reply, in seconds. They are far above what the work takes on a busy machine and mean that
 * the worker is stuck; a call's queueing behind others counts.
 */
const CEILING_S: Record<Method, number> = {
  open: 120,
  openModel: 600,
  closeModel: 600,
  snapshot: 600,
  closeSampler: 600,
  forwardBackward: 1800,
  optimStep: 600,
  save: 600,
  saveBackbone: 600,
  sample: 3600,
  logprobs: 1800,
  next: 1800,
  close: 60,
}

interface Pending {
  readonly resolve: (value: unknown) => void
  readonly reject: (reason: unknown) => void
  readonly part: ((part: SamplePart) => void) | undefined
  readonly usage: ((usage: EngineUsage) => void) | undefined
}

export interface CallOptions {
  readonly signal?: AbortSignal
  readonly part?: (part: SamplePart) => void
  readonly usage?: (usage: EngineUsage) => void
}

/** The main thread's end of the worker: calls become promises with a name, a ceiling and an abort. */
export class WorkerClient {
  readonly #pending = new Map<number, Pending>()
  #nextId = 1
  #ended: EngineError | undefined

  private constructor(private readonly worker: Worker) {
    worker.on('message', (m: FromWorker) => this.#receive(m))
    worker.on('error', (cause) => this.#end(new EngineError(`the engine worker failed: ${cause.message}`, { cause })))
    worker.on('exit', (code) => this.#end(new EngineError(`the engine worker ended with code ${code}`)))
    // An idle engine does not keep the process alive; a pending call does.
    worker.unref()
  }

  static async start(): Promise<WorkerClient> {
    return new WorkerClient(new Worker(await workerPath(), { name: 'wmrl engine' }))
  }

  call<M extends Method>(
    method: M,
    args: Parameters<Calls[M]>,
    options: CallOptions = {},
  ): Promise<ReturnType<Calls[M]>> {
    return waits.during(`engine ${method}`, CEILING_S[method] * 1000, () => this.#call(method, args, options))
  }

  async #call<M extends Method>(
    method: M,
    args: Parameters<Calls[M]>,
    options: CallOptions,
  ): Promise<ReturnType<Calls[M]>> {
    const { signal } = options
    signal?.throwIfAborted()
    if (this.#ended) throw this.#ended
    const id = this.#nextId++
    const abort = (): void => this.#send({ type: 'abort', id })
    let ceiling: NodeJS.Timeout | undefined
    try {
      return await new Promise<ReturnType<Calls[M]>>((resolve, reject) => {
        this.#pending.set(id, {
          resolve: resolve as (value: unknown) => void,
          // The caller's own reason, not the worker's report of having stopped.
          reject: (e) => reject(signal?.aborted ? signal.reason : e),
          part: options.part,
          usage: options.usage,
        })
        const seconds = CEILING_S[method]
        ceiling = setTimeout(() => {
          reject(new EngineError(`engine ${method}: no answer in ${seconds} s`, { retryable: true }))
          abort()
        }, seconds * 1000)
        if (this.#pending.size === 1) this.worker.ref()
        this.#send({ type: 'call', id, method, args })
        signal?.addEventListener('abort', abort, { once: true })
      })
    } finally {
      clearTimeout(ceiling)
      signal?.removeEventListener('abort', abort)
      this.#pending.delete(id)
      if (this.#pending.size === 0) this.worker.unref()
    }
  }

  /** Stops what is under way at its next batch boundary, then the thread. */
  async close(): Promise<void> {
    if (this.#ended) return
    try {
      for (const id of this.#pending.keys()) this.#send({ type: 'abort', id })
      await this.call('close', [])
    } finally {
      this.#end(new EngineError('the engine is closed'))
      await this.worker.terminate()
    }
  }

  #send(message: ToWorker): void {
    this.worker.postMessage(message)
  }

  #receive(message: FromWorker): void {
    const pending = this.#pending.get(message.id)
    if (!pending) return
    if (message.usage) pending.usage?.(message.usage)
    if (message.type === 'part') pending.part?.(message.part)
    else if (message.type === 'failed') pending.reject(fromWire(message.error))
    else pending.resolve(message.value)
  }

  #end(reason: EngineError): void {
    this.#ended ??= reason
    for (const p of this.#pending.values()) p.reject(reason)
  }
}

function fromWire(e: WireError): Error {
  if (e.kind === 'config') return new ConfigError(e.path, e.message.replace(`${e.path}: `, ''))
  // The worker's stack says where; it crosses as the cause, for logs.
  const cause = Object.assign(new Error(e.message), { stack: e.stack })
  return new EngineError(e.message, { cause })
}
