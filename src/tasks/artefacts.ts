import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { MissingError, messageOf, TaskError } from '../core/index.ts'
import type { ArtefactPin } from './catalogue.ts'
import { NotInstalled, runClient } from './client.ts'

export interface FetchOptions {
  /** Folder of the artefacts, under their registry names. */
  readonly dir: string
  /** A Python with pip. */
  readonly python: string
  readonly signal: AbortSignal
  readonly log: (line: string) => void
}

const DOWNLOAD_CEILING_MS = 30 * 60_000

export async function sha256Of(path: string): Promise<string> {
  const h = createHash('sha256')
  for await (const chunk of createReadStream(path)) h.update(chunk as Buffer)
  return h.digest('hex')
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )

/** Whether an artefact lies there, whole. */
export async function haveArtefact(pin: ArtefactPin, dir: string): Promise<boolean> {
  const path = join(dir, pin.file)
  return (await exists(path)) && (await sha256Of(path)) === pin.sha256
}

/**
 * The path of a pinned artefact; fetched by the registry's own client unless it lies there with the right digest. It is
 * written in a folder of its own and renamed when the digest fits, so that a killed download leaves nothing under its name.
 * @throws MissingError where this machine has no client, no network or no such package
 * @throws TaskError where what came is not what was pinned
 */
export async function fetchArtefact(pin: ArtefactPin, o: FetchOptions): Promise<string> {
  const path = join(o.dir, pin.file)
  if (await haveArtefact(pin, o.dir)) return path
  await mkdir(o.dir, { recursive: true })
  await sweep(o.dir)
  const tmp = await mkdtemp(join(o.dir, `.fetch-${process.pid}-`))
  try {
    o.log(`fetching ${pin.spec} (${pin.registry})`)
    await download(pin, tmp, o)
    const got = join(tmp, pin.file)
    if (!(await exists(got)))
      throw new TaskError(`${pin.registry} gave ${(await readdir(tmp)).join(', ') || 'nothing'} for ${pin.spec}`)
    const digest = await sha256Of(got)
    if (digest !== pin.sha256)
      throw new TaskError(
        `${pin.file} has SHA-256 ${digest}, pinned is ${pin.sha256}; the registry serves another file`,
      )
    await rename(got, path)
    return path
  } finally {
    await rm(tmp, { recursive: true, force: true })
  }
}

/** Removes what killed downloads of other processes left. */
async function sweep(dir: string): Promise<void> {
  for (const name of await readdir(dir)) {
    const pid = Number(/^\.fetch-(\d+)-/.exec(name)?.[1] ?? 0)
    if (pid > 0 && !alive(pid)) await rm(join(dir, name), { recursive: true, force: true })
  }
}

export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (e) {
    return (e as NodeJS.ErrnoException).code === 'EPERM'
  }
}

async function download(pin: ArtefactPin, tmp: string, o: FetchOptions): Promise<void> {
  const run = (program: string, args: readonly string[]) =>
    runClient(program, args, { cwd: tmp, signal: o.signal, ceilingMs: DOWNLOAD_CEILING_MS })
  const again = 'see to the network, then run the same command again'
  try {
    switch (pin.registry) {
      case 'pypi': {
        const pip = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--no-cache-dir', '--disable-pip-version-check']
        const r = await run(o.python, [...pip, '--dest', tmp, pin.spec])
        if (r.code === 0) return
        if (/No module named pip/.test(r.lastError))
          throw new MissingError(`${o.python} has no pip`, 'run: npm run setup')
        throw new MissingError(`pip could not fetch ${pin.spec} (${r.lastError})`, again)
      }
      case 'npm': {
        const r = await run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', tmp, pin.spec])
        if (r.code === 0) return
        throw new MissingError(`npm could not fetch ${pin.spec} (${r.lastError || `exit code ${r.code}`})`, again)
      }
      case 'apt': {
        const get = ['-o', 'APT::Sandbox::User=root', 'download', pin.spec]
        let r = await run('apt-get', get)
        if (r.code !== 0 && process.getuid?.() === 0) {
          // A fresh machine has no package lists.
          await run('apt-get', ['update'])
          r = await run('apt-get', get)
        }
        if (r.code === 0) return
        const fix =
          process.getuid?.() === 0
            ? again
            : `let root run: apt-get update; or put ${pin.file} into ${o.dir} and run the same command again`
        throw new MissingError(`apt-get could not fetch ${pin.spec} (${r.lastError})`, fix)
      }
    }
  } catch (e) {
    if (!(e instanceof NotInstalled)) throw e
    throw new MissingError(
      `${pin.spec} needs ${messageOf(e).split(' ')[0]}, which this machine lacks`,
      pin.registry === 'apt' ? `put ${pin.file} into ${o.dir} and run the same command again` : `install ${e.program}`,
      { cause: e },
    )
  }
}
