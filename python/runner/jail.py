"""A root file system of our own in a mount namespace: what a program may see, and nothing else.

Used by the fork server (rungs A to C) and, where bubblewrap is missing, by the process runner. Everything here runs
before any code of a program. Two ways in: as root with CAP_SYS_ADMIN (no user namespace; the slot's uid is taken
after the mounts), or as an ordinary user inside a user namespace of its own.
"""
import os

from linux import (CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWUTS, MS_BIND,
                   MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT, map_self, mount,
                   pivot_root, umount, unshare)
import socket

OLD = '/.old'
"""Where the host's root stays until `enter` lets go of it; mode 0700, and gone before a program starts."""

SANDBOX_UID = 1000

_KEEP = ((1, 1), (2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))
"""statvfs flag -> mount flag. Flags of the source are locked inside a user namespace: a remount must repeat them."""


def bind_read_only(source, target):
    mount(source, target, None, MS_BIND | MS_REC)
    have = os.statvfs(target).f_flag
    keep = sum(m for s, m in _KEEP if have & s)
    mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | keep)


def separate_mounts(privileged):
    """A mount namespace of our own, inside a user namespace unless privileged. There we are 0: any other uid would
    lose its capabilities at the next exec."""
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWNS | (0 if privileged else CLONE_NEWUSER))
    if not privileged:
        map_self(0, uid, gid)
    mount(None, '/', None, MS_REC | MS_PRIVATE)


def build_root(binds, at, uids):
    """Builds the program's root on a tmpfs over the host directory `at` and moves into it; the host's root ends at OLD.

    `binds` are (host path, path inside) pairs, read-only; `uids` get a name in /etc/passwd. Mount points for one program: /input, /box, /dev/shm, /proc.
    """
    sources = [os.open(s, os.O_PATH | os.O_CLOEXEC) for s, _ in binds]  # before the tmpfs can cover one of them
    mount('tmpfs', at, 'tmpfs', MS_NOSUID | MS_NODEV, 'size=1m,mode=0755')
    for d in ('proc', 'dev', 'dev/shm', 'box', 'etc', 'input', 'runner'):
        os.mkdir(f'{at}/{d}', 0o755)
    os.mkdir(at + OLD, 0o700)
    for (_, inside), fd in zip(binds, sources):
        source, target = f'/proc/self/fd/{fd}', at + inside
        if os.path.isdir(source):
            os.makedirs(target, 0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            open(target, 'a').close()
        bind_read_only(source, target)
        os.close(fd)
    for d in ('bin', 'lib', 'lib64'):
        if os.path.islink(f'/{d}'):  # merged /usr
            os.symlink(os.readlink(f'/{d}'), f'{at}/{d}')
        elif os.path.isdir(f'/{d}'):
            os.mkdir(f'{at}/{d}', 0o755)
            bind_read_only(f'/{d}', f'{at}/{d}')
    os.symlink('box', at + '/tmp')
    with open(at + '/etc/passwd', 'w') as f:
        f.write(''.join(f'sandbox{n}:x:{n}:{n}::/box:/bin/sh\n' for n in uids))
    for name in ('null', 'zero', 'full', 'random', 'urandom'):
        open(f'{at}/dev/{name}', 'w').close()
        mount(f'/dev/{name}', f'{at}/dev/{name}', None, MS_BIND)
    for target, name in (('/proc/self/fd', 'fd'), ('/proc/self/fd/0', 'stdin'), ('/proc/self/fd/1', 'stdout'), ('/proc/self/fd/2', 'stderr')):
        os.symlink(target, f'{at}/dev/{name}')
    mount('/proc', at + '/proc', None, MS_BIND | MS_REC)  # the host's, until `enter` covers it
    os.chdir(at)
    pivot_root('.', '.' + OLD)
    os.chdir('/')


def enter(spec, nested_user):
    """Last mounts of one program, from the root that `build_root` made. The caller is pid 1 of a new pid namespace.

    `nested_user`: also a user namespace of its own, where the program is SANDBOX_UID and no longer 0, and where the
    count of processes is this program's alone.
    """
    unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP)
    mount(None, '/', None, MS_REC | MS_PRIVATE)
    if spec.get('publicDir'):
        bind_read_only(OLD + spec['publicDir'], '/input')
    owner = f"uid={spec['uid']},gid={spec['uid']}" if spec.get('uid') else f'uid={os.getuid()},gid={os.getgid()}'
    mount('tmpfs', '/box', 'tmpfs', MS_NOSUID | MS_NODEV, f"size={spec['diskBytes']},nr_inodes=20000,mode=0700,{owner}")
    mount('tmpfs', '/dev/shm', 'tmpfs', MS_NOSUID | MS_NODEV, f"size={spec['shmBytes']},nr_inodes=2000,mode=1777")
    mount('proc', '/proc', 'proc', MS_NOSUID | MS_NODEV | MS_NOEXEC)
    umount(OLD)
    mount(None, '/', None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    socket.sethostname('sandbox')
    if nested_user:
        uid, gid = os.getuid(), os.getgid()
        unshare(CLONE_NEWUSER)
        map_self(SANDBOX_UID, uid, gid)
