"""Where captured bytes come from, and how they are copied: hashed again as they are written."""

# ruff: noqa: PTH123 - many files; text is cheaper than Path
from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from envbundle.errors import HostError
from envbundle.host.files import host_errors

from .scripts import as_packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .compare import Disk

_BLOCK = 1 << 20
_HEAD = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One file to be carried: its path below the prefix, its digest (hex), size in bytes, and its bytes.

    The bytes are ``data``, or else those of the file at ``place``.
    """

    path: str
    sha256: str
    size: int
    executable: bool = False
    place: str = ""
    data: bytes | None = None

    @classmethod
    def of(cls, path: str, data: bytes, *, executable: bool = False) -> Content:
        """Return a content of given bytes."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(path=path, sha256=digest, size=len(data), executable=executable, data=data)

    def blocks(self) -> Iterator[bytes]:
        """Give the bytes in blocks of at most 1 MiB.

        Raises ``HostError`` (E-CAPTURE-CHANGED) at their end if they are not those that were hashed first.
        """
        if self.data is not None:
            yield self.data
            return
        state = hashlib.sha256()
        with host_errors(self.place), open(self.place, "rb") as stream:
            while block := stream.read(_BLOCK):
                state.update(block)
                yield block
        if state.hexdigest() != self.sha256:
            raise HostError(
                "E-CAPTURE-CHANGED",
                self.place,
                expected=f"sha256:{self.sha256}",
                found=f"sha256:{state.hexdigest()}",
                hint="somebody writes there: capture again when it is quiet",
            )

    def head(self) -> bytes:
        """Return the first bytes, enough to know what kind of file it is."""
        if self.data is not None:
            return self.data[:_HEAD]
        with host_errors(self.place), open(self.place, "rb") as stream:
            return stream.read(_HEAD)

    def copy_to(self, place: Path) -> None:
        """Write a new file with these bytes and a plain mode; its folder must exist."""
        mode = 0o755 if self.executable else 0o644
        with host_errors(place):
            fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as stream:
                self.write(stream)
                os.fchmod(fd, mode)

    def write(self, stream: BinaryIO, seen: Callable[[bytes], object] | None = None) -> None:
        """Write the bytes to ``stream``; ``seen`` hears of each block."""
        for block in self.blocks():
            if seen is not None:
                seen(block)
            stream.write(block)


def content_of(disk: Disk, path: str) -> Content:
    """Return a file of the environment as a bundle holds it: a script with ``#!python``, others as is."""
    file = disk.inventory.files[path]
    restored = disk.restored.get(path)
    if restored is not None:
        return Content.of(path, restored, executable=file.executable)
    script = disk.scripts.get(path)
    if script is not None and script.packed != disk.digests[path]:
        with host_errors(file.place), open(file.place, "rb") as stream:
            data = as_packed(stream.read(), disk.inventory.prefixes)
        return Content.of(path, data, executable=True)
    return Content(
        path=path,
        sha256=disk.digests[path],
        size=file.size,
        executable=file.executable,
        place=file.place,
    )


_ELF, _FATBIN, _ARCHIVE = b"\x7fELF", b"\x50\xed\x55\xba", b"!<arch>\n"


def is_compiled(head: bytes, path: str) -> bool:
    """Say whether a file is compiled code, told by its first bytes: what no overlay may hold."""
    return head[:4] in (_ELF, _FATBIN) or head[:8] == _ARCHIVE or path.endswith(".pyc")
