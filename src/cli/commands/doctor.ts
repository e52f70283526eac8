import { execFileSync } from 'node:child_process'
import { existsSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { messageOf, packageRoot } from '../../core/index.ts'
import { probeOnnx } from '../../engine/index.ts'
import { probeRungs } from '../../sandbox/index.ts'
import { run } from '../command.ts'
import { backboneDir, home, solutionsPython } from '../paths.ts'

interface Check {
  readonly name: string
  readonly status: 'ok' | 'weak' | 'missing'
  readonly detail: string
  readonly fix: string
}

export function doctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('tries what this machine can do')
    .addHelpText('after', '\nExample:\n  wmrl doctor --json | jq .sandbox')
    .action(
      run(async ({ out }) => {
        const checks: Check[] = [node(), python(), await engine(), disk(), backbone()]
        const report = await sandbox()
        checks.push(...report.checks)
        out.result({ checks, sandbox: report.sandbox }, () => {
          const lines = checks.map(
            (c) => `${c.status.padEnd(8)} ${c.name}: ${c.detail}${c.fix ? `  Fix: ${c.fix}` : ''}`,
          )
          const s = report.sandbox
          lines.push(
            '',
            `sandbox rung ${s.rung}`,
            `  contains: ${s.contains.join('; ') || 'nothing'}`,
            `  does not contain: ${s.doesNotContain.join('; ') || 'nothing known'}`,
          )
          return lines.join('\n')
        })
      }),
    )
}

function node(): Check {
  const [major, minor] = process.versions.node.split('.').map(Number) as [number, number]
  const ok = major > 20 || (major === 20 && minor >= 19)
  return { name: 'node', status: ok ? 'ok' : 'weak', detail: process.version, fix: ok ? '' : 'use Node 20.19 or newer' }
}

function python(): Check {
  try {
    const version = execFileSync(
      solutionsPython(),
      [
        '-I',
        '-c',
        'import sys, sklearn, lightgbm, pandas; print(sys.version.split()[0], "scikit-learn", sklearn.__version__, "pandas", pandas.__version__)',
      ],
      { encoding: 'utf8', timeout: 120_000 },
    )
    return { name: 'python environment', status: 'ok', detail: version.trim(), fix: '' }
  } catch (e) {
    return { name: 'python environment', status: 'missing', detail: messageOf(e), fix: 'npm run setup' }
  }
}

async function engine(): Promise<Check> {
  try {
    return { name: 'embedded engine', status: 'ok', detail: `${await probeOnnx()}, a graph ran`, fix: '' }
  } catch (e) {
    return { name: 'embedded engine', status: 'missing', detail: messageOf(e), fix: 'npm ci' }
  }
}

function disk(): Check {
  const dir = existsSync(home()) ? home() : packageRoot()
  const s = statfsSync(dir)
  const free = (s.bavail * s.bsize) / 2 ** 30
  return {
    name: 'free disk',
    status: free > 3 ? 'ok' : 'weak',
    detail: `${free.toFixed(1)} GiB at ${dir}`,
    fix: free > 3 ? '' : 'free some space, or set WMRL_HOME to a larger disk',
  }
}

function backbone(): Check {
  const ok = existsSync(join(backboneDir(), 'model.safetensors'))
  return {
    name: 'backbone',
    status: ok ? 'ok' : 'missing',
    detail: ok ? 'assets/backbone' : 'no model.safetensors',
    fix: ok ? '' : 'npm run pretrain',
  }
}

async function sandbox(): Promise<{
  checks: Check[]
  sandbox: { rung: string; contains: readonly string[]; doesNotContain: readonly string[] }
}> {
  try {
    const r = await probeRungs({ python: process.env.WMRL_PYTHON ?? join(home(), 'venv', 'bin', 'python') })
    return {
      checks: r.checks.map((c) => ({ ...c, name: `sandbox ${c.name}` })),
      sandbox: { rung: r.rung, contains: r.contains, doesNotContain: r.doesNotContain },
    }
  } catch (e) {
    return {
      checks: [{ name: 'sandbox', status: 'missing', detail: messageOf(e), fix: 'npm run setup' }],
      sandbox: { rung: 'E', contains: [], doesNotContain: ['everything'] },
    }
  }
}
