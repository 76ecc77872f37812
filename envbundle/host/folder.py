"""Reading a folder of files that somebody may be editing, without leaving it.

* ``files`` lists files by path relative to the folder, in order of their UTF-8 bytes, without
  ``__pycache__`` (what Python writes there is nobody's work).
* A symbolic link to a file inside the folder stands for that file; any other link is refused.
* Each file is opened component by component, never through a link, so that no name leads outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from envbundle.errors import HostError
from envbundle.spec.names import RelPath

from .files import host_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFile:
    """A regular file: its path below the folder, its size in bytes, its permission bits."""

    path: str
    size: int
    mode: int


class FileSource(Protocol):
    """Named files that can be listed and read once each."""

    def files(self) -> tuple[FolderFile, ...]:
        """Return every file, in order of the UTF-8 bytes of the paths."""

    def blocks(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes in order, in blocks of at most 1 MiB; raises ``HostError``."""


class Folder:
    """A folder on this machine (a ``FileSource``)."""

    def __init__(self, root: Path) -> None:
        """Read below ``root``, which itself may be a link."""
        self._root = root

    def files(self) -> tuple[FolderFile, ...]:
        """Return every regular file; raises ``HostError`` (E-SYMLINK, E-NOT-A-FILE) for anything else."""
        found = sorted(self._walk(self._root, ""), key=lambda file: file.path.encode("utf-8"))
        return tuple(found)

    def _walk(self, folder: Path, prefix: str) -> Iterator[FolderFile]:
        with host_errors(folder):
            entries = list(os.scandir(folder))
        for entry in entries:
            path = str(RelPath(prefix + entry.name))
            with host_errors(entry.path):
                info = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                if entry.name != "__pycache__":
                    yield from self._walk(folder / entry.name, path + "/")
            elif stat.S_ISREG(info.st_mode):
                yield FolderFile(path=path, size=info.st_size, mode=stat.S_IMODE(info.st_mode))
            elif stat.S_ISLNK(info.st_mode):
                yield self._linked(path)
            else:
                raise HostError(
                    "E-NOT-A-FILE", entry.path, expected="files and folders", found="a special file"
                )

    def blocks(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes; raises ``HostError``."""
        fd = self._open(path)
        try:
            while True:
                with host_errors(self._root / path):
                    block = os.read(fd, BLOCK)
                if not block:
                    return
                yield block
        finally:
            os.close(fd)

    def _linked(self, path: str) -> FolderFile:
        with host_errors(self._root / path):
            info = (self._root / self._real(path)).stat(follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            raise HostError(
                "E-SYMLINK", str(self._root / path), expected="a link to a file", found="a link to a folder"
            )
        return FolderFile(path=path, size=info.st_size, mode=stat.S_IMODE(info.st_mode))

    def _real(self, path: str) -> str:
        """Return the path below the folder that ``path`` leads to; raises ``HostError`` (E-SYMLINK)."""
        root, place = os.path.realpath(self._root), os.path.realpath(self._root / path)
        if not place.startswith(root.rstrip("/") + "/"):
            raise HostError(
                "E-SYMLINK",
                str(self._root / path),
                expected="a link to a file inside the folder",
                found=f"a link to {place}",
                hint="put a copy of the file in its place",
            )
        return str(RelPath(os.path.relpath(place, root)))

    def _open(self, path: str) -> int:
        *folders, name = self._real(RelPath(path)).split("/")
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with host_errors(self._root / path), contextlib.ExitStack() as opened:
            at = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            opened.callback(os.close, at)
            for folder in folders:
                at = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
                opened.callback(os.close, at)
            fd = os.open(name, flags | os.O_NONBLOCK, dir_fd=at)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise HostError("E-NOT-A-FILE", str(self._root / path), expected="a regular file")
            return fd
