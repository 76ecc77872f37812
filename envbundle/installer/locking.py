"""One change at a time: the lock of a prefix, and the folder of generations that it stands in."""

# ruff: noqa: PTH208 - names of a folder, as text
from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from envbundle.errors import HostError
from envbundle.host.files import atomic_write, host_errors
from envbundle.host.tree import remove_tree

from .layout import RECEIPT, GenerationName

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .layout import Prefix

MARK = "envbundle-generations"
_MARK_TEXT = b"This folder belongs to envbundle: see `envbundle generations PREFIX`.\n"


def is_home(path: Path) -> bool:
    """Say whether ``path`` is a folder of generations, or one in the making when its maker was killed."""
    if path.is_symlink() or not path.is_dir():
        return False
    return (path / MARK).is_file() or all(entry.startswith(f".{MARK}.") for entry in os.listdir(path))


def names(prefix: Prefix) -> list[str]:
    """Return the names of complete generations, oldest first."""
    with contextlib.suppress(FileNotFoundError), host_errors(prefix.home):
        found = [GenerationName.parse(entry) for entry in os.listdir(prefix.home)]
        return [
            str(name)
            for name in sorted(n for n in found if n)
            if (prefix.home / str(name) / RECEIPT).is_file()
        ]
    return []


@contextlib.contextmanager
def locked(prefix: Prefix, *, create: bool = False) -> Iterator[None]:
    """While it is entered nobody else changes this prefix; raises ``HostError`` (E-LOCKED) if somebody does.

    With ``create`` the folder of generations (and the prefix's parents) are made; where it stays without a
    generation, it is removed again at the end.
    """
    made = _make_home(prefix) if create else []
    fd = _take_lock(prefix.home / "lock")
    try:
        yield
    finally:
        if not os.path.lexists(prefix.path) and not names(prefix):
            remove_tree(prefix.home)
            _remove_empty([folder for folder in made if folder != prefix.home])
        os.close(fd)


def _make_home(prefix: Prefix) -> list[Path]:
    """Make the folder of generations, marked as ours; return the folders that were not there."""
    made: list[Path] = []
    try:
        with host_errors(prefix.home):
            for folder in reversed([p for p in (prefix.home, *prefix.home.parents) if not p.exists()]):
                folder.mkdir(mode=0o755)
                made.append(folder)
            if not (prefix.home / MARK).exists():
                atomic_write(prefix.home / MARK, _MARK_TEXT, sync=False)
    except HostError:
        _remove_empty(made)
        raise
    return made


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _take_lock(path: Path) -> int:
    with host_errors(path):
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                    return fd
                os.close(fd)  # removed by the run that held it
            except BlockingIOError as fault:
                holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise HostError(
                    "E-LOCKED",
                    str(path.parent),
                    expected="nobody else at work on this prefix",
                    found=f"process {holder}" if holder else "another process",
                    hint="wait for it to end, then run again",
                ) from fault
            except OSError:
                os.close(fd)
                raise
