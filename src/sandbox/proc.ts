import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** Small readers of /proc; a process that has gone reads as nothing. */
const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
const list = (path: string): string[] => {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

export const processIds = (): number[] =>
  list('/proc')
    .filter((n) => /^\d+$/.test(n))
    .map(Number)

/** `root` and every descendant, at most `ceiling`. */
export function processTree(root: number, ceiling = 5000): number[] {
  const found = [root]
  for (let i = 0; i < found.length && found.length < ceiling; i++) {
    for (const task of list(`/proc/${found[i]}/task`)) {
      const children = read(`/proc/${found[i]}/task/${task}/children`)
      for (const c of children.split(' ')) if (c !== '') found.push(Number(c))
    }
  }
  return found
}

/** Fields of /proc/PID/stat after the command name: index 0 is the state. */
function statFields(path: string): string[] {
  const text = read(path)
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}

/** Ticks of a clock that never goes back, by which a process id and its start time name one process for ever. */
export function startTime(pid: number): string | undefined {
  const t = statFields(`/proc/${pid}/stat`)[19]
  return t === undefined || t === '' ? undefined : t
}

const TICKS_PER_SECOND = 100

/** CPU seconds of a process and of its children that it has waited for. */
export function cpuSecondsOf(pid: number): number {
  const f = statFields(`/proc/${pid}/stat`)
  return (Number(f[11] ?? 0) + Number(f[12] ?? 0) + Number(f[13] ?? 0) + Number(f[14] ?? 0)) / TICKS_PER_SECOND
}

const PAGE = 4096
export const residentBytes = (pid: number): number => PAGE * (Number(read(`/proc/${pid}/statm`).split(' ')[1]) || 0)

/** Its share of the pages that it maps, in bytes; `undefined` where that may not be read. */
export function proportionalBytes(pid: number): number | undefined {
  const kb = /^Pss:\s+(\d+) kB/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1]
  return kb === undefined ? undefined : Number(kb) * 1024
}

export interface TaskSample {
  readonly id: string
  readonly runnable: boolean
  /** Nanoseconds spent waiting for a CPU since the task began. */
  readonly waitNs: number
}

export function tasksOf(pid: number): TaskSample[] {
  return list(`/proc/${pid}/task`).map((t) => ({
    id: `${pid}/${t}`,
    runnable: statFields(`/proc/${pid}/task/${t}/stat`)[0] === 'R',
    waitNs: Number(read(`/proc/${pid}/task/${t}/schedstat`).split(' ')[1]) || 0,
  }))
}

export const environmentOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1')
  } catch {
    return ''
  }
}

/** Identity of this process's pid namespace; other namespaces' pids mean nothing here. */
export function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0'
  } catch {
    return '0'
  }
}

const CAPABILITIES = { kill: 5, setgid: 6, setuid: 7, setpcap: 8, sysAdmin: 21 }

/** Root with the rights that namespaces without a user namespace need. */
export function isPrivileged(): boolean {
  if (process.getuid?.() !== 0) return false
  const hex = /^CapEff:\s+([0-9a-f]+)/m.exec(read('/proc/self/status'))?.[1] ?? '0'
  const have = BigInt(`0x${hex}`)
  return Object.values(CAPABILITIES).every((bit) => (have >> BigInt(bit)) & 1n)
}
