import { ConfigError, type Split, type Suite } from '../core/index.ts'
import { BUILT_SUITES, type BuiltSuite, catalogue, nearest, preparedIds, type Task } from '../tasks/index.ts'

/**
 * Refuses what may not be trained on, though it was named: a held-out task would be reported as held-out later (invariant 10),
 * and one that is not trainable has too few rows to learn from.
 * @throws ConfigError with the id, why, and the fix
 */
export function mayTrain({ card }: Pick<Task, 'card'>, key: string): void {
  if (card.split === 'heldout') throw heldOut(card, key)
  if (!card.trainable)
    throw new ConfigError(
      key,
      `${card.id} is not trained on (too few of its rows give feedback)`,
      'leave it out, or name another task of split train',
    )
}

const heldOut = (t: { readonly id: string; readonly suite: Suite }, key: string): ConfigError =>
  new ConfigError(
    key,
    `${t.id} is held out: evaluation alone executes it, nothing is trained on it`,
    `name tasks of split train (wmrl tasks list --suite ${t.suite})`,
  )

/** Prepared ids of a suite. @throws ConfigError where this version has no source for it, or nothing of it is prepared */
export async function preparedOf(dataDir: string, suite: Suite): Promise<string[]> {
  if (!built(suite))
    throw new ConfigError(
      'tasks.suite',
      `the tasks of ${suite} cannot be prepared by this version of wmrl (a dry run needs none)`,
      `set it to ${BUILT_SUITES.join(' or ')}`,
    )
  const ids = await preparedIds(dataDir, suite)
  if (ids.length > 0) return ids
  throw new ConfigError(
    'tasks.suite',
    `no task of suite ${suite} is prepared`,
    `run: wmrl tasks prepare --suite ${suite}`,
  )
}

/** Checks ids that were asked for by name. @throws ConfigError naming the first that will not do, and what to do about it */
export function checkNamed(suite: Suite, named: readonly string[], prepared: readonly string[], key: string): void {
  if (named.length === 0) throw new ConfigError(key, 'names no task', 'name at least one, or leave it out')
  const own = built(suite) ? catalogue(suite) : []
  for (const id of named) {
    const entry = own.find((e) => e.id === id)
    // Before it is said to lack preparation, which would not help.
    if (entry?.split === 'heldout') throw heldOut(entry, key)
    if (prepared.includes(id)) continue
    if (entry) throw new ConfigError(key, `${id} is not prepared`, `run: wmrl tasks prepare ${id}`)
    const other = BUILT_SUITES.find((s) => catalogue(s).some((e) => e.id === id))
    if (other !== undefined)
      throw new ConfigError(key, `${id} is a task of suite ${other}, not of ${suite}`, `set tasks.suite to ${other}`)
    const near = nearest(id, [...own, ...prepared.map((p) => ({ id: p }))])
    throw new ConfigError(key, `there is no task ${id} in suite ${suite}`, `the nearest is ${near}`)
  }
}

/** That nothing of a suite may be had for a split. */
export function noneOf(suite: Suite, split: Split): ConfigError {
  const exists = built(suite) && catalogue(suite).some((e) => e.split === split)
  return new ConfigError(
    'tasks.split',
    `suite ${suite} has no ${exists ? 'prepared ' : ''}task of split ${split}`,
    exists ? `run: wmrl tasks prepare --suite ${suite}` : 'set it to train',
  )
}

const built = (suite: Suite): suite is BuiltSuite => BUILT_SUITES.some((s) => s === suite)
