import { readFileSync } from 'node:fs'
import { parse as parseToml } from 'smol-toml'
import { parse as parseYaml } from 'yaml'
import { z } from 'zod'
import { ConfigError, messageOf } from '../core/index.ts'
import { decodeUtf8 } from '../grading/index.ts'
import { METHOD_MODES, type MethodMode } from '../method/index.ts'
import { methodOf, type RunConfig, runConfig } from '../train/index.ts'

type Tree = Record<string, unknown>

/** File, then WMRL_… from the environment (WMRL_TRAIN__STEPS=5), then --set; later ones win. @throws ConfigError naming the key. */
export function loadConfig(o: {
  file?: string | undefined
  set?: readonly string[]
  env?: NodeJS.ProcessEnv
  base?: Tree
}): RunConfig {
  const tree: Tree = structuredClone(o.base ?? {})
  if (o.file) merge(tree, readFile(o.file))
  for (const [k, v] of Object.entries(o.env ?? {})) {
    if (!k.startsWith('WMRL_') || v === undefined || RESERVED.test(k)) continue
    const key = configKeys().find((c) => variable(c) === k)
    if (key === undefined) {
      const near = nearest(k, configKeys().map(variable))
      throw new ConfigError(k, 'is no configuration key', near ? `did you mean ${near}?` : 'see: wmrl config')
    }
    put(tree, key.split('.'), literal(v), k)
  }
  for (const s of o.set ?? []) {
    const at = s.indexOf('=')
    if (at < 1) throw new ConfigError(`--set ${s}`, 'is not of the form key=value', 'for example --set train.steps=10')
    put(tree, s.slice(0, at).split('.'), literal(s.slice(at + 1)), `--set ${s}`)
  }
  const parsed = runConfig.safeParse(tree)
  if (parsed.success) return parsed.data
  throw issueError(parsed.error.issues[0]!, tree)
}

/** Environment variables that are not configuration keys: set-up's, the sandbox's mark, and those of the opt-in tests. */
const RESERVED = /^WMRL_(HOME|PYTHON|BASE_PYTHON|DEBUG|CHAT_KEY|SANDBOX|SKYRL_\w+)$/

/** `train.groupSize` as the environment has it: WMRL_TRAIN__GROUP_SIZE. */
const variable = (key: string): string =>
  `WMRL_${key
    .replaceAll('.', '__')
    .replace(/[A-Z]/g, (c) => `_${c}`)
    .toUpperCase()}`

function readFile(path: string): Tree {
  let bytes: Uint8Array
  try {
    bytes = readFileSync(path)
  } catch (cause) {
    throw new ConfigError(path, `cannot be read (${messageOf(cause)})`, 'give a YAML or TOML file', { cause })
  }
  const text = decodeUtf8(bytes)
  // Read leniently it would be one word, or a value that nobody wrote.
  if (text === undefined) throw new ConfigError(path, 'is not UTF-8 text', 'save it as UTF-8')
  try {
    const tree: unknown = path.endsWith('.toml') ? parseToml(text) : parseYaml(text)
    if (tree === null || tree === undefined) return {}
    if (typeof tree !== 'object' || Array.isArray(tree)) throw new Error('it holds no keys (write them as key: value)')
    return tree as Tree
  } catch (cause) {
    throw new ConfigError(path, `is not a configuration: ${messageOf(cause)}`, undefined, { cause })
  }
}

