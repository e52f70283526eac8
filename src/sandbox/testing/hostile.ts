import type { Limits, Rung, RunResult } from '../contract.ts'

/** What a hostile program is given to attack: made by the test, outside every jail. */
export interface Stage {
  /** Port of a TCP listener on the host's loopback, and name of its abstract socket. */
  readonly port: number
  readonly abstractName: string
  /** Path of a listening socket, and of answers that only the mode protects (0644) or hides (0600). */
  readonly socketPath: string
  readonly openAnswers: string
  readonly closedAnswers: string
  /** A process of the host, with SECRETENV in its environment; and this process. */
  readonly victim: number
  readonly supervisor: number
}

export interface Probe {
  readonly name: string
  readonly code: string
  /** The outcome that the rung's table names, as `signature` writes it; a second one where a race decides. */
  readonly ends: readonly string[]
  /** Outcomes on rungs that differ: B and C lack cgroups, D lacks namespaces. */
  readonly endsOn?: Partial<Record<Rung, readonly string[]>>
  readonly limits?: Partial<Limits>
  /** More to hold; a text says what failed. */
  readonly also?: (r: RunResult, rung: Rung) => string | undefined
  /** A second program that runs at the same time, and must not be seen. */
  readonly sibling?: string
  /** Read-only: may run uncontained, as the negative control. */
  readonly readOnly?: boolean
}

export const PROBE_LIMITS: Limits = {
  cpuS: 20,
  wallS: 20,
  memoryMb: 512,
  outputBytes: 65_536,
  submissionBytes: 1 << 20,
  diskMb: 64,
  processes: 64,
  cpus: 1,
}

export const marker = (name: string): string => `START ${name}`

/** The probe as a program; it says first that it began, so that a jail which cannot start never passes. */
export const programOf = (p: { name: string; code: string }): string =>
  `import os\nos.write(1, b'${marker(p.name)}\\n')\n${p.code}\n`

export function signature(r: RunResult): string {
  const { end } = r
  switch (end.kind) {
    case 'crashed':
      return `crashed ${end.error.type}${end.error.type === 'Signal' ? ` ${end.error.message}` : ''}`
    case 'timed-out':
      return `timed-out ${end.limit}`
    case 'finished':
      return end.submissionIssue ? `finished ${end.submissionIssue}` : 'finished'
    case 'infra':
      return `infra ${end.detail}`
    default:
      return end.kind
  }
}

const textOf = (r: RunResult): string => Buffer.concat([r.stdout, r.stderr]).toString('latin1')
const submissionOf = (r: RunResult): string =>
  r.end.kind === 'finished' && r.end.submission ? Buffer.from(r.end.submission).toString('latin1') : ''

/** Why the run did not go as the rung's table says; nothing when it did. */
export function judge(p: Probe, r: RunResult): string | undefined {
  const text = textOf(r)
  if (!text.includes(marker(p.name))) return `did not start: ${signature(r)} ${text.slice(-300)}`
  const said = `${text}\n${submissionOf(r)}`
  const leak = said.search(/LEAK|SECRETANSWER|SECRETENV|SECRETSIBLING/)
  if (leak >= 0) return said.slice(leak, leak + 200)
  const expected = p.endsOn?.[r.rung] ?? p.ends
  if (!expected.includes(signature(r)))
    return `${signature(r)} instead of ${expected.join(' or ')}: ${text.slice(-300)}`
  return p.also?.(r, r.rung)
}

const FINISHED = ['finished']
const INPUTS = `I = os.path.dirname(os.path.realpath('train.csv'))\n`

