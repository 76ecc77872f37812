"""Writing a tree below one root so that no name in it can lead outside.

* Every path is walked from the root's descriptor, one component at a time, with O_NOFOLLOW: a symbolic link
  that a bundle placed is never followed, neither as a folder nor as a file.
* A file is made with O_EXCL: nothing that stands there is ever written into.
* Modes are set on the open descriptor, so they hold whatever the umask is; folders get 0755.
* Folder descriptors are cached: creating a small file costs one open, one write and one fchmod.
* What ``write`` returns was computed from the very bytes that were handed to the kernel.

A ``Tree`` belongs to one thread; ``again`` gives another one over the same root.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from envbundle.errors import HostError, IntegrityError

from .files import host_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
FICLONE = 0x40049409  # _IOW(0x94, 9, int) of linux/fs.h, the same on x86_64 and aarch64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CACHE = 96
_BLOCK = 1 << 20
# Hashed, then copied by the kernel while still in the processor's cache: a third of the cost of 32 MiB.
_PIECE = 1 << 18


class Written(NamedTuple):
    """What a file is after writing: size in bytes, sha256 as hex, mtime in ns, inode."""

    size: int
    sha256: str
    mtime_ns: int
    inode: int


class Tree:
    """A root folder that is read and written through descriptors; see the module's rules."""

    def __init__(self, root: Path) -> None:
        """Open ``root``, which must be a real folder; raises ``HostError``."""
        self.root = root
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as fault:
            raise host_error(fault, root) from fault
        self.device = os.fstat(self._root).st_dev
        self._folders: dict[str, int] = {}

    @classmethod
    def create(cls, root: Path) -> Tree:
        """Make the folder ``root`` with mode 0755 and open it; its parent must exist, it must not."""
        try:
            root.mkdir(mode=0o755)
            root.chmod(0o755)
        except OSError as fault:
            raise host_error(fault, root) from fault
        return cls(root)

    def again(self) -> Tree:
        """Return another tree over the same root, for another thread."""
        return Tree(self.root)

    def close(self) -> None:
        """Give all descriptors back."""
        for fd in (*self._folders.values(), self._root):
            os.close(fd)
        self._folders, self._root = {}, -1

    def __enter__(self) -> Tree:  # noqa: PYI034 - typing.Self is Python 3.11's
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def folder(self, path: str, *, create: bool = True) -> int:
        """Return a descriptor of the folder ``path`` ('' is the root), made with its parents if need be.

        It stays the tree's own and is good until the next call. Raises ``IntegrityError`` (E-PATH) where a
        link or a file stands in the way, ``HostError`` otherwise (E-NOT-FOUND without ``create``).
        """
        if not path:
            return self._root
        known = self._folders.pop(path, None)
        if known is not None:
            self._folders[path] = known  # now the most recent
            return known
        parts = path.split("/")
        depth = len(parts) - 1
        while depth and "/".join(parts[:depth]) not in self._folders:
            depth -= 1
        fd = self._folders["/".join(parts[:depth])] if depth else self._root
        for end in range(depth + 1, len(parts) + 1):
            fd = self._descend(fd, parts[end - 1], "/".join(parts[:end]), create=create)
            self._folders["/".join(parts[:end])] = fd
        while len(self._folders) > max(_CACHE, len(parts)):
            oldest = next(iter(self._folders))
            os.close(self._folders.pop(oldest))
        return fd

    def _descend(self, parent: int, name: str, path: str, *, create: bool) -> int:
        made = False
        try:
            if create:
                try:
                    os.mkdir(name, 0o755, dir_fd=parent)
                    made = True
                except FileExistsError:
                    pass
            fd = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as fault:
            if fault.errno in (errno.ELOOP, errno.ENOTDIR):
                raise IntegrityError(
                    "E-PATH", ascii(path), expected="a real folder", found="a link or a file stands there"
                ) from fault
            raise host_error(fault, self.root / path) from fault
        if made:
            os.fchmod(fd, 0o755)
        return fd

    def _split(self, path: str, *, create: bool = True) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        return self.folder(parent, create=create), name

    def new_file(self, path: str, mode: int) -> NewFile:
        """Start the file ``path``; its bytes go to ``NewFile.write``. Raises E-PATH if one is there."""
        parent, name = self._split(path)
        try:
            return NewFile(os.open(name, _NEW, 0o600, dir_fd=parent), self.root / path, mode)
        except OSError as fault:
            raise self._taken(fault, path) from fault

    def write(self, path: str, data: bytes | memoryview, mode: int) -> Written:
        """Make the file ``path`` with ``data`` and return what was written; raises as ``new_file``."""
        file = self.new_file(path, mode)
        try:
            file.write(data)
            return file.finish()
        except BaseException:
            file.abandon()
            raise

    def symlink(self, path: str, link: str) -> None:
        """Make the symbolic link ``path`` with the text ``link``; raises as ``new_file``."""
        parent, name = self._split(path)
        try:
            os.symlink(link, name, dir_fd=parent)
        except OSError as fault:
            raise self._taken(fault, path) from fault

    def remove(self, path: str) -> None:
        """Remove the file or link ``path``."""
        parent, name = self._split(path, create=False)
        try:
            os.unlink(name, dir_fd=parent)
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault

    def set_folder_mode(self, path: str, mode: int) -> None:
        """Set the mode of a folder that another program made."""
        try:
            os.fchmod(self.folder(path, create=False), mode)
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault

    def stat(self, path: str) -> os.stat_result | None:
        """Return the status of ``path``, links not followed, or None where nothing is."""
        try:
            parent, name = self._split(path, create=False)
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except HostError as fault:
            if fault.code == "E-NOT-FOUND":
                return None
            raise
        except IntegrityError:
            return None  # a file or a link where its folder was
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault

    def readlink(self, path: str) -> str:
        """Return the text of a symbolic link."""
        parent, name = self._split(path, create=False)
        try:
            return os.readlink(name, dir_fd=parent)
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault

    def open_file(self, path: str) -> int:
        """Open the regular file ``path`` for reading and return its descriptor, which the caller closes."""
        parent, name = self._split(path, create=False)
        try:
            fd = os.open(name, _READ, dir_fd=parent)
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise HostError("E-NOT-A-FILE", str(self.root / path), expected="a regular file")
        return fd

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of ``path``; raises ``HostError`` (E-SIZE) where there are more than ``limit``."""
        with os.fdopen(self.open_file(path), "rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise HostError("E-SIZE", str(self.root / path), expected=f"at most {limit} bytes", found="more")
        return data

    def digest(self, path: str) -> str:
        """Return the sha256 of the file ``path`` as hex."""
        fd = self.open_file(path)
        try:
            return _hash(fd)
        except OSError as fault:
            raise host_error(fault, self.root / path) from fault
        finally:
            os.close(fd)

    def link(self, other: Tree, source: str, path: str) -> None:
        """Make ``path`` another name of the file ``source`` of ``other``; raises ``HostError``."""
        theirs, old = other._split(source, create=False)
        parent, name = self._split(path)
        try:
            os.link(old, name, src_dir_fd=theirs, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as fault:
            raise self._taken(fault, path) from fault

    def clone(self, other: Tree, source: str, path: str, mode: int) -> Written | None:
        """Share the blocks of ``source`` with the new file ``path`` (reflink), keeping its mtime.

        Returns None, and leaves nothing, where the file system cannot. ``sha256`` of the answer is '':
        no byte was read.
        """
        fd = other.open_file(source)
        try:
            file = self.new_file(path, mode)
            try:
                fcntl.ioctl(file.fd, FICLONE, fd)
            except OSError as fault:
                file.abandon()
                self.remove(path)
                if fault.errno in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS):
                    return None
                raise host_error(fault, self.root / path) from fault
            return file.finish(hashed=False, times_of=os.fstat(fd))
        finally:
            os.close(fd)

    def copy(self, other: Tree, source: str, path: str, mode: int) -> Written:
        """Copy ``source`` of ``other`` to the new file ``path``, hashing what is written; keep its mtime."""
        fd = other.open_file(source)
        try:
            file = self.new_file(path, mode)
            try:
                while block := os.read(fd, _BLOCK):
                    file.write(block)
                return file.finish(times_of=os.fstat(fd))
            except BaseException:
                file.abandon()
                raise
        finally:
            os.close(fd)

    def walk(self, top: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Yield every path below ``top`` that is no folder, with its status, in the order of path components.

        Links are yielded and never followed. Names that are no UTF-8 come as the file system encoding has
        them (surrogate escapes). Raises ``HostError``.
        """
        pending = [top]
        while pending:
            folder = pending.pop()
            found: list[str] = []
            try:
                with os.scandir(self.folder(folder, create=False)) as entries:
                    rows = sorted(entries, key=lambda entry: entry.name)
            except OSError as fault:
                raise host_error(fault, self.root / folder) from fault
            for entry in rows:
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        found.append(path)
                    else:
                        yield path, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone since the folder was read
                except OSError as fault:
                    raise host_error(fault, self.root / path) from fault
            pending.extend(reversed(found))

    def _taken(self, fault: OSError, path: str) -> HostError | IntegrityError:
        if fault.errno in (errno.EEXIST, errno.ELOOP):
            return IntegrityError(
                "E-PATH",
                ascii(path),
                expected="a path that only one entry has",
                found="something stands there already",
                hint="two entries of the bundle have one name on this file system",
            )
        return host_error(fault, self.root / path)


