import { appendFileSync, closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { z } from 'zod'

/** A model that was opened and, as far as anybody wrote down, never unloaded. */
export interface OpenModel {
  readonly model: string
  readonly session: string
  /** First sequence number that was never reserved. */
  readonly next: number
}

/**
 * Port: what must survive this process. Every call returns once it is durable: a sequence number that is used before it is
 * written would be used twice after a crash, and a model that nobody wrote down would stay loaded.
 */
export interface Journal {
  opened(model: string, session: string): void
  /** Numbers below `next` may have been used. */
  reserved(model: string, next: number): void
  closed(model: string): void
  open(): readonly OpenModel[]
}

/** Forgets everything with the process. */
export function memoryJournal(): Journal {
  const models = new Map<string, OpenModel>()
  return {
    opened: (model, session) => void models.set(model, { model, session, next: 1 }),
    reserved: (model, next) => {
      const m = models.get(model)
      if (m) models.set(model, { ...m, next: Math.max(m.next, next) })
    },
    closed: (model) => void models.delete(model),
    open: () => [...models.values()],
  }
}

const line = z.object({
  op: z.enum(['opened', 'reserved', 'closed']),
  model: z.string(),
  session: z.string().optional(),
  next: z.number().int().optional(),
})

/** Append-only lines, each synced. A line that a crash cut is left out: what it reserved was never used. */
export function fileJournal(path: string): Journal {
  mkdirSync(dirname(path), { recursive: true })
  const memory = memoryJournal()
  if (existsSync(path)) {
    const text = readFileSync(path, 'utf8')
    for (const raw of text.split('\n')) {
      let json: unknown
      try {
        json = JSON.parse(raw)
      } catch {
        continue
      }
      const l = line.safeParse(json).data
      if (l?.op === 'opened') memory.opened(l.model, l.session ?? '')
      else if (l?.op === 'reserved') memory.reserved(l.model, l.next ?? 1)
      else if (l?.op === 'closed') memory.closed(l.model)
    }
    // A cut last line must not swallow the next one.
    if (text !== '' && !text.endsWith('\n')) appendFileSync(path, '\n')
  }
  const write = (l: z.infer<typeof line>): void => {
    const fd = openSync(path, 'a')
    try {
      writeSync(fd, `${JSON.stringify(l)}\n`)
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
  }
  return {
    opened(model, session) {
      write({ op: 'opened', model, session })
      memory.opened(model, session)
    },
    reserved(model, next) {
      write({ op: 'reserved', model, next })
      memory.reserved(model, next)
    },
    closed(model) {
      write({ op: 'closed', model })
      memory.closed(model)
    },
    open: () => memory.open(),
  }
}
