import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { root } from './helpers.ts'

const dir = mkdtempSync(join(tmpdir(), 'wmrl-pack-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

describe('the package', () => {
  it.each(['10', '11'])(
    'packs, installs into an empty folder with npm %s, runs and is importable',
    (major) => {
      const tar = join(dir, `pack-${major}`)
      const folder = join(dir, `app-${major}`)
      execFileSync('mkdir', ['-p', tar, folder])
      execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', tar], { cwd: root })
      writeFileSync(join(folder, 'package.json'), '{"name":"app","private":true,"type":"module"}')
      writeFileSync(join(folder, '.npmrc'), 'onnxruntime-node-install=skip\n')
      const file = join(tar, readdirSync(tar)[0]!)
      // An npx around the tests (another Node) would tell this one which packages to run.
      const outer = Object.entries(process.env).filter(([k]) => k.toLowerCase() !== 'npm_config_package')
      const env = { ...Object.fromEntries(outer), ONNXRUNTIME_NODE_INSTALL: 'skip' }
      const install = spawnSync('npx', ['-y', `npm@${major}`, 'install', '--no-audit', '--no-fund', file], {
        cwd: folder,
        encoding: 'utf8',
        env,
      })
      expect(install.status, install.stderr).toBe(0)
      const version = spawnSync('npx', ['wmrl', '--version'], { cwd: folder, encoding: 'utf8' })
      expect(version.stdout.trim()).toMatch(/^\d+\.\d+\.\d+$/)
      const code =
        "const m = await import('wmrl/method'); const e = await import('wmrl/engine'); const t = await import('wmrl/tinker'); await import('wmrl'); console.log(m.pav([2, 1]).join(), typeof e.openOnnxEngine, typeof t)"
      const run = spawnSync(process.execPath, ['--input-type=module', '-e', code], { cwd: folder, encoding: 'utf8' })
      expect(run.stderr).toBe('')
      expect(run.stdout.trim()).toBe('1.5,1.5 function object')
    },
    600_000,
  )
})
