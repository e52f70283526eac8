"""Linux calls that Python 3.11's os module lacks, by ctypes. Every call raises OSError on failure."""
import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x20000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47


def _check(result, what):
    if result < 0:
        e = ctypes.get_errno()
        raise OSError(e, f'{what}: {os.strerror(e)}')
    return result


def prctl(option, a=0, b=0):
    return _check(_libc.prctl(option, a, b, 0, 0), f'prctl {option}')


def die_with_parent():
    """SIGKILL when the parent dies. Cleared by a change of uid: call it again after one."""
    prctl(_PR_SET_PDEATHSIG, 9)


def set_dumpable(on):
    """Not dumpable: /proc/PID/mem, environ and fd belong to root, and no ptrace."""
    prctl(_PR_SET_DUMPABLE, 1 if on else 0)


def become_subreaper():
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def unshare(flags):
    _check(_libc.unshare(flags), 'unshare')


def setns(fd, kind):
    _check(_libc.setns(fd, kind), 'setns')


def mount(source, target, kind=None, flags=0, data=None):
    enc = lambda x: None if x is None else os.fsencode(x)
    _check(_libc.mount(enc(source), enc(target), enc(kind), ctypes.c_ulong(flags), enc(data)), f'mount {target}')


def umount(target):
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f'umount {target}')


def pivot_root(new, old):
    _check(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), 'pivot_root')


def set_ids(uid):
    """Becomes `uid` for good, without supplementary groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    set_dumpable(True)  # else /proc/self belongs to root after the change


def map_self(inside, uid, gid):
    """Makes this process (uid and gid of the namespace outside) `inside` in the user namespace just unshared."""
    for name, text in (('setgroups', 'deny'), ('uid_map', f'{inside} {uid} 1'), ('gid_map', f'{inside} {gid} 1')):
        with open(f'/proc/self/{name}', 'w') as f:
            f.write(text)


def no_new_privs():
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities():
    for cap in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, cap, 0, 0, 0)  # fails past the last capability, or without CAP_SETPCAP
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    _check(_libc.capset(struct.pack('<II', 0x20080522, 0), struct.pack('<6I', 0, 0, 0, 0, 0, 0)), 'capset')


class _Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]


def seccomp(bpf):
    """Installs a classic BPF filter; needs no_new_privs."""
    code = ctypes.create_string_buffer(bpf, len(bpf))
    program = _Program(len(bpf) // 8, ctypes.addressof(code))
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), 'seccomp')


def landlock_abi():
    """0 where the kernel has no Landlock."""
    return max(0, _libc.syscall(444, None, 0, 1))


_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR = 1, 2, 4, 8


def landlock(read_only, read_write, devices):
    """Confines this thread's files to the given paths, and TCP, signals and abstract sockets as far as the ABI can."""
    abi = landlock_abi()
    if abi < 1:
        raise OSError(95, 'no Landlock')
    fs = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        if abi >= since:
            fs |= 1 << bit
    of_files = _FS_EXECUTE | _FS_WRITE_FILE | _FS_READ_FILE | (fs & (3 << 14))
    attr = struct.pack('<QQQ', fs, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    attr = attr[: 8 if abi < 4 else 16 if abi < 6 else 24]
    rules = _check(_libc.syscall(444, attr, len(attr), 0), 'landlock ruleset')

    def allow(path, access):
        try:
            f = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        if not os.path.isdir(path):
            access &= of_files
        _check(_libc.syscall(445, rules, 1, struct.pack('<Qi', access, f), 0), f'landlock rule {path}')
        os.close(f)

    for p in read_only:
        allow(p, _FS_EXECUTE | _FS_READ_FILE | _FS_READ_DIR)
    for p in devices:
        allow(p, fs & (_FS_WRITE_FILE | _FS_READ_FILE | (1 << 14)))
    for p in read_write:
        allow(p, fs)
    no_new_privs()
    _check(_libc.syscall(446, rules, 0), 'landlock restrict')
    os.close(rules)
