"""Hashing many files: one open, as few reads as may be, the digest outside the interpreter's lock.

Small files are read in one piece; big ones go through one buffer a thread, so memory does not depend on
their size. Names of one inode (hard links) are read once.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from envbundle.errors import HostError
from envbundle.host.files import host_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .inventory import File

_SMALL = 1 << 18
_BUFFER = 1 << 20
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WORKERS = 4


def hash_files(files: Iterable[File], *, workers: int | None = None) -> dict[str, str]:
    """Return the sha256 (hex) of each file by its path.

    Raises ``HostError``: E-CAPTURE-CHANGED where a file is no longer as long as it was, else as the
    operating system says.
    """
    first: dict[tuple[int, int], str] = {}
    twins: list[tuple[str, str]] = []
    small: list[File] = []
    large: list[File] = []
    for file in files:
        if file.links > 1:
            known = first.setdefault((file.device, file.inode), file.path)
            if known != file.path:
                twins.append((file.path, known))
                continue
        (small if file.size <= _SMALL else large).append(file)
    digests: dict[str, str] = {}
    large.sort(key=lambda file: -file.size)
    count = workers or min(_WORKERS, os.cpu_count() or 1)
    if large and count > 1:
        # Threads pay for big files alone: for small ones they would wait for each other most of the time.
        with ThreadPoolExecutor(count, "envbundle-hash") as pool:
            pending = [(file.path, pool.submit(_hash_large, file)) for file in large]
            digests.update(_hash_small(small))
            digests.update((path, future.result()) for path, future in pending)
    else:
        digests.update(_hash_small(small))
        digests.update((file.path, _hash_large(file)) for file in large)
    for path, known in twins:
        digests[path] = digests[known]
    return digests


def _hash_small(files: Sequence[File]) -> dict[str, str]:
    digests: dict[str, str] = {}
    sha256 = hashlib.sha256
    for file in files:
        try:
            fd = os.open(file.place, _FLAGS)
            try:
                data = os.read(fd, file.size + 1)
            finally:
                os.close(fd)
        except OSError as fault:
            raise host_error(fault, file.place) from fault
        if len(data) != file.size:
            raise changed(file)
        digests[file.path] = sha256(data).hexdigest()
    return digests


def _hash_large(file: File) -> str:
    state, view, total = hashlib.sha256(), memoryview(bytearray(_BUFFER)), 0
    try:
        fd = os.open(file.place, _FLAGS)
        try:
            while count := os.readv(fd, [view]):
                state.update(view[:count])
                total += count
        finally:
            os.close(fd)
    except OSError as fault:
        raise host_error(fault, file.place) from fault
    if total != file.size:
        raise changed(file)
    return state.hexdigest()


def changed(file: File) -> HostError:
    """Return the error of a file that somebody is writing."""
    return HostError(
        "E-CAPTURE-CHANGED",
        file.place,
        expected="an environment that nobody writes",
        found="a file that changed while it was read",
        hint="stop whoever installs there, then capture again",
    )
