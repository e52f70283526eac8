"""The one process inside a jail that never runs a program's code. It starts the program, passes its output on, ends
what is left of it, reads the submission and reports. In every jail with a pid namespace it is pid 1, which no process
inside can signal; it is not dumpable, so its memory is closed too.

Protocol on the control socket, both ways in frames of a kind byte, a u32 length (little-endian) and a payload.
From the supervisor: one `J` with the job as JSON; then at most one `K` (end it now). To the supervisor:
`S` the program starts; `O`, `E` its output; `R` the report, last: u32 length of a JSON head, the head, the submission.
`X`: our own set-up failed, with the reason.  A closed socket ends everything.
"""
import errno
import json
import mmap
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time

import linux
import worker

REPORT_BYTES = 16384


def receive(sock, n):
    parts = bytearray()
    while len(parts) < n:
        chunk = sock.recv(n - len(parts))
        if not chunk:
            raise EOFError('the supervisor closed the control socket')
        parts += chunk
    return bytes(parts)


def receive_job(sock):
    kind, n = struct.unpack('<cI', receive(sock, 5))
    if kind != b'J':
        raise ValueError(f'unexpected frame {kind!r}')
    return json.loads(receive(sock, n))


def send(sock, kind, payload=b''):
    sock.sendall(struct.pack('<cI', kind, len(payload)))
    if payload:
        sock.sendall(payload)


class Tree:
    """The program's processes: all others of the pid namespace, or (without one) all descendants of this subreaper."""

    def __init__(self, worker_pid, namespaced):
        self.worker_pid = worker_pid
        self.namespaced = namespaced
        self.status = None

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.worker_pid:
                self.status = status

    def end(self):
        """Returns once no process of the program is left."""
        if self.namespaced:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            while True:
                try:
                    pid, status = os.waitpid(-1, 0)
                except ChildProcessError:
                    return
                if pid == self.worker_pid:
                    self.status = status
        until = time.monotonic() + 20
        while self.reap() and time.monotonic() < until:
            alive = _descendants(os.getpid())
            for sig in (signal.SIGSTOP, signal.SIGKILL):  # stop all first, so that a fork bomb cannot outrun us
                for pid in alive:
                    try:
                        os.kill(pid, sig)
                    except OSError:
                        pass
            time.sleep(0.002)


def _descendants(root):
    found = [root]
    for pid in found:
        try:
            for task in os.listdir(f'/proc/{pid}/task'):
                with open(f'/proc/{pid}/task/{task}/children') as f:
                    found += [int(x) for x in f.read().split()]
        except OSError:
            pass
    return found[1:]


def read_submission(path, limit):
    """(bytes or None, issue or None). Never follows a link, never blocks on a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        return None, None if e.errno == errno.ENOENT else 'not-regular'
    try:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            return None, 'not-regular'
        if st.st_size > limit:
            return None, 'too-large'
        data = bytearray()
        while len(data) < st.st_size:
            chunk = os.read(fd, st.st_size - len(data))
            if not chunk:
                break
            data += chunk
        return bytes(data), None
    except OSError:
        return None, 'not-regular'
    finally:
        os.close(fd)


def _own_report(report):
    """What the worker wrote in the shared page before it ended. A program can forge it by poking memory, and gains
    nothing: every report it could write is worth no more than finishing with the same submission."""
    n = struct.unpack_from('<I', report, 0)[0]
    if not 0 < n <= REPORT_BYTES - 4:
        return None
    try:
        head = json.loads(bytes(report[4 : 4 + n]))
        return head if isinstance(head, dict) else None
    except (ValueError, RecursionError):
        return None


def deafen():
    """Ignores what can be ignored. Pid 1 gets from inside only signals that it handles, and Python handles SIGINT: a
    guard that a program can end would turn the program's failure into trouble of ours."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def serve(ctl, job):
    """Runs one job to its end and exits. `job` is the supervisor's JSON (src/sandbox/job.ts)."""
    namespaced = job['namespaced']
    if not namespaced:
        linux.become_subreaper()
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    sync_r, sync_w = os.pipe()
    wake_r, wake_w = os.pipe()
    for fd in (wake_r, wake_w, out_r, err_r):
        os.set_blocking(fd, False)
    report = mmap.mmap(-1, REPORT_BYTES)
    linux.set_dumpable(False)
    deafen()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        worker.main(job, report, sync_w, out_w, err_w)
        os._exit(70)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    os.kill(os.getpid(), signal.SIGCHLD)  # the child may have ended before the line above
    for fd in (out_w, err_w, sync_w):
        os.close(fd)

    tree = Tree(pid, namespaced)
    started = False
    over_output = False
    left = job['outputBytes']
    poller = select.poll()
    for fd in (ctl.fileno(), out_r, err_r, sync_r, wake_r):
        poller.register(fd, select.POLLIN)

    def forward(fd, kind):
        nonlocal left, over_output
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return False
        if not chunk:
            return False
        if len(chunk) > left:
            over_output = True
        if left and chunk[:left]:
            send(ctl, kind, chunk[:left])
            left -= len(chunk[:left])
        return True

    while tree.status is None and not over_output:
        for fd, _ in poller.poll():
            if fd == wake_r:
                try:
                    os.read(wake_r, 4096)
                except BlockingIOError:
                    pass
                tree.reap()
            elif fd == out_r or fd == err_r:
                if not forward(fd, b'O' if fd == out_r else b'E'):
                    poller.unregister(fd)
            elif fd == sync_r:
                started = os.read(sync_r, 1) == b'r'
                poller.unregister(sync_r)
                if started:
                    send(ctl, b'S')
            elif fd == ctl.fileno():
                frame = ctl.recv(5)
                tree.end()
                if not frame:
                    os._exit(0)
    tree.end()
    if not started and os.read(sync_r, 1) == b'r':
        started = True
        send(ctl, b'S')
    while not over_output and forward(out_r, b'O'):
        pass
    while not over_output and forward(err_r, b'E'):
        pass
    own = _own_report(report)
    if not started:
        send(ctl, b'X', (own or {}).get('setup', f'the worker ended during set-up, status {tree.status}').encode())
        os._exit(0)
    submission, issue = read_submission(job['box'] + '/submission.csv', job['submissionBytes'])
    status = tree.status or 0
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    head = {
        'cpuS': sum(u.ru_utime + u.ru_stime for u in used),  # for jails without cgroups, beside what was polled
        'exit': os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        'signal': os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        'overOutput': over_output,
        'issue': issue,
        'submission': None if submission is None else len(submission),
        'own': own,
    }
    text = json.dumps(head).encode()
    send(ctl, b'R', struct.pack('<I', len(text)) + text + (submission or b''))
    os._exit(0)


def fail(ctl, error):
    """Says that our own set-up failed, and exits."""
    try:
        send(ctl, b'X', worker.trouble(error).encode())
    except OSError:
        pass
    os._exit(0)


def main():
    """Process runner: this is the first process inside the jail; fd 3 is the control socket."""
    linux.die_with_parent()
    ctl = socket.socket(fileno=3)
    os.set_inheritable(3, False)
    try:
        job = receive_job(ctl)
        linux.no_new_privs()
        serve(ctl, job)
    except BaseException as e:
        fail(ctl, e)


if __name__ == '__main__':
    sys.modules['guard'] = sys.modules['__main__']
    main()
