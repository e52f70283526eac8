"""The process that becomes the program: gives up every right, then runs the code as `__main__`.

Not covered: the program shares this interpreter and may do to it what it likes. So nothing that is decided here is
trusted: the report about an exception is the program's own word, and the exit code likewise.
"""
import base64
import builtins
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import struct
import sys
import types

import linux

PROGRAM = 'main.py'
_OURS = ('linux', 'jail', 'guard', 'worker', 'fork_server', 'launch')


def main(job, report, sync_w, out_w, err_w):
    """Never returns. Until the byte on `sync_w` a failure is ours; after it, the program's."""
    try:
        _settle(job, sync_w, out_w, err_w)
    except BaseException as e:
        _write(report, {'setup': trouble(e)})
        os._exit(71)
    os.write(3, b'r')
    os.close(3)
    if job['mode'] == 'compile':
        _check_syntax(job['code'], report)
    _run(job, report)


def trouble(error):
    """One line about a failure of ours: class, message, and the place in these files."""
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    where = '' if tb is None else f' ({os.path.basename(tb.tb_frame.f_code.co_filename)}:{tb.tb_lineno})'
    return f'{type(error).__name__}: {error}{where}'


def _write(report, head):
    text = json.dumps(head).encode()[: len(report) - 4]
    report[4 : 4 + len(text)] = text
    struct.pack_into('<I', report, 0, len(text))


def _settle(job, sync_w, out_w, err_w):
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        try:
            signal.signal(number, signal.SIG_DFL)  # the guard ignored them; Python itself ignores the two left out
        except (OSError, ValueError):
            pass
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    sys.stdout.flush()
    null = os.open('/dev/null', os.O_RDWR)
    high = [os.dup(fd) for fd in (null, out_w, err_w, sync_w)]  # clear of 0 to 3
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target < 3)
    os.closerange(4, 1 << 20)
    linux.set_dumpable(True)
    try:
        with open('/proc/self/oom_score_adj', 'w') as f:  # the program goes before its guard
            f.write('500')
    except OSError:
        pass
    box = job['box']
    os.chdir(box)
    for name in job['links']:
        os.symlink(f"{job['input']}/{name}", name)
    for name, value in job['rlimits'].items():
        limit = getattr(resource, f'RLIMIT_{name}')
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    if job['landlock']:
        rules = job['landlock']
        linux.landlock(rules['readOnly'], rules['readWrite'], rules['devices'])
    if job['seccomp'] is not None:  # only the unsafe rung has none
        linux.no_new_privs()
        linux.drop_capabilities()
        linux.seccomp(base64.b64decode(job['seccomp']))


def _check_syntax(code, report):
    try:
        compile(code, PROGRAM, 'exec', dont_inherit=True)
    except BaseException as e:
        _write(report, {'error': _summary(e, e)})
    os._exit(0)


def _summary(error, syntax=None):
    """Class name, message and line of an exception, whatever its methods do."""
    kind = type(error)
    try:
        message = str(error.msg) if syntax is not None and isinstance(error, SyntaxError) else str(error)
    except BaseException:
        message = ''
    line = None
    try:
        if syntax is not None:
            line = getattr(error, 'lineno', None)
        else:
            tb = error.__traceback__
            while tb is not None:
                if tb.tb_frame.f_code.co_filename == PROGRAM:
                    line = tb.tb_lineno
                tb = tb.tb_next
    except BaseException:
        line = None
    number = getattr(error, 'errno', None) if isinstance(error, OSError) else None
    return {
        'type': str(kind.__name__)[:100],
        'message': message[:2000],
        'line': line if isinstance(line, int) else None,
        'errno': number if isinstance(number, int) else None,
        'memory': isinstance(error, MemoryError),
    }


class _SeedNumpy(importlib.abc.MetaPathFinder):
    """Seeds numpy's global generator at the moment numpy.random is first imported."""

    def __init__(self, seed):
        self.seed = seed

    def find_spec(self, name, path=None, target=None):
        if name != 'numpy.random':
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        seed = self.seed

        def exec_module(module):
            load(module)
            module.seed(seed)

        spec.loader.exec_module = exec_module
        return spec


def _seed(seed):
    random.seed(seed)
    numpy = sys.modules.get('numpy')
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    else:
        sys.meta_path.insert(0, _SeedNumpy(seed & 0xFFFFFFFF))


def _run(job, report):
    code = job['code']
    box = job['box']
    _seed(job['seed'])
    for name in _OURS:
        sys.modules.pop(name, None)
    sys.argv[:] = [PROGRAM]
    sys.path[0] = box
    module = types.ModuleType('__main__')
    module.__file__ = f'{box}/{PROGRAM}'
    module.__builtins__ = builtins
    sys.modules['__main__'] = module
    status = 0
    try:
        try:
            with open(PROGRAM, 'w', encoding='utf-8') as f:  # for workers of multiprocessing, which import it again
                f.write(code)
            compiled = compile(code, PROGRAM, 'exec', dont_inherit=True)
        except BaseException as e:
            _write(report, {'syntax': True, 'error': _summary(e, e)})
            _print(e, code, None)
            _leave(1)
        exec(compiled, module.__dict__)
    except SystemExit as e:
        status = _exit_status(e, report)
    except BaseException as e:
        _write(report, {'error': _summary(e)})
        tb = e.__traceback__
        _print(e, code, tb.tb_next if tb is not None else None)
        status = 1
    _leave(status, module)


def _exit_status(error, report):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        status = code & 255
        text = f'exit status {status}'
    else:
        status = 1
        try:
            text = str(code)
            print(text, file=sys.stderr)
        except BaseException:
            text = 'exit'
    if status:
        line = _summary(error)['line']
        _write(report, {'error': {'type': 'Exit', 'message': text[:2000], 'line': line, 'errno': None, 'memory': False}})
    return status


def _print(error, code, tb):
    """The traceback as Python prints it, without our own frames."""
    try:
        import linecache
        import traceback

        linecache.cache[PROGRAM] = (len(code), None, code.splitlines(True), PROGRAM)
        traceback.print_exception(type(error), error, tb)
    except BaseException:
        pass


def _leave(status, module=None):
    """What an interpreter does at its end and a program may count on, without the cost of a full finalisation: join
    threads, run atexit, close the files that only the program's globals hold."""
    try:
        import threading

        threading._shutdown()
        import atexit

        atexit._run_exitfuncs()
    except BaseException:
        pass
    try:
        if module is not None:
            module.__dict__.clear()
            import gc

            gc.collect()
    except BaseException:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
    os._exit(status)
