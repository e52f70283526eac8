/**
 * A real SkyRL server on CPU with a random Qwen3: no GPU, no torch, no model hub. Everything lies under .wmrl/skyrl
 * (1.1 GB). `install()` is idempotent; `start()` resolves once the server has answered a sample.
 */
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const root = dirname(dirname(here))
const VERSION = '0.4.0'
export const home = join(process.env.WMRL_HOME ?? join(root, '.wmrl'), 'skyrl')
export const modelDir = join(home, 'model')
const venv = join(home, `venv-${VERSION}`)
const uv = join(home, 'uv', 'bin', 'uv')

const say = (line) => process.stderr.write(`skyrl: ${line}\n`)

function must(program, args, o = {}) {
  const r = spawnSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], ...o })
  if (r.status === 0) return r.stdout
  const why = r.error?.message ?? (r.stderr || r.stdout).trim().split('\n').slice(-3).join(' | ')
  throw new Error(`${program.split('/').pop()} ${args.slice(0, 3).join(' ')}: ${why}`)
}

/** A Python 3.12 to 3.14: WMRL_SKYRL_PYTHON, the PATH, or pyenv's. */
function python() {
  const pyenv = [12, 13, 14].flatMap((minor) => {
    const r = spawnSync('sh', ['-c', `ls -d "${homedir()}"/.pyenv/versions/3.${minor}.*/bin/python 2>/dev/null`], {
      encoding: 'utf8',
    })
    return r.stdout.split('\n').filter(Boolean)
  })
  const all = [process.env.WMRL_SKYRL_PYTHON, ...pyenv, 'python3.12', 'python3.13', 'python3.14'].filter(Boolean)
  for (const p of all) {
    const r = spawnSync(p, ['-c', 'import sys, venv; print(sys.version_info[:2] >= (3, 12))'], { encoding: 'utf8' })
    if (r.status === 0 && r.stdout.trim() === 'True') return p
  }
  throw new Error('SkyRL needs Python 3.12, 3.13 or 3.14; install one, or name it in WMRL_SKYRL_PYTHON')
}

const STAND_INS = {
  peft: `"""Stand-in: SkyRL's JAX back end only builds LoraConfig(...) and saves it."""
import json
import pathlib


class LoraConfig:
    def __init__(self, **kw):
        self.kw = {"peft_type": "LORA", "task_type": None, **kw}

    def save_pretrained(self, directory):
        text = json.dumps(self.kw, indent=2, sort_keys=True)
        (pathlib.Path(directory) / "adapter_config.json").write_text(text)
`,
  torch: `"""Stand-in: the text path only names torch.Tensor."""


class Tensor:
    pass
`,
}

export function install() {
  mkdirSync(home, { recursive: true })
  if (!existsSync(join(venv, 'ok'))) {
    const py = python()
    say(`installing SkyRL ${VERSION} with its JAX back end (1.1 GB, some minutes) by ${py}`)
    // The server starts its engine again through uv.
    if (!existsSync(uv)) {
      must(py, ['-m', 'venv', join(home, 'uv')])
      must(join(home, 'uv', 'bin', 'python'), ['-m', 'pip', 'install', '-q', 'uv'])
    }
    rmSync(venv, { recursive: true, force: true })
    must(uv, ['venv', '-q', '--python', py, '--no-python-downloads', venv])
    const target = join(venv, 'bin', 'python')
    // peft pulls torch, torch 5 GB of CUDA; the JAX back end needs neither but for one dataclass.
    const overrides = join(home, 'overrides.txt')
    writeFileSync(overrides, ['torch', 'triton', 'accelerate'].map((p) => `${p}; sys_platform == 'never'\n`).join(''))
    must(uv, [
      'pip',
      'install',
      '-q',
      '--python',
      target,
      '--overrides',
      overrides,
      '--constraints',
      join(here, 'requirements.lock.txt'),
      `skyrl[tinker,jax]==${VERSION}`,
      'aiohttp',
    ])
    must(uv, ['pip', 'uninstall', '-q', '--python', target, 'peft'])
    const site = must(target, ['-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])']).trim()
    for (const [name, text] of Object.entries(STAND_INS)) {
      mkdirSync(join(site, name), { recursive: true })
      writeFileSync(join(site, name, '__init__.py'), text)
    }
    must(target, ['-c', 'import skyrl.tinker.api'])
    writeFileSync(join(venv, 'ok'), '')
  }
  if (!existsSync(join(modelDir, 'model.safetensors')))
    must(join(venv, 'bin', 'python'), [join(here, 'make_tiny_qwen3.py'), modelDir])
}

