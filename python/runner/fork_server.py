"""Imports the scientific packages once and forks for every program. Runs inside the root that launch.py built, with
the host's root still at jail.OLD; a program's process lets go of that before the program starts.

Rules, each measured (docs/architecture/sandbox.md): thread variables are 1 before the first import; only imports, never
a computation (OpenMP and OpenBLAS hang in a child after their parent computed); one thread when the imports are done.

argv[1]: JSON {privileged, socket, modules}. stdin: one token a line, a job each; end of file ends the server.
stdout: `ready SECONDS`, then `job TOKEN PID` a job.
"""
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time

import guard
import jail
import linux
import worker  # noqa: F401  (before the fork)


def main():
    linux.die_with_parent()
    options = json.loads(sys.argv[1])
    began = time.perf_counter()
    for name in options['modules']:
        importlib.import_module(name)
    _warm()
    threads = len(os.listdir('/proc/self/task'))
    if threads != 1:
        sys.exit(f'{threads} threads after the imports: a fork would be unsafe')
    with open('/proc/self/status') as f:
        data = next((int(line.split()[1]) * 1024 for line in f if line.startswith('VmData')), 0)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    own = os.open('/proc/self/ns/pid', os.O_RDONLY | os.O_CLOEXEC)
    print(f'ready {time.perf_counter() - began:.3f} {data}', flush=True)
    buffered = b''
    while True:
        chunk = os.read(0, 65536)
        if not chunk:
            return
        buffered += chunk
        *lines, buffered = buffered.split(b'\n')
        for line in lines:
            token = line.decode()
            if options['privileged']:
                linux.unshare(linux.CLONE_NEWPID)  # the next child is pid 1 of a new namespace
            pid = os.fork()
            if pid == 0:
                if not options['privileged']:
                    _between()
                _job(options, token, data)
                os._exit(72)
            if options['privileged']:
                linux.setns(own, linux.CLONE_NEWPID)
            print(f'job {token} {pid}', flush=True)


def _warm():
    """Imports that numpy and pandas put off until first use; no arithmetic."""
    for name in ('pandas.io.parsers', 'pandas.io.formats.csvs', 'threading', 'traceback', 'linecache', 'encodings.idna'):
        try:
            importlib.import_module(name)
        except ImportError:
            pass


def _between():
    """An ordinary user may not return to the host's pid namespace once it has left it, so another process leaves it;
    this returns in the child, pid 1 of the new namespace."""
    linux.die_with_parent()
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open('/dev/null', os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(0, 2)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:  # reaped while SIGCHLD was still ignored
            pass
        os._exit(0)


def _job(options, token, data):
    linux.die_with_parent()
    ctl = socket.socket(socket.AF_UNIX)
    try:
        ctl.connect(jail.OLD + options['socket'])
    except OSError:
        os._exit(73)
    try:
        ctl.sendall(token.encode() + b'\n')
        job = guard.receive_job(ctl)
        for path in job['cgroups']:
            with open(f'{jail.OLD}{path}/cgroup.procs', 'w') as f:
                f.write('0')
        privileged = options['privileged']
        if 'DATA' in job['rlimits']:
            job['rlimits']['DATA'] += data  # what the fork inherits is not the program's
        keep = ctl.fileno()
        os.dup2(os.open('/dev/null', os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(0, 2)
        os.closerange(3, keep)
        os.closerange(keep + 1, 1 << 20)
        jail.enter(job, nested_user=not privileged)
        if privileged and job['uid']:
            linux.set_ids(job['uid'])
        linux.no_new_privs()
        linux.drop_capabilities()
        linux.die_with_parent()
        if os.getppid() != 0:  # of another pid namespace, so 0; anything else: the server is gone
            os._exit(74)
        guard.serve(ctl, job)
    except BaseException as e:
        guard.fail(ctl, e)


if __name__ == '__main__':
    main()
