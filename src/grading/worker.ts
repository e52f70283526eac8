/**
 * The grader's own process: it reads hostile CSV, so it gives up root before the first message and knows only the answers
 * of the scope it was sent. Started by `GraderProcess`; not meant to be run by hand.
 */
import type { Scope } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'
import { type Answers, gradeSubmission, readAnswers } from './grade.ts'
import type { GraderReply, GraderRequest } from './protocol.ts'

const NOBODY = 65534

function dropPrivileges(): void {
  if (process.getuid?.() !== 0) return
  process.setgroups?.([])
  process.setgid?.(NOBODY)
  process.setuid?.(NOBODY)
}

const loaded = new Map<string, { card: TaskCard; answers: Answers; board: readonly number[]; scope: Scope }>()
const send = (m: GraderReply): void => {
  process.send?.(m)
}

function handle(m: GraderRequest): void {
  if (m.type === 'load') {
    try {
      loaded.set(m.key, {
        card: m.card,
        answers: readAnswers(m.card, m.ids, m.answers),
        board: m.board,
        scope: m.scope,
      })
      send({ type: 'loaded', key: m.key })
    } catch (e) {
      send({ type: 'loaded', key: m.key, error: e instanceof Error ? e.message : String(e) })
    }
    return
  }
  const task = loaded.get(m.key)
  if (!task) {
    send({
      type: 'graded',
      id: m.id,
      result: { kind: 'fault', where: 'answers', message: `no answers loaded for ${m.key}` },
    })
    return
  }
  try {
    send({
      type: 'graded',
      id: m.id,
      result: gradeSubmission(task.card, task.answers, task.board, task.scope, m.submission),
    })
  } catch (e) {
    send({
      type: 'graded',
      id: m.id,
      result: { kind: 'fault', where: 'grader', message: e instanceof Error ? e.message : String(e) },
    })
  }
}

dropPrivileges()
process.on('message', (m) => handle(m as GraderRequest))
process.on('disconnect', () => process.exit(0))
send({ type: 'ready' })
