"""Running a program without a network: the small launcher that cuts it off and then becomes the program.

* First choice: a network namespace of its own with loopback up (torch.distributed and NCCL need it), inside
  a user namespace where the user may not make one otherwise (namespaces(7)).
* Second: a seccomp filter that refuses every socket but AF_UNIX and netlink, io_uring (which opens sockets
  of its own) and foreign system call tables (seccomp(2)); it is inherited by all children.
* Neither: the caller refuses. The launcher says beforehand which of the two this machine grants.

The launcher is text, run by the environment's interpreter with ``-I -S``: stdlib and ctypes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from envbundle.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.host.run import Runner

Isolation = Literal["namespace", "seccomp", "none"]

LAUNCHER = r"""
import ctypes, os, platform, struct, sys

libc = ctypes.CDLL(None, use_errno=True)

def must(answer):
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer

def put(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)

def namespace():
    NEWUSER, NEWNET = 0x10000000, 0x40000000
    if libc.unshare(NEWNET) != 0:
        user, group = os.geteuid(), os.getegid()
        must(libc.unshare(NEWUSER | NEWNET))
        put("/proc/self/setgroups", "deny")
        put("/proc/self/uid_map", "%d %d 1" % (user, user))
        put("/proc/self/gid_map", "%d %d 1" % (group, group))
    fd = must(libc.socket(2, 2, 0))  # AF_INET, SOCK_DGRAM
    try:
        request = ctypes.create_string_buffer(struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # UP, RUNNING
        must(libc.ioctl(fd, 0x8914, request))  # SIOCSIFFLAGS
    finally:
        os.close(fd)

def seccomp():
    arch, socket, uring = {
        "x86_64": (0xC000003E, 41, 425),
        "aarch64": (0xC00000B7, 198, 425),
    }[platform.machine()]
    ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
    LOAD, EQUAL, ABOVE, RETURN = 0x20, 0x15, 0x35, 0x06
    rows = [
        (LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, 0), (ABOVE, 0, 1, 0x40000000), (RETURN, 0, 0, REFUSE),
        (EQUAL, 0, 1, uring), (RETURN, 0, 0, REFUSE),
        (EQUAL, 1, 0, socket), (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, 16), (EQUAL, 2, 0, 1), (EQUAL, 1, 0, 16), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW),
    ]
    table = b"".join(struct.pack("HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(table, len(table))
    program = struct.pack("HP", len(rows), ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(program, len(program))
    must(libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    must(libc.prctl(22, 2, holder, 0, 0))  # PR_SET_SECCOMP, filter

way, argv = sys.argv[1], sys.argv[2:]
if way == "probe":
    for name, cut in (("namespace", namespace), ("seccomp", seccomp)):
        child = os.fork()
        if child == 0:
            try:
                cut()
            except BaseException:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            print(name)
            break
    else:
        print("none")
else:
    if way != "open":
        {"namespace": namespace, "seccomp": seccomp}[way]()
    os.execvpe(argv[0], argv, os.environ)
"""


def launcher(interpreter: str | Path, way: Isolation | Literal["open", "probe"]) -> list[str]:
    """Return the words that start a program in isolation ``way``; the program's own words follow them."""
    return [str(interpreter), "-I", "-S", "-c", LAUNCHER, way]


def isolation_here(interpreter: str | Path, runner: Runner) -> Isolation:
    """Return what this machine grants: a namespace, a seccomp filter, or none."""
    try:
        answer = runner(launcher(interpreter, "probe"), timeout=30.0)
    except HostError:
        return "none"
    word = answer.text.strip()
    return cast("Isolation", word) if answer.status == 0 and word in ("namespace", "seccomp") else "none"
