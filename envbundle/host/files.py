"""Reading and writing single files so that nothing half done is ever seen.

* ``atomic_write``: a temporary file in the same folder, flushed, then renamed over the name.
* ``read_bounded``: never more than a stated number of bytes, whatever the file has become.
* ``host_errors``: turns the operating system's refusals into ``HostError`` with the path in them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import TYPE_CHECKING

from envbundle.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CODES = {
    errno.ENOSPC: ("E-SPACE", "free space on that file system, then run the same command again"),
    errno.EDQUOT: ("E-SPACE", "raise the quota or free space, then run the same command again"),
    errno.EROFS: ("E-READ-ONLY", "the file system is mounted read-only"),
    errno.EACCES: ("E-PERMISSION", "run as a user that may do this"),
    errno.EPERM: ("E-PERMISSION", "run as a user that may do this"),
    errno.ENOENT: ("E-NOT-FOUND", "check the path"),
    errno.ENOTDIR: ("E-NOT-FOUND", "a part of the path is not a folder"),
    errno.EISDIR: ("E-NOT-A-FILE", "a folder stands there"),
    errno.EEXIST: ("E-EXISTS", "something stands there already"),
    errno.ENAMETOOLONG: ("E-NAME-TOO-LONG", "choose a shorter path"),
    errno.ELOOP: ("E-SYMLINK", "a symbolic link stands where none may"),
}


def host_error(fault: OSError, subject: str | Path) -> HostError:
    """Return the ``HostError`` that an ``OSError`` means for ``subject``."""
    code, hint = _CODES.get(fault.errno or 0, ("E-IO", "look at the disk and its log, then run again"))
    return HostError(code, str(subject), found=fault.strerror or str(fault), hint=hint)


@contextlib.contextmanager
def host_errors(subject: str | Path) -> Iterator[None]:
    """Within the block an ``OSError`` becomes a ``HostError`` about ``subject``."""
    try:
        yield
    except OSError as fault:
        raise host_error(fault, subject) from fault


def atomic_write(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = True) -> None:
    """Write ``data`` to ``path`` by a temporary neighbour and a rename; parents must exist.

    ``mode`` holds whatever the umask is. ``sync`` flushes file and folder to the disk. Raises ``HostError``.
    """
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.tmp")
    with host_errors(path):
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fchmod(fd, mode)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if sync:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk; file systems that cannot are left alone."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def read_bounded(path: Path, limit: int) -> bytes:
    """Return a file's bytes; raises ``HostError`` (E-SIZE) if there are more than ``limit``."""
    with host_errors(path), path.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise HostError("E-SIZE", str(path), expected=f"at most {limit} bytes", found="more")
    return data
