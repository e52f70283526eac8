/**
 * A classic-BPF filter for x86_64 and aarch64: a list of denied system calls (EPERM); a foreign architecture or x32
 * kills. Not covered: a kernel bug behind a permitted call. The aarch64 table was not tried on such a machine.
 */
export interface FilterOptions {
  /**
   * For Landlock, which has no network or IPC namespace and does not mediate file metadata: refuse `socket()` of every
   * domain (socketpair stays) and SysV IPC, and answer metadata calls with success without doing anything.
   */
  readonly withoutNamespaces?: boolean
}

type Table = Readonly<Record<string, number>>

const DENIED_X64: Table = {
  ptrace: 101,
  process_vm_readv: 310,
  process_vm_writev: 311,
  kexec_load: 246,
  kexec_file_load: 320,
  init_module: 175,
  finit_module: 313,
  delete_module: 176,
  bpf: 321,
  perf_event_open: 298,
  userfaultfd: 323,
  keyctl: 250,
  add_key: 248,
  request_key: 249,
  mount: 165,
  umount2: 166,
  pivot_root: 155,
  chroot: 161,
  swapon: 167,
  swapoff: 168,
  reboot: 169,
  sethostname: 170,
  setdomainname: 171,
  iopl: 172,
  ioperm: 173,
  acct: 163,
  settimeofday: 164,
  clock_settime: 227,
  adjtimex: 159,
  clock_adjtime: 305,
  quotactl: 179,
  open_by_handle_at: 304,
  name_to_handle_at: 303,
  setns: 308,
  unshare: 272,
  move_mount: 429,
  open_tree: 428,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  mount_setattr: 442,
  io_uring_setup: 425,
  io_uring_enter: 426,
  io_uring_register: 427,
  kcmp: 312,
  syslog: 103,
  lookup_dcookie: 212,
  move_pages: 279,
  pidfd_getfd: 438,
  pidfd_open: 434,
  vmsplice: 278,
  personality: 135,
  modify_ldt: 154,
  fanotify_init: 300,
  nfsservctl: 180,
  uselib: 134,
  vhangup: 153,
  process_madvise: 440,
  quotactl_fd: 443,
  memfd_secret: 447,
  setpriority: 141,
  sched_setparam: 142,
  sched_setscheduler: 144,
  sched_setattr: 314,
}

const DENIED_ARM64: Table = {
  ptrace: 117,
  process_vm_readv: 270,
  process_vm_writev: 271,
  kexec_load: 104,
  kexec_file_load: 294,
  init_module: 105,
  finit_module: 273,
  delete_module: 106,
  bpf: 280,
  perf_event_open: 241,
  userfaultfd: 282,
  keyctl: 219,
  add_key: 217,
  request_key: 218,
  mount: 40,
  umount2: 39,
  pivot_root: 41,
  chroot: 51,
  swapon: 224,
  swapoff: 225,
  reboot: 142,
  sethostname: 161,
  setdomainname: 162,
  acct: 89,
  settimeofday: 170,
  clock_settime: 112,
  adjtimex: 171,
  clock_adjtime: 266,
  quotactl: 60,
  open_by_handle_at: 265,
  name_to_handle_at: 264,
  setns: 268,
  unshare: 97,
  move_mount: 429,
  open_tree: 428,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  mount_setattr: 442,
  io_uring_setup: 425,
  io_uring_enter: 426,
  io_uring_register: 427,
  kcmp: 272,
  syslog: 116,
  lookup_dcookie: 18,
  move_pages: 239,
  pidfd_getfd: 438,
  pidfd_open: 434,
  vmsplice: 75,
  personality: 92,
  fanotify_init: 262,
  nfsservctl: 42,
  vhangup: 58,
  process_madvise: 440,
  quotactl_fd: 443,
  memfd_secret: 447,
  setpriority: 140,
  sched_setparam: 118,
  sched_setscheduler: 119,
  sched_setattr: 274,
}