class NewFile:
    """A file being written. Exactly one of ``finish`` and ``abandon`` ends it."""

    __slots__ = ("_hash", "_mode", "_path", "_size", "fd")

    def __init__(self, fd: int, path: Path, mode: int) -> None:
        self.fd, self._path, self._mode, self._size = fd, path, mode, 0
        self._hash = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data`` and hash it; raises ``HostError``."""
        view = memoryview(data)
        self._size += len(view)
        try:
            while view:
                piece = view[:_PIECE]
                view = view[len(piece) :]
                self._hash.update(piece)
                while piece:
                    piece = piece[os.write(self.fd, piece) :]
        except OSError as fault:
            raise host_error(fault, self._path) from fault

    def finish(self, *, hashed: bool = True, times_of: os.stat_result | None = None) -> Written:
        """Set mode (and times), close, and return what was written; '' for the hash without ``hashed``."""
        try:
            os.fchmod(self.fd, self._mode)
            if times_of is not None:
                os.utime(self.fd, ns=(times_of.st_atime_ns, times_of.st_mtime_ns))
            status = os.fstat(self.fd)
        except OSError as fault:
            raise host_error(fault, self._path) from fault
        os.close(self.fd)
        self.fd = -1
        return Written(
            status.st_size, self._hash.hexdigest() if hashed else "", status.st_mtime_ns, status.st_ino
        )

    def abandon(self) -> None:
        """Close without a word; the half file is left to whoever removes the tree."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)
            self.fd = -1


def _hash(fd: int) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    with open(fd, "rb", buffering=0, closefd=False) as stream:
        while size := stream.readinto(buffer):
            digest.update(view[:size])
    return digest.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it, never following a link; nothing there is fine."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as fault:
        raise host_error(fault, path) from fault
