"""From the supervisor to the first process inside a jail; runs no code of a program. Started as `python -I -S`.

argv[1]: JSON. `kind` is `bwrap`, `namespaces`, `plain` (Landlock and unsafe rungs) or `fork-server`; see
src/sandbox/launch.ts. Exits 90 when it could not join its cgroups: never start outside them.
"""
import json
import os
import resource
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jail
import linux


def main():
    linux.die_with_parent()
    o = json.loads(sys.argv[1])
    if os.getppid() != o['parent']:
        sys.exit('the supervisor is gone')
    os.closerange(4, 1 << 20)  # Node passes on what its own parent left open without close-on-exec
    try:
        for path in o['cgroups']:
            with open(path + '/cgroup.procs', 'w') as f:
                f.write('0')
    except OSError as e:
        print(f'joining the cgroup: {e}', file=sys.stderr)
        sys.exit(90)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    {'bwrap': bwrap, 'namespaces': namespaces, 'plain': plain, 'fork-server': fork_server}[o['kind']](o)


def bwrap(o):
    """A slot's uid may be unable to reach the environment or the data (a clone below a home of mode 0700): root binds
    them into a staging directory, in a mount namespace that ends with this process."""
    if o['stage']:
        jail.separate_mounts(True)
        for source, target in o['stage']:
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            else:
                open(target, 'a').close()
            linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
    if o['uid']:
        linux.set_ids(o['uid'])
        linux.die_with_parent()
    linux.no_new_privs()
    os.execve(o['argv'][0], o['argv'], {'PATH': '/usr/bin:/bin'})


def namespaces(o):
    privileged = o['privileged']
    if o['uid'] and not privileged:
        linux.set_ids(o['uid'])
        linux.die_with_parent()
    jail.separate_mounts(privileged)
    jail.build_root(o['binds'], o['at'], o['uids'])
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        os.close(3)
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 255)
    linux.die_with_parent()
    jail.enter(o, nested_user=not privileged)
    if privileged and o['uid']:
        linux.set_ids(o['uid'])
        linux.no_new_privs()
        linux.drop_capabilities()
        linux.die_with_parent()
    else:
        linux.no_new_privs()
        linux.drop_capabilities()
    os.execve(o['argv'][0], o['argv'], o['env'])


def plain(o):
    if o['uid']:
        linux.set_ids(o['uid'])
        linux.die_with_parent()
    os.execve(o['argv'][0], o['argv'], o['env'])


def fork_server(o):
    jail.separate_mounts(o['privileged'])
    jail.build_root(o['binds'], o['at'], o['uids'])
    os.execve(o['argv'][0], o['argv'], o['env'])


if __name__ == '__main__':
    main()