interface Machine {
  readonly audit: number
  readonly denied: Table
  readonly clone: number
  readonly socket: number
  readonly prlimit: number
  /** Answered with success, not done: a program pinned to a busy CPU would look starved. */
  readonly setAffinity: number
  /** shmget, semget, msgget. */
  readonly sysvIpc: readonly number[]
  /** chmod, chown, utime and extended-attribute calls. */
  readonly metadata: readonly number[]
}

const X64: Machine = {
  audit: 0xc000003e,
  denied: DENIED_X64,
  clone: 56,
  socket: 41,
  prlimit: 302,
  setAffinity: 203,
  sysvIpc: [29, 64, 68],
  metadata: [90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466],
}
const ARM64: Machine = {
  audit: 0xc00000b7,
  denied: DENIED_ARM64,
  clone: 220,
  socket: 198,
  prlimit: 261,
  setAffinity: 122,
  sysvIpc: [194, 190, 186],
  metadata: [52, 53, 54, 55, 88, 5, 6, 7, 14, 15, 16, 452, 463, 466],
}

const KILL = 0x80000000
const ALLOW = 0x7fff0000
const errno = (n: number): number => 0x00050000 | n
const EPERM = errno(1)
const ENOSYS = errno(38)
const CLONE3 = 435
const X32_BIT = 0x40000000
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const NAMESPACE_FLAGS = 0x7e020000

const LOAD = 0x20
const JUMP_EQUAL = 0x15
const JUMP_AT_LEAST = 0x35
const JUMP_ANY_BIT = 0x45
const RETURN = 0x06

function op(code: number, ifTrue: number, ifFalse: number, k: number): Buffer {
  const b = Buffer.alloc(8)
  b.writeUInt16LE(code, 0)
  b.writeUInt8(ifTrue, 2)
  b.writeUInt8(ifFalse, 3)
  b.writeUInt32LE(k >>> 0, 4)
  return b
}

/** The filter's instructions, 8 bytes each. */
export function seccompFilter(opts: FilterOptions = {}, arch: string = process.arch): Buffer {
  const m = arch === 'arm64' ? ARM64 : X64
  const program: Buffer[] = [
    op(LOAD, 0, 0, 4),
    op(JUMP_EQUAL, 1, 0, m.audit),
    op(RETURN, 0, 0, KILL),
    op(LOAD, 0, 0, 0),
  ]
  const answer = (numbers: readonly number[], result: number): void => {
    for (const n of numbers) program.push(op(JUMP_EQUAL, 0, 1, n), op(RETURN, 0, 0, result))
  }
  if (m === X64) program.push(op(JUMP_AT_LEAST, 0, 1, X32_BIT), op(RETURN, 0, 0, KILL))
  answer([CLONE3], ENOSYS) // glibc falls back to clone, whose flags a filter can read
  program.push(
    op(JUMP_EQUAL, 0, 4, m.clone),
    op(LOAD, 0, 0, 16),
    op(JUMP_ANY_BIT, 0, 1, NAMESPACE_FLAGS),
    op(RETURN, 0, 0, EPERM),
    op(RETURN, 0, 0, ALLOW),
  )
  // Limits of its own only: the guard runs under the same uid, and a CPU limit of 0 would end it.
  program.push(
    op(JUMP_EQUAL, 0, 4, m.prlimit),
    op(LOAD, 0, 0, 16),
    op(JUMP_EQUAL, 1, 0, 0),
    op(RETURN, 0, 0, EPERM),
    op(RETURN, 0, 0, ALLOW),
  )
  answer([m.setAffinity], errno(0))
  if (opts.withoutNamespaces) {
    answer([m.socket, ...m.sysvIpc], EPERM)
    answer(m.metadata, errno(0))
  }
  answer(Object.values(m.denied), EPERM)
  program.push(op(RETURN, 0, 0, ALLOW))
  return Buffer.concat(program)
}
