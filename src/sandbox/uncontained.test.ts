import { spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isRoot, testPython } from './testing/environment.ts'
import { hostileProbes, marker, programOf } from './testing/hostile.ts'
import { HostStage } from './testing/stage.ts'

/** The control's own uid: it may read what any user may, and end nothing of ours. */
const CONTROL_UID = 23_457

/**
 * Negative control: probes that only read, without any jail, must fail to be contained. Otherwise the suite above
 * would pass on a machine where there is nothing to find. Killing, flooding and bomb probes never run uncontained.
 */
describe('uncontained, the read-only probes', () => {
  let host: HostStage
  beforeAll(async () => {
    host = await HostStage.open()
    mkdirSync(join(host.dir, 'scratch'))
    chmodSync(join(host.dir, 'scratch'), 0o777)
  })
  afterAll(() => host[Symbol.asyncDispose]())

  function uncontained(code: string, cwd: string): Promise<string> {
    const python = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : testPython()
    const argv = [python, '-I', '-S', '-c', code]
    const drop = isRoot ? ['setpriv', '--reuid', `${CONTROL_UID}`, '--regid', `${CONTROL_UID}`, '--clear-groups'] : []
    const [command = '', ...rest] = [...drop, ...argv]
    const child = spawn(command, rest, { cwd, env: { PATH: '/usr/bin:/bin', HOST_SECRET: 'SECRETENV' } })
    let said = ''
    for (const s of [child.stdout, child.stderr]) s.on('data', (b: Buffer) => (said += b.toString('latin1')))
    return new Promise((resolve) => child.on('close', () => resolve(said)))
  }

  const names = [
    'net_loopback',
    'net_abstract',
    'net_pathsock',
    'read_private',
    'read_sibling',
    'proc_snoop',
    'env_snoop',
  ]
  it.each(names)('%s finds what it must not', async (name) => {
    const probe = hostileProbes(host.stage).find((p) => p.name === name)!
    expect(probe.readOnly).toBe(true)
    const sibling = probe.sibling && uncontained(probe.sibling, join(host.dir, 'scratch'))
    // A walk over the whole disk is not the control's point: its start is put beside the sibling.
    const code = programOf(probe).replace(`os.walk('/')`, `os.walk('${host.dir}')`)
    const said = await uncontained(code, host.publicDir)
    await sibling
    expect(said).toContain(marker(name))
    expect(said).toMatch(/LEAK|SECRETANSWER|SECRETENV/)
  })
})