/** A value from a shell: JSON where it is JSON, numbers also as people write them (.05, 1.), all else text. */
function literal(v: string): unknown {
  if (/^[+-]?((0|[1-9]\d*)\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(v)) return Number(v)
  try {
    return JSON.parse(v)
  } catch {
    return v
  }
}

function put(tree: Tree, path: readonly string[], value: unknown, where: string): void {
  let at = tree
  for (const k of path.slice(0, -1)) {
    const next = at[own(k)] ?? {}
    if (typeof next !== 'object' || Array.isArray(next)) throw new ConfigError(where, `${k} holds a value, not keys`)
    at[k] = next
    at = next as Tree
  }
  at[own(path[path.length - 1]!)] = value
}

function merge(into: Tree, from: Tree): void {
  for (const [k, v] of Object.entries(from)) {
    if (v && typeof v === 'object' && !Array.isArray(v) && into[own(k)] && typeof into[k] === 'object')
      merge(into[k] as Tree, v as Tree)
    else into[own(k)] = v
  }
}

/** A key that is none of every object's own. @throws ConfigError */
function own(key: string): string {
  if (key in Object.prototype) throw new ConfigError(key, 'is no configuration key', 'see: wmrl config')
  return key
}

function issueError(issue: z.core.$ZodIssue, tree: Tree): ConfigError {
  const path = issue.path.join('.')
  if (issue.code === 'unrecognized_keys') {
    const key = [...issue.path, issue.keys[0]].join('.')
    const near = nearest(key, configKeys())
    return new ConfigError(key, 'is no configuration key', near ? `did you mean ${near}?` : 'see: wmrl config')
  }
  const value = issue.path.reduce<unknown>((at, k) => (at as Tree | undefined)?.[String(k)], tree)
  const shown = JSON.stringify(value)
  if (issue.code === 'invalid_value') {
    const values = issue.values.map(String)
    const near = nearest(String(value), values)
    const fix = `one of ${values.join(', ')}${near ? `; did you mean ${near}?` : ''}`
    return new ConfigError(path, `${shown} is not possible`, fix)
  }
  return new ConfigError(path || 'configuration', `${shown} is not possible: ${issue.message}`)
}

export interface ConfigKey {
  readonly key: string
  readonly type: string
  /** In mode recommended, where the mode decides. */
  readonly default?: unknown
  /** In the modes that differ from it. */
  readonly inMode?: Readonly<Partial<Record<MethodMode, unknown>>>
  readonly description?: string
}

/** Every leaf key with its description and default: the schema's, else what is filled in for the mode. */
export function configReference(): ConfigKey[] {
  const byMode = METHOD_MODES.map((mode) => {
    const c = runConfig.parse({ method: { mode } })
    return [mode, { ...c, method: methodOf(c) } as Tree] as const
  })
  const at = (tree: Tree, path: readonly string[]): unknown =>
    path.reduce<unknown>((t, k) => (t as Tree | undefined)?.[k], tree)
  const out: ConfigKey[] = []
  const visit = (node: Tree, path: string[]): void => {
    const props = node.properties as Record<string, Tree> | undefined
    if (props) {
      for (const [k, v] of Object.entries(props)) visit(v, [...path, k])
      return
    }
    const type = Array.isArray(node.enum) ? node.enum.join(' | ') : String(node.type ?? 'any')
    const recommended = at(byMode.find(([m]) => m === 'recommended')![1], path)
    const usual = node.default ?? recommended
    const inMode = Object.fromEntries(
      path.join('.') === 'method.mode'
        ? []
        : byMode.flatMap(([m, tree]) => (at(tree, path) === recommended ? [] : [[m, at(tree, path)]])),
    )
    out.push({
      key: path.join('.'),
      type,
      ...(usual === undefined ? {} : { default: usual }),
      ...(Object.keys(inMode).length === 0 ? {} : { inMode }),
      ...(node.description ? { description: String(node.description) } : {}),
    })
  }
  visit(configSchema(), [])
  return out
}

export const configSchema = (): Tree => z.toJSONSchema(runConfig, { io: 'input' }) as Tree
const configKeys = (): string[] => configReference().map((r) => r.key)

/** The closest of `options` by edit distance, if it is close at all. */
export function nearest(word: string, options: readonly string[]): string | undefined {
  let best: string | undefined
  let least = Math.max(3, Math.ceil(word.length / 2))
  for (const o of options) {
    const d = Math.min(distance(word, o), distance(word.split('.').pop()!, o.split('.').pop()!) + 0.5)
    if (d < least) {
      least = d
      best = o
    }
  }
  return best
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1))
    row = next
  }
  return row[b.length]!
}
