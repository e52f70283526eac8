import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Cgroup, type CgroupHost, type CgroupLimits } from './cgroups.ts'
import type { Rung } from './contract.ts'
import { ownerName, type PythonHost } from './host.ts'
import { removeTree } from './sweep.ts'

/** First uid of the slots, one a concurrent program, where we are root. */
const FIRST_UID = 20_001

let sequence = 0

/** What one open sandbox holds on this machine. Registered under `stateDir` before anything is made. */
export class Runtime {
  readonly rung: Rung
  readonly python: PythonHost
  readonly runner: string
  readonly privileged: boolean
  readonly root: boolean
  /** Directory of ours: socket, staging, mount point, scratch directories of rungs without namespaces. */
  readonly dir: string
  readonly name: string
  readonly bwrap: string
  readonly #cgroups: CgroupHost | undefined
  readonly #record: string

  constructor(o: {
    rung: Rung
    python: PythonHost
    runner: string
    privileged: boolean
    cgroups: CgroupHost | undefined
    bwrap: string
    stateDir: string
    slots: number
  }) {
    this.rung = o.rung
    this.python = o.python
    this.runner = o.runner
    this.privileged = o.privileged
    this.root = process.getuid?.() === 0
    this.bwrap = o.bwrap
    this.#cgroups = o.cgroups
    sequence += 1
    this.name = `${ownerName()}-${sequence}`
    const registry = join(o.stateDir, 'sandboxes')
    mkdirSync(registry, { recursive: true })
    this.#record = join(registry, `${this.name}.json`)
    const tmp = realpathSync(tmpdir())
    writeFileSync(this.#record, JSON.stringify({ tmp }))
    this.dir = mkdtempSync(join(tmp, `${this.name}-`))
    // 0711 by mode: a slot's uid must pass through, and a umask must not forbid it.
    for (const [d, mode] of [
      ['', 0o711],
      ['root', 0o755],
      ['stage', 0o755],
    ] as const) {
      const path = join(this.dir, d)
      mkdirSync(path, { recursive: true })
      chmodSync(path, mode)
    }
    for (let i = 0; i < o.slots; i++) {
      const uid = this.slotUid(i) ?? process.getuid?.() ?? 0
      writeFileSync(this.passwd(i), `sandbox:x:${uid}:${uid}::/box:/bin/sh\n`)
      chmodSync(this.passwd(i), 0o644)
    }
  }

  get contained(): boolean {
    return this.rung !== 'E'
  }

  get namespaced(): boolean {
    return ['A', 'A-', 'B', 'C'].includes(this.rung)
  }

  get hasCgroups(): boolean {
    return this.#cgroups !== undefined
  }

  /** Null: the programs run as this process's own user. */
  slotUid(slot: number): number | null {
    return this.root && this.contained ? FIRST_UID + slot : null
  }

  slotUids(slots: number): number[] {
    return Array.from({ length: slots }, (_, i) => this.slotUid(i) ?? 1000)
  }

  passwd(slot: number): string {
    return join(this.dir, `passwd-${slot}`)
  }

  cgroup(limits?: CgroupLimits): Cgroup | undefined {
    sequence += 1
    return this.#cgroups && new Cgroup(this.#cgroups, `${ownerName()}-${sequence}`, limits)
  }

  close(): void {
    removeTree(this.dir)
    rmSync(this.#record, { force: true })
  }
}
