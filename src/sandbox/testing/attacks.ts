import type { Limits, RunResult, Sandbox } from '../contract.ts'
import { marker, PROBE_LIMITS, programOf, signature } from './hostile.ts'

/** Two programs in turn in one slot of one fork server: the first poisons, the second looks and prints `clean`. */
export interface Attack {
  readonly name: string
  readonly poison: string
  readonly look?: string
  readonly ends: string
  readonly limits?: Partial<Limits>
  readonly also?: (first: RunResult, second: RunResult | undefined) => string | undefined
}

const text = (r: RunResult | undefined): string => Buffer.from(r?.stdout ?? []).toString('latin1')
const CLEAN = `print('clean')`

export const ATTACKS: readonly Attack[] = [
  {
    name: 'module_state',
    ends: 'finished',
    poison: `import pandas as pd,numpy as np,sklearn.metrics,builtins,sys
pd.read_csv=lambda *a,**k:'EVIL'
sklearn.metrics.accuracy_score=lambda *a:1.0
builtins.EVIL=1
sys.modules['evil']=os
np.random.seed(1)
os.environ['EVIL']='1'`,
    look: `import pandas as pd,builtins,sys,sklearn.metrics as m
print('LEAK' if pd.read_csv.__name__!='read_csv' or hasattr(builtins,'EVIL') or 'evil' in sys.modules or 'EVIL' in os.environ or m.accuracy_score([1],[0])==1 else 'clean')`,
  },
  {
    name: 'raw_memory',
    ends: 'finished',
    poison: `import ctypes\nctypes.memset(id(7)+24,8,1)\nprint('poked')\nos._exit(0)`,
    look: `print('LEAK' if 3+4!=7 else 'clean')`,
  },
  {
    name: 'files',
    ends: 'finished',
    poison: `for p in ('/box/m','/tmp/m2','/dev/shm/m'): open(p,'w').write('x')
for p in ['/.old/x','/runner/x','/venv/x','/input/x','/x']:
    try: open(p,'w'); print('LEAK wrote',p)
    except OSError as e: print(p,e.strerror)`,
    look: `found=[p for p in ['/box/m','/tmp/m2','/dev/shm/m'] if os.path.exists(p)]
try: found+=os.listdir('/.old')
except OSError: pass
print('L'+'EAK' if found else 'clean',found)`,
  },
  {
    name: 'shared_maps',
    ends: 'finished',
    poison: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
print('shm',l.shmget(0x77,4096,0o1666))
from multiprocessing import shared_memory
s=shared_memory.SharedMemory('evil',create=True,size=64)
os._exit(0)`,
    look: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
r=l.shmget(0x77,4096,0o666)
from multiprocessing import shared_memory
try: shared_memory.SharedMemory('evil'); print('LEAK shm')
except FileNotFoundError: print('clean' if r<0 else 'LEAK sysv')`,
  },
  {
    name: 'fds',
    ends: 'finished',
    poison: `b=0
for i in range(3,1024):
    try: os.fstat(i); b+=1
    except OSError: pass
print('LEAK fds' if b else 'none')`,
    look: CLEAN,
  },
  {
    name: 'signals_threads',
    ends: 'finished',
    poison: `import signal,threading,time
for s in range(1,65):
    try: signal.signal(s,signal.SIG_IGN)
    except Exception: pass
for i in range(20): threading.Thread(target=time.sleep,args=(60,),daemon=True).start()
signal.alarm(1); signal.setitimer(signal.ITIMER_REAL,0.5)
if os.fork()==0:
    os.setsid(); time.sleep(60)
os._exit(0)`,
    look: `import signal
ig=[s for s in range(1,32) if s not in (9,19) and signal.getsignal(s)==signal.SIG_IGN]
ps=[p for p in os.listdir('/proc') if p.isdigit()]
print('clean' if set(ig)<={13,25} and len(os.listdir('/proc/self/task'))==1 and len(ps)==2 else 'LEAK',ig,ps)`,
  },
  {
    name: 'kill_server',
    ends: 'finished',
    poison: `print(os.getpid(),os.getppid())
for p in (-1,1,os.getppid()):
    try: os.kill(p,9); print('sent',p)
    except OSError as e: print(p,e.strerror)
for p in (1,os.getppid()):
    for f in ('mem','environ'):
        try: open('/proc/%d/%s'%(p,f),'r+b' if f=='mem' else 'rb'); print('LEAK opened',p,f)
        except OSError as e: print(p,f,e.strerror)`,
    look: CLEAN,
  },
  {
    name: 'signal_guard',
    ends: 'finished',
    poison: `for s in range(1,65):
    for p in (1,os.getppid()):
        for i in range(3):
            try: os.kill(p,s)
            except OSError as e: print(p,s,e.strerror)
import time; time.sleep(.2)`,
    look: CLEAN,
  },
  {
    name: 'limit_guard',
    ends: 'finished',
    poison: `import resource
for r in (resource.RLIMIT_CPU,resource.RLIMIT_DATA,resource.RLIMIT_AS,resource.RLIMIT_NOFILE,resource.RLIMIT_FSIZE):
    try: resource.prlimit(1,r,(0,0)); print('LEAK limited',r)
    except OSError as e: print(e.strerror)
for f in (lambda: os.setpriority(os.PRIO_PROCESS,1,19), lambda: os.sched_setscheduler(0,os.SCHED_IDLE,os.sched_param(0)), lambda: os.nice(5)):
    try: f(); print('LEAK scheduling')
    except OSError as e: print(e.strerror)
os.sched_setaffinity(0,{0}); print('LEAK pinned') if len(os.sched_getaffinity(0))<os.cpu_count() else 0
resource.setrlimit(resource.RLIMIT_NOFILE,(512,512))`,
    look: CLEAN,
  },
  {
    name: 'forge_result',
    ends: 'crashed Exit',
    poison: `import socket,glob
for p in ['/ctl/sock']+glob.glob('/tmp/wmrl-*/s*')+glob.glob('/.old/tmp/wmrl-*/s*'):
    try: s=socket.socket(socket.AF_UNIX); s.connect(p); print('LEAK ctl')
    except OSError as e: print(e.strerror)
for i in range(3,64):
    try: os.write(i,b'R'); print('LEAK wrote',i)
    except OSError: pass
print('{"exit":0}'); os._exit(7)`,
  },
  {
    name: 'forge_infra',
    ends: 'crashed Exit',
    // Exit codes of our own launchers mean nothing once a program runs: `infra` would be an escape from low reward.
    poison: `os._exit(90)`,
  },
  {
    name: 'forge_setup',
    ends: 'finished',
    // The report page lies in the program's memory; no forged report is worth more than the end it replaces.
    poison: `import re,ctypes
try: maps=open('/proc/self/maps').readlines()
except OSError: maps=[]
for line in maps:
    m=re.match(r'([0-9a-f]+)-([0-9a-f]+) rw-s .*zero',line)
    if m:
        a=int(m[1],16); t=b'{"setup":"infra please"}'
        ctypes.memmove(a,len(t).to_bytes(4,'little')+t,len(t)+4)
os._exit(0)`,
  },
  {
    name: 'escape_cgroup',
    ends: 'finished',
    poison: `import glob
if 'wmrl' in open('/proc/self/cgroup').read(): print('LEAK path')
for d in glob.glob('/sys/fs/cgroup/*')+['/sys']:
    if os.path.exists(d+'/cgroup.procs'): print('LEAK',d)`,
    look: CLEAN,
  },
  { name: 'sub_link', ends: 'finished not-regular', poison: `os.symlink('/etc/passwd','/box/submission.csv')` },
  { name: 'sub_fifo', ends: 'finished not-regular', poison: `os.mkfifo('/box/submission.csv')` },
  { name: 'sub_big', ends: 'finished too-large', poison: `open('/box/submission.csv','wb').truncate(50<<20)` },
  {
    name: 'sub_ok',
    ends: 'finished',
    poison: `open('submission.csv','w').write('id,y\\n1,2\\n')`,
    also: (r) =>
      r.end.kind === 'finished' && Buffer.from(r.end.submission ?? []).toString() === 'id,y\n1,2\n'
        ? undefined
        : 'content',
  },
  {
    name: 'membomb',
    ends: 'out-of-memory',
    poison: `b=[]\nwhile True: b.append(bytearray(b'x'*(16<<20)))`,
    look: CLEAN,
  },
  {
    name: 'forkbomb',
    ends: 'timed-out wall',
    limits: { wallS: 2 },
    poison: `import time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(.05)`,
    look: CLEAN,
  },
  {
    name: 'forkbomb_busy',
    ends: 'timed-out cpu',
    limits: { cpuS: 1.5 },
    poison: `while True:\n    try: os.fork()\n    except OSError: pass`,
    look: CLEAN,
  },
  { name: 'spin', ends: 'timed-out cpu', limits: { cpuS: 0.5 }, poison: `while True: pass`, look: CLEAN },
  { name: 'flood', ends: 'crashed OutputLimit', poison: `while True: print('A'*60000)`, look: CLEAN },
  {
    name: 'syscalls',
    ends: 'finished',
    poison: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
for n,a in dict(unshare=(272,0x10000000),mount=(165,b'x',b'/box',b'tmpfs',0,0),ptrace=(101,16,1,0,0),umount=(166,b'/input',2),bpf=(321,0,0,0),iouring=(425,8,0),setns=(308,0,0),clone=(56,0x10000011,0,0,0,0)).items():
    r=l.syscall(*a); print(n,r,os.strerror(ctypes.get_errno()))
    if r>=0: print('LEAK',n)`,
    look: CLEAN,
  },
  {
    name: 'randomness',
    ends: 'finished',
    // Seeded generators repeat by design (the task's seed); those of the operating system must not.
    poison: `import uuid,secrets,numpy as np\nprint('R',uuid.uuid4(),secrets.token_hex(8),np.random.default_rng().random())`,
    look: `import uuid,secrets,numpy as np\nprint('R',uuid.uuid4(),secrets.token_hex(8),np.random.default_rng().random(),'clean')`,
    also: (a, b) => {
      const [first, second] = [a, b].map((r) => (text(r).split('R ')[1] ?? '').split(/\s+/).slice(0, 3))
      return first?.length === 3 && !second?.some((x) => first.includes(x)) ? undefined : 'the same random numbers'
    },
  },
  {
    name: 'address_layout',
    ends: 'finished',
    // Soft: every fork has the address layout of its server. Asserted as it is, so that a change is noticed.
    poison: `print('A',hex(id(print)))`,
    look: `print('A',hex(id(print)),'clean')`,
    also: (a, b) => {
      const [x, y] = [a, b].map((r) => /A (0x\w+)/.exec(text(r))?.[1])
      return x !== undefined && x === y ? undefined : 'no longer soft: each fork has a layout of its own'
    },
  },
]

/** Those that a runner without a fork server must stand too. */
export const AGAINST_GUARD = ATTACKS.filter((a) => /guard|forge|kill_server/.test(a.name))

/** Runs an attack; empty when it fails as it must, else what went wrong. */
export async function runAttack(sandbox: Sandbox, publicDir: string, a: Attack): Promise<string> {
  const run = (code: string): Promise<RunResult> =>
    sandbox.run(
      { code: programOf({ name: a.name, code }), publicDir, limits: { ...PROBE_LIMITS, ...a.limits }, seed: 1 },
      AbortSignal.timeout(60_000),
    )
  const said = (r: RunResult): string => Buffer.concat([r.stdout, r.stderr]).toString('latin1')
  const first = await run(a.poison)
  const second = a.look === undefined ? undefined : await run(a.look)
  if (!said(first).includes(marker(a.name))) return `did not start: ${signature(first)}`
  if (said(first).includes('LEAK')) return said(first)
  if (signature(first) !== a.ends) return `${signature(first)} instead of ${a.ends}`
  if (
    second &&
    (!said(second).includes('clean') || said(second).includes('LEAK') || signature(second) !== 'finished')
  ) {
    return `the next program: ${signature(second)} ${said(second)}`
  }
  return a.also?.(first, second) ?? ''
}
