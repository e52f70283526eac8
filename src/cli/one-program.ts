import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { attemptId, ConfigError, messageOf, type Verdict } from '../core/index.ts'
import type { Judge } from '../judge/index.ts'
import { BUILT_SUITES, type BuiltSuite, catalogue, loadTask, nearest, type Task } from '../tasks/index.ts'
import type { Out } from './command.ts'
import { dataDir } from './paths.ts'

/** Finds the suite of an id. @throws ConfigError with the nearest id */
export function suiteOfId(
  id: string,
  suites: readonly BuiltSuite[] = BUILT_SUITES,
  where: 'id' | '--task' = 'id',
): BuiltSuite {
  const all = suites.flatMap((s) => catalogue(s))
  const found = all.find((e) => e.id === id)
  if (found) return found.suite
  throw new ConfigError(where, `there is no task ${id}`, `the nearest is ${nearest(id, all)}`)
}

/** `id`, or `suite/id`, of the catalogue or made by hand. @throws ConfigError naming the nearest */
export function taskOf(text: string): { suite: BuiltSuite; id: string } {
  const [a, b] = text.split('/')
  const suites = b === undefined ? BUILT_SUITES : BUILT_SUITES.filter((s) => s === a)
  if (suites.length === 0) throw new ConfigError('--task', `unknown suite ${a}`, BUILT_SUITES.join(' or '))
  const id = b ?? a!
  const byHand = /^[\w-]+$/.test(id) && suites.find((s) => existsSync(join(dataDir(), s, id, 'task.json')))
  return { suite: byHand || suiteOfId(id, suites, '--task'), id }
}

function readProgram(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (e) {
    throw new ConfigError(file, `cannot be read (${messageOf(e)})`, 'give a Python file, or - for standard input')
  }
}

/** What `exec` and `predict` are given. Whatever is wrong with it is said before anything is started. */
export async function programOn(file: string, taskText: string): Promise<{ code: string; task: Task }> {
  const { suite, id } = taskOf(taskText)
  const code = readProgram(file)
  return { code, task: await loadTask(dataDir(), suite, id) }
}

type Scored<S extends Verdict['source']> = Extract<Exclude<Verdict, { unscorable: unknown }>, { readonly source: S }>

/** The verdict on one program; where there is none, that is said, with exit code 1. */
export async function verdictOn<S extends Verdict['source']>(
  { out, signal }: { out: Out; signal: AbortSignal },
  judge: Judge,
  source: S,
  { code, task }: { code: string; task: Task },
): Promise<Scored<S> | undefined> {
  const id = attemptId(source === 'executed' ? 'exec' : 'predict')
  const v = await judge.judge([{ id, task: task.ref, action: { code }, history: [], scope: 'feedback' }], signal)[0]!
  if ('unscorable' in v) {
    out.result({ unscorable: v.unscorable }, () => `unscorable (${v.unscorable.cause}): ${v.unscorable.detail}`)
    process.exitCode = 1
    return undefined
  }
  if (v.source !== source) throw new Error(`the verdict was ${v.source}`)
  return v as Scored<S>
}
