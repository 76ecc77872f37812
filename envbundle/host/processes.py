"""Who uses a folder right now, as far as /proc lets this user look."""

# ruff: noqa: PTH115, PTH208 - /proc is read by text, thousands of names at a time
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A process that uses a folder: its id and its command line (at most 200 characters)."""

    pid: int
    command: str


def users_of(folder: Path, *, also: tuple[Path, ...] = ()) -> list[Use]:
    """Return the processes, this one left out, that have something of ``folder`` open, mapped or as a cwd.

    ``also`` are paths (a prefix that leads to the folder) that count where a command line starts with them.
    On systems without /proc, and of processes this user may not look into, nothing is known.
    """
    root = str(folder)
    try:
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    except OSError:
        return []
    others = (pid for pid in pids if pid != os.getpid() and _uses(pid, root, tuple(map(str, also))))
    return [Use(pid=pid, command=_command(pid)) for pid in others]


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _uses(pid: int, root: str, also: tuple[str, ...]) -> bool:
    base = f"/proc/{pid}"
    for link in ("cwd", "exe"):
        if _inside(_readlink(f"{base}/{link}"), root):
            return True
    try:
        if any(_inside(_readlink(f"{base}/fd/{fd}"), root) for fd in os.listdir(f"{base}/fd")):
            return True
    except OSError:
        pass
    words = _read(f"{base}/cmdline").decode("utf-8", "surrogateescape").split("\0")
    if any(_inside(word, place) for word in words[:2] for place in (root, *also)):
        return True
    return f"{root}/".encode("utf-8", "surrogateescape") in _read(f"{base}/maps")


def _command(pid: int) -> str:
    words = _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")
    return " ".join(word for word in words if word)[:200]


def _readlink(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