export async function start({ port = Number(process.env.WMRL_SKYRL_PORT ?? 8731), timeoutS = 900 } = {}) {
  install()
  const url = `http://127.0.0.1:${port}`
  const run = join(home, `run-${port}`)
  // A new database on purpose: the model ids of an earlier server mean nothing to this one.
  rmSync(run, { recursive: true, force: true })
  mkdirSync(run, { recursive: true })
  const log = join(run, 'log')
  const fd = openSync(log, 'w')
  const backend = { max_lora_adapters: 4, max_lora_rank: 8, sample_max_num_sequences: 8 }
  say(`starting the server at ${url} (its engine loads for about a minute)`)
  const child = spawn(
    uv,
    [
      'run',
      '--no-project',
      '-m',
      'skyrl.tinker.api',
      '--host',
      '127.0.0.1',
      '--port',
      String(port),
      // The default back end is another one.
      '--base-model',
      modelDir,
      '--backend',
      'jax',
      '--backend-config',
      JSON.stringify(backend),
      '--checkpoints-base',
      join(run, 'checkpoints'),
      '--database-url',
      `sqlite:///${join(run, 'tinker.db')}`,
    ],
    {
      cwd: run,
      stdio: ['ignore', fd, fd],
      env: {
        ...process.env,
        VIRTUAL_ENV: venv,
        PATH: `${dirname(uv)}:${process.env.PATH}`,
        JAX_PLATFORMS: 'cpu',
        HF_HUB_OFFLINE: '1',
        TRANSFORMERS_OFFLINE: '1',
        JAX_COMPILATION_CACHE_DIR: join(home, 'jax-cache'),
        JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS: '0',
        JAX_PERSISTENT_COMPILATION_CACHE_MIN_ENTRY_SIZE_BYTES: '-1',
        // Cheaper code, quicker compilation.
        JAX_DISABLE_MOST_OPTIMIZATIONS: '1',
      },
    },
  )
  let exited
  child.once('exit', (code) => {
    exited = code ?? -1
  })
  const stop = async () => {
    if (exited !== undefined) return
    child.kill('SIGTERM')
    for (let i = 0; i < 100 && exited === undefined; i++) await sleep(100)
    if (exited === undefined) child.kill('SIGKILL')
  }
  const deadline = Date.now() + timeoutS * 1000
  const post = async (path, body) => {
    const r = await fetch(`${url}/api/v1${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(45_000),
    })
    if (r.status !== 200) throw new Error(`${path}: ${r.status}`)
    return r
  }
  // healthz answers long before the engine has loaded: one real sample is the test.
  let id
  for (;;) {
    if (exited !== undefined)
      throw new Error(`the server ended (${exited}): ${readFileSync(log, 'utf8').split('\n').slice(-12).join('\n')}`)
    if (Date.now() > deadline) {
      await stop()
      throw new Error(`no sample within ${timeoutS} s; see ${log}`)
    }
    try {
      if (id === undefined) {
        const prompt = { chunks: [{ type: 'encoded_text', tokens: [5] }] }
        const r = await post('/asample', {
          base_model: modelDir,
          num_samples: 1,
          prompt,
          sampling_params: { max_tokens: 1, seed: 1 },
        })
        id = (await r.json()).request_id
      }
      await post('/retrieve_future', { request_id: id })
      return { url, stop, log }
    } catch {
      await sleep(500)
    }
  }
}