export function hostileProbes(s: Stage): Probe[] {
  return [
    {
      name: 'net_loopback',
      ends: FINISHED,
      readOnly: true,
      code: `import socket
for a in [('127.0.0.1',${s.port}),('10.0.0.1',80)]:
    try:
        s=socket.socket(); s.settimeout(1); s.connect(a); print('LEAK connected',a)
    except OSError as e: print(a,e)
try:
    s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.sendto(b'x',('127.0.0.1',${s.port}))
except OSError as e: print(e)`,
    },
    {
      name: 'net_abstract',
      ends: FINISHED,
      readOnly: true,
      // Node 20 pads an abstract name to the full length, later ones do not.
      code: `import socket
for n in ('\\0${s.abstractName}', '\\0${s.abstractName}'.ljust(108, '\\0')):
    try:
        s=socket.socket(socket.AF_UNIX); s.connect(n); print('LEAK abstract')
    except OSError as e: print(e)`,
    },
    {
      name: 'net_pathsock',
      ends: FINISHED,
      readOnly: true,
      code: `import socket
try:
    s=socket.socket(socket.AF_UNIX); s.connect('${s.socketPath}'); print('LEAK path socket')
except OSError as e: print(e)`,
    },
    {
      name: 'read_private',
      ends: FINISHED,
      readOnly: true,
      code: `${INPUTS}for p in ['${s.closedAnswers}','${s.openAnswers}','/proc/1/root${s.openAnswers}','/proc/self/root${s.openAnswers}',I+'/../open/answers.csv',I+'/../private/answers.csv','/proc/%d/cwd/../open/answers.csv'%os.getppid(),'/.old${s.openAnswers}']:
    try: print(p,open(p).read())
    except OSError as e: print(p,e.strerror)`,
    },
    {
      name: 'read_sibling',
      ends: FINISHED,
      readOnly: true,
      sibling: `import time\nopen('sibling-marker','w').write('SECRETSIBLING')\ntime.sleep(1.5)`,
      code: `import time
time.sleep(0.5)
for r,ds,fs in os.walk('/'):
    if r.startswith(('/proc','/sys','/usr','/venv')): ds[:]=[]; continue
    for f in fs:
        if f=='sibling-marker': print('LEAK sibling file',r)
try: L=os.listdir('/proc')
except OSError: L=[]
for p in L:
    if p.isdigit():
        try:
            if 'sibling' in open('/proc/%s/cmdline'%p).read(): print('LEAK sibling cmdline')
            for f in os.listdir('/proc/%s/cwd/'%p):
                if f=='sibling-marker': print('LEAK sibling cwd')
        except OSError: pass`,
    },
    {
      name: 'write_inputs',
      ends: FINISHED,
      code: `${INPUTS}def t(f,*a):
    try: f(*a); print('LEAK' if f.__name__ not in ('chmod','utime') else 'returned',f.__name__,a)
    except OSError as e: print(f.__name__,e.strerror)
def open_w(p): open(p,'a').write('z')
T=I+'/train.csv'
for f,a in [(open_w,(T,)),(open_w,('train.csv',)),(open_w,(I+'/new',)),(os.chmod,(T,0o777)),(os.unlink,(T,)),(os.rename,(T,I+'/t2')),(os.truncate,(T,0)),(os.utime,(T,)),(os.link,(T,'x'))]: t(f,*a)`,
    },
    {
      name: 'write_root',
      ends: FINISHED,
      code: `import sys
for p in ['/x','/usr/x','/etc/passwd','/runner/guard.py',sys.prefix+'/x',sys.prefix+'/lib/python3.11/site-packages/sitecustomize.py','/dev/x','/proc/sys/kernel/hostname','/proc/sys/kernel/core_pattern','/sys/fs/cgroup/x','/bin/sh','/proc/sysrq-trigger','/var/tmp/x','/run/x','/root/x','/.old/x']:
    try:
        open(p,'a').write('z'); print('LEAK wrote',p)
    except OSError as e: print(p,e.strerror)`,
    },
    {
      name: 'forkbomb',
      ends: ['timed-out wall'],
      limits: { wallS: 2.5, cpuS: 60 },
      code: `import time
while True:
    try:
        os.fork()
    except OSError as e: time.sleep(0.05)`,
    },
    {
      name: 'thread_bomb',
      ends: FINISHED,
      code: `import threading,time
n=0
try:
    while n<3000: threading.Thread(target=time.sleep,args=(5,),daemon=True).start(); n+=1
except RuntimeError as e: print(n,e)
if n>=500: print('LEAK threads',n)`,
    },
    {
      name: 'membomb',
      ends: ['out-of-memory'],
      code: `b=[]\nwhile True: b.append(bytearray(b'x'*(16<<20)))`,
    },
    {
      name: 'membomb_children',
      ends: ['out-of-memory'],
      code: `import time
for i in range(12):
    if os.fork()==0:
        b=bytearray(b'y'*(200<<20)); time.sleep(6); os._exit(0)
ok=0
for i in range(12):
    p,s=os.wait(); ok+=s==0
print('LEAK' if ok==12 else 'killed',ok)`,
    },
    {
      name: 'shm_fill',
      ends: FINISHED,
      code: `n=0
try:
    f=open('/dev/shm/big','wb')
    while n<700: f.write(b'x'*(1<<20)); f.flush(); n+=1
    print('LEAK shm',n)
except OSError as e: print('shm',n,e.strerror)`,
    },
    {
      name: 'disk_fill',
      ends: FINISHED,
      endsOn: { D: ['crashed DiskLimit'], 'D-': ['crashed DiskLimit'] },
      code: `n=0
try:
    for k in range(40):
        f=open('big%d'%k,'wb')
        for i in range(32): f.write(b'x'*(1<<20)); f.flush(); n+=1
    import time; time.sleep(3); print('LEAK disk MiB',n)
except OSError as e: print(n,'MiB then',e.strerror)`,
    },
    {
      name: 'inode_fill',
      ends: FINISHED,
      endsOn: { D: ['crashed DiskLimit'], 'D-': ['crashed DiskLimit'] },
      code: `n=0
try:
    while n<60000: open('i%d'%n,'w').close(); n+=1
    print('inodes',n)
except OSError as e: print(n,e.strerror)
import time; time.sleep(1)`,
    },
    {
      name: 'setsid_escape',
      ends: ['timed-out wall'],
      limits: { wallS: 1 },
      code: `import time,signal
if os.fork()==0:
    os.setsid()
    if os.fork()==0:
        for s in range(1,65):
            try: signal.signal(s,signal.SIG_IGN)
            except Exception: pass
        while True: time.sleep(1)
    os._exit(0)
while True: time.sleep(1)`,
    },
    {
      name: 'daemon_after_exit',
      ends: FINISHED,
      also: (r) => (r.cost.wallS < 4 ? undefined : `the daemon held the result for ${r.cost.wallS} s`),
      code: `import time
if os.fork()==0:
    os.setsid()
    if os.fork()==0:
        while True: time.sleep(1)
    os._exit(0)
os._exit(0)`,
    },
    {
      name: 'flood_stdout',
      ends: ['crashed OutputLimit'],
      code: `import sys\nwhile True: sys.stdout.write('A'*65536)`,
    },
    { name: 'flood_stderr', ends: ['crashed OutputLimit'], code: `while True: os.write(2,b'B'*65536)` },
    {
      name: 'sub_symlink',
      ends: ['finished not-regular'],
      code: `os.symlink('${s.openAnswers}','submission.csv')`,
    },
    {
      name: 'sub_symlink_dir',
      ends: ['finished not-regular'],
      code: `os.mkdir('d'); os.symlink('../../../../../../../..${s.openAnswers}','d/x'); os.symlink('d/x','submission.csv')`,
    },
    { name: 'sub_fifo', ends: ['finished not-regular'], code: `os.mkfifo('submission.csv')` },
    { name: 'sub_dir', ends: ['finished not-regular'], code: `os.mkdir('submission.csv')` },
    {
      name: 'sub_huge_sparse',
      ends: ['finished too-large'],
      code: `try: open('submission.csv','wb').truncate(50<<30)
except OSError as e:
    print(e); open('submission.csv','wb').truncate(50<<20)`,
    },
    {
      name: 'sub_swap_race',
      ends: ['finished', 'finished not-regular'],
      also: (r) => {
        const text = submissionOf(r)
        return text === '' || 'id,y\n1,2\n'.startsWith(text) ? undefined : `foreign submission ${text.slice(0, 50)}`
      },
      code: `open('submission.csv','w').write('id,y\\n1,2\\n')
if os.fork()==0:
    os.setsid()
    for i in range(200000):
        try:
            os.symlink('${s.openAnswers}','s2'); os.rename('s2','submission.csv'); open('s3','w').write('id,y\\n1,2\\n'); os.rename('s3','submission.csv')
        except OSError: pass
os._exit(0)`,
    },
    {
      name: 'kill_supervisor',
      ends: FINISHED,
      limits: { wallS: 10 },
      code: `import signal
for p in [1,-1,os.getppid(),${s.supervisor},${s.victim}]:
    for s in (signal.SIGSTOP,signal.SIGKILL):
        try:
            if p==-1 and s==signal.SIGSTOP: continue
            os.kill(p,s); print('sent',p,s)
        except OSError as e: print(p,e.strerror)`,
    },
    {
      name: 'stop_parent',
      ends: ['timed-out wall'],
      endsOn: { D: ['crashed PermissionError'] },
      limits: { wallS: 1 },
      code: `import signal,time\nos.kill(os.getppid(),signal.SIGSTOP)\ntime.sleep(60)`,
    },
    {
      name: 'ptrace',
      ends: FINISHED,
      code: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
for pid in [os.getppid(),1,${s.victim},${s.supervisor}]:
    r=l.syscall(101,16,pid,0,0); print(pid,r,os.strerror(ctypes.get_errno()))
    if r==0: print('LEAK ptrace')
class V(ctypes.Structure): _fields_=[('b',ctypes.c_void_p),('l',ctypes.c_size_t)]
b=ctypes.create_string_buffer(64); v=V(ctypes.addressof(b),64); w=V(0x400000,64)
for p in (${s.victim},${s.supervisor},os.getppid()):
    try: open('/proc/%d/mem'%p,'r+b'); print('LEAK mem',p)
    except OSError as e: print(p,e.strerror)
r=l.syscall(310,${s.victim},ctypes.byref(v),1,ctypes.byref(w),1,0)
print('LEAK vm_readv' if r>0 else r)`,
    },
    {
      name: 'proc_snoop',
      ends: FINISHED,
      readOnly: true,
      code: `ps=[]
try: ps=[p for p in os.listdir('/proc') if p.isdigit()]
except OSError as e: print(e)
print('pids',len(ps))
for p in ps:
    for f in ('environ','cmdline','maps','mem','stack','root/etc/shadow'):
        try:
            d=open('/proc/%s/%s'%(p,f),'rb').read(100000)
            if b'SECRET' in d and b'proc_snoop' not in d: print('LEAK',p,f)
        except (OSError,ValueError): pass
if '${s.victim}' in ps: print('LEAK sees host pids')`,
    },
    {
      name: 'env_snoop',
      ends: FINISHED,
      readOnly: true,
      code: `print(sorted(os.environ))
if 'HOST_SECRET' in os.environ: print('LEAK env')
for p in (os.getppid(),1,${s.victim}):
    try:
        if b'HOST_SECRET' in open('/proc/%d/environ'%p,'rb').read(): print('LEAK penv')
    except OSError as e: print(e.strerror)`,
    },
    {
      name: 'fd_leak',
      ends: FINISHED,
      code: `try: print([(f,os.readlink('/proc/self/fd/'+f)) for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/'+f)])
except OSError: pass
for i in range(3,1024):
    try: os.fstat(i); print('LEAK fd',i)
    except OSError: pass`,
    },
    {
      name: 'monkeypatch',
      ends: FINISHED,
      code: `import sys
for p in [sys.prefix+'/lib/python3.11/site-packages/evil.pth',os.path.expanduser('~/.local/lib/python3.11/site-packages/usercustomize.py'),'sitecustomize.py','sklearn.py','/tmp/sitecustomize.py']:
    try:
        os.makedirs(os.path.dirname(p) or '.',exist_ok=True); open(p,'w').write('import builtins; builtins.EVIL=1'); print('wrote',p)
        if p.startswith(sys.prefix): print('LEAK')
    except OSError as e: print(p,e.strerror)`,
    },
    { name: 'cpu_spin', ends: ['timed-out cpu'], limits: { cpuS: 1 }, code: `while True: pass` },
    {
      name: 'cpu_hog_4',
      ends: FINISHED,
      // Soft without cgroups: the CPU share is not capped, and nothing is asserted of it.
      also: (r, rung) =>
        rung.startsWith('A') && r.cost.cpuS / r.cost.wallS > 1.2
          ? `${r.cost.cpuS} CPU s in ${r.cost.wallS} s`
          : undefined,
      code: `import time
for i in range(3):
    if os.fork()==0: break
t=time.time()
while time.time()-t<1.5: pass`,
    },
    { name: 'sleep_forever', ends: ['timed-out wall'], limits: { wallS: 1 }, code: `import time; time.sleep(1e6)` },
    {
      name: 'zombies',
      ends: FINISHED,
      code: `n=0
for i in range(200):
    try:
        if os.fork()==0: os._exit(0)
        n+=1
    except OSError as e: print(n,e.strerror); break`,
    },
    {
      name: 'cgroup_tamper',
      ends: FINISHED,
      code: `import ctypes,glob
l=ctypes.CDLL(None,use_errno=True)
try:
    if 'wmrl' in open('/proc/self/cgroup').read(): print('LEAK cgroup path')
except OSError as e: print(e)
for d in ['/sys/fs/cgroup','/sys/fs/cgroup/memory','/sys/fs/cgroup/unified']+glob.glob('/sys/fs/cgroup/*/wmrl-*')+glob.glob('/sys/fs/cgroup/memory/*/*/wmrl-*'):
    for f in ('cgroup.procs','memory.limit_in_bytes'):
        try: open(d+'/'+f,'w').write('0'); print('LEAK wrote',d,f)
        except OSError: pass
    try: os.rmdir(d); print('LEAK rmdir',d)
    except OSError: pass
r=l.syscall(165,b'c',os.getcwd().encode(),b'cgroup2',0,0); print('LEAK mount' if r==0 else os.strerror(ctypes.get_errno()))`,
    },
    {
      name: 'longnames',
      ends: FINISHED,
      endsOn: { D: ['finished', 'crashed DiskLimit'] },
      code: `for n in ['a'*255,'\\u202ex','\\U0001F600'*60,'new\\nline',';rm -rf x','\\x1b[31m','..\\\\..']:
    try: open(n,'w').write('x')
    except OSError as e: print(e.strerror)
open(b'bad\\xff\\xfe','w').write('x')
for i in range(3000):
    try: os.mkdir('d'*200); os.chdir('d'*200)
    except OSError as e: print(i,e.strerror); break
os.write(1,b'\\xff\\xfe\\x00\\x1b]0;title\\x07'); os.write(2,b'\\xc3\\x28')`,
    },
    {
      name: 'syscalls',
      ends: FINISHED,
      code: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
def sc(n,*a):
    ctypes.set_errno(0); r=l.syscall(n,*a); return r,os.strerror(ctypes.get_errno())
L=dict(unshare_user=(272,0x10000000),mount=(165,b'x',b'/tmp',b'tmpfs',0,0),bpf=(321,0,0,0),io_uring=(425,8,0),setns=(308,0,0),clone_newuser=(56,0x10000000|17,0,0,0,0),clone3=(435,0,0),keyctl=(250,0,0,0),chroot=(161,b'/tmp'),userfaultfd=(323,0),perf=(298,0,0,0,0,0),obh=(304,0,0,0),pidfd_getfd=(438,0,0,0),personality=(135,0x0040000),pivot=(155,b'.',b'.'))
for k,a in L.items():
    r=sc(*a); print(k,r)
    if r[0]>=0: print('LEAK syscall',k)
    if k.startswith('clone') and r[0]==0: os._exit(0)`,
    },
    {
      name: 'privileges',
      ends: FINISHED,
      code: `import subprocess
for f,a in [(os.setuid,(0,)),(os.nice,(-5,)),(os.sched_setscheduler,(0,os.SCHED_FIFO,os.sched_param(10)))]:
    try: f(*a); print('LEAK',f.__name__)
    except OSError as e: print(f.__name__,e.strerror)
for c in (['su','-c','id'],['mount','-t','tmpfs','x','/tmp'],['newgrp'],['passwd','-S']):
    try:
        r=subprocess.run(c,capture_output=True,text=True,stdin=subprocess.DEVNULL,timeout=3); print(c[0],r.returncode,(r.stdout+r.stderr)[:80])
        if 'uid=0' in r.stdout: print('LEAK root')
    except Exception as e: print(c[0],type(e).__name__)
try:
    for x in open('/proc/self/status'):
        if x.startswith(('CapPrm','CapEff','CapBnd')) and int(x.split()[1],16): print('LEAK' if not x.startswith('CapBnd') else 'bounding', x)
        if x.startswith('NoNewPrivs') and x.split()[1]!='1': print('LEAK', x)
        if x.startswith('Seccomp:') and x.split()[1]!='2': print('LEAK', x)
except OSError: pass`,
    },
    {
      name: 'tty_tiocsti',
      ends: FINISHED,
      code: `import fcntl,termios
for p in ('/dev/tty','/dev/console','/dev/pts/0'):
    try: fcntl.ioctl(open(p),termios.TIOCSTI,b'x'); print('LEAK TIOCSTI')
    except OSError as e: print(p,e.strerror)`,
    },
    { name: 'coredump', ends: ['crashed Signal SIGABRT'], code: `os.abort()` },
    {
      name: 'sysv_ipc_persist',
      ends: FINISHED,
      code: `import ctypes
l=ctypes.CDLL(None,use_errno=True)
print('shmget',l.shmget(0x5eed77,4096,0o1666),'semget',l.semget(0x5eed77,1,0o1666))`,
    },
    {
      name: 'joblib_works',
      ends: FINISHED,
      limits: { memoryMb: 1024 },
      also: (r) => (textOf(r).includes('sum 45') ? undefined : 'joblib gave no result'),
      code: `from joblib import Parallel,delayed
print('sum', sum(Parallel(n_jobs=2)(delayed(abs)(i) for i in range(10))), os.cpu_count())`,
    },
  ]
}
