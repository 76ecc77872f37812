"""``DirectoryStore``: an OCI image layout in a folder (``oci-layout``, ``index.json``, ``blobs/``).

* A final name appears only by a rename, after every byte was written and hashed by us.
* What is in progress, and the lock files, stand in ``.incoming/``; what a crash leaves there is rubbish.
* Blobs are flushed to the disk once, just before the index that makes them matter is replaced: an
  interrupted run may leave blobs that nobody names, never a name without its blobs.
* The index is read, changed and replaced under an exclusive ``flock``: two writers both land.
* Nothing is followed out of the folder: a blob that is no regular file does not exist.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import threading
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envbundle.errors import EnvbundleError, FormatError, HostError
from envbundle.host.files import atomic_write, host_error, host_errors, sync_folder
from envbundle.host.tree import remove_tree
from envbundle.spec.canonical import canonical
from envbundle.spec.digest import Digest

from .blob import check_blob, check_extra_name, missing_blob, wrong_size
from .memory import MemoryStore
from .oci import INDEX_FILE, LAYOUT, LAYOUT_FILE, MAX_INDEX, ImageIndex, TagEntry, parse_document
from .protocol import MAX_BLOB, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["MAX_BLOB", "DirectoryStore", "ImageIndex", "MemoryStore", "Store", "TagEntry"]

INCOMING = ".incoming"
INDEX_LOCK = "index.lock"
WRITERS_LOCK = "writers.lock"
_HEX = re.compile(r"[0-9a-f]{64}")


class DirectoryStore:
    """The store in the folder ``path``.

    With ``create`` a folder that is missing or empty becomes a store. Raises ``HostError``: E-NOT-A-STORE
    where ``path`` is none, E-NOT-FOUND where nothing is there. Damage is found when something is read.
    """

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._blobs = self.path / "blobs" / "sha256"
        self._incoming = self.path / INCOMING
        self._unsynced: set[Digest] = set()
        self._made: Literal["", "content", "folder"] = ""
        self._lock = threading.Lock()
        if create:
            try:
                self._create()
            except HostError:
                self.unmake()
                raise
        elif not self.path.is_dir():
            raise HostError(
                "E-NOT-FOUND", self.name, expected="a store", found="no folder", hint="check the path"
            )
        elif not any((self.path / name).exists() for name in (LAYOUT_FILE, INDEX_FILE, "blobs")):
            raise _no_store(self.name)  # with one of them it is a damaged store: reading says so

    def _create(self) -> None:
        with host_errors(self.name):
            there = self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()}
            self._made = "" if names else "content" if there else "folder"
            if LAYOUT_FILE not in names and names - {"blobs", INCOMING, INDEX_FILE}:
                raise _no_store(self.name)
            self._blobs.mkdir(parents=True, exist_ok=True)
            self._incoming.mkdir(exist_ok=True)
        with self._locked(INDEX_LOCK, fcntl.LOCK_EX):
            if not (self.path / INDEX_FILE).exists():
                atomic_write(self.path / INDEX_FILE, ImageIndex().to_bytes(), sync=False)
            if not (self.path / LAYOUT_FILE).exists():
                atomic_write(self.path / LAYOUT_FILE, canonical(LAYOUT), sync=False)

    def blob_path(self, digest: Digest) -> Path:
        """Where the blob stands or would stand."""
        return self._blobs / digest.hex

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``."""
        try:
            status = os.lstat(f"{self._blobs}/{digest.hex}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as fault:
            raise host_error(fault, self.blob_path(digest)) from fault
        return stat.S_ISREG(status.st_mode) and status.st_size == size

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``."""
        return frozenset(digest for digest, size in blobs if not self.has(digest, size))

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        with host_errors(self.blob_path(digest)), self._open(digest) as stream:
            found = os.fstat(stream.fileno()).st_size
            if found != size or size > MAX_BLOB:
                raise wrong_size(digest, self.name, min(size, MAX_BLOB), str(found))
            data = stream.read(size + 1) or b""
            while len(data) < size:  # a signal or an odd file system may give less at once
                more = stream.read(size + 1 - len(data))
                if not more:
                    break
                data += more
        return check_blob(data, digest, size, self.name)

    def _open(self, digest: Digest) -> FileIO:
        path = self.blob_path(digest)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            stream = FileIO(os.open(path, flags), "rb")
        except OSError as fault:
            if fault.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise missing_blob(digest, self.name) from fault
            raise
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            stream.close()
            raise missing_blob(digest, self.name)
        return stream

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``."""
        path = self.blob_path(digest)
        with host_errors(path), self._open(digest) as stream:
            return _hash(stream)

    def put(self, data: bytes) -> Digest:
        """See ``Store.put``."""
        digest = Digest.of(data)
        if self.has(digest, len(data)):
            return digest
        final = f"{self._blobs}/{digest.hex}"
        stage = f"{self._incoming}/{digest.hex}.{secrets.token_hex(6)}"
        with host_errors(final):
            try:
                fd = self._open_stage(stage)
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(fd, view) :]
                finally:
                    os.close(fd)
                os.rename(stage, final)  # noqa: PTH104  pathlib costs more than the call, a thousand times
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(stage)  # noqa: PTH108
                raise
        with self._lock:
            self._unsynced.add(digest)
        return digest

    def _open_stage(self, stage: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(stage, flags, 0o644)
        except FileNotFoundError:  # a layout that another tool wrote has no such folder yet
            self._incoming.mkdir(exist_ok=True)
            self._blobs.mkdir(parents=True, exist_ok=True)
            return os.open(stage, flags, 0o644)

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``; names that are no digest are among ``extras``."""
        for name, status in self._scan(self._blobs):
            if _HEX.fullmatch(name) and stat.S_ISREG(status.st_mode):
                yield Digest(name), status.st_size

    def remove(self, digest: Digest) -> None:
        """See ``Store.remove``."""
        with host_errors(self.blob_path(digest)):
            self.blob_path(digest).unlink(missing_ok=True)

    def fresh(self) -> frozenset[Digest]:
        """Return the blobs that this object put since it last wrote the index: nothing names them yet."""
        with self._lock:
            return frozenset(self._unsynced)

    def unmake(self) -> None:
        """Remove what this object's ``create`` made, if the store holds no blob, tag or anything else."""
        if not self._made:
            return
        with contextlib.suppress(EnvbundleError, OSError), contextlib.ExitStack() as entered:
            try:
                entered.enter_context(self.alone())
            except HostError as fault:
                if fault.code == "E-STORE-BUSY":
                    return  # and where there is no room for a lock file, nobody else can have one
            index = self.path / INDEX_FILE
            if any(self.blobs()) or self.extras() or self.leftovers() or (index.exists() and self.tags()):
                return
            for name in (INDEX_FILE, LAYOUT_FILE):
                (self.path / name).unlink(missing_ok=True)
            for name in ("blobs", INCOMING):
                remove_tree(self.path / name)
            if self._made == "folder":
                self.path.rmdir()

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``."""
        value = parse_document(self.read_file(LAYOUT_FILE), LAYOUT_FILE, "E-STORE-LAYOUT", MAX_INDEX)
        if not isinstance(value, dict) or value.get("imageLayoutVersion") != LAYOUT["imageLayoutVersion"]:
            raise FormatError("E-STORE-LAYOUT", LAYOUT_FILE, expected=str(LAYOUT), found=str(value)[:100])
        return ImageIndex.from_bytes(self.read_file(INDEX_FILE))

    def read_file(self, name: str) -> bytes:
        """Return the bytes of ``oci-layout`` or ``index.json``, at most 4 MiB."""
        path = self.path / name
        if not path.is_file():
            raise FormatError(
                "E-STORE-LAYOUT", str(path), expected="a file of every OCI image layout", found="none"
            )
        with host_errors(path), FileIO(path, "rb") as stream:
            return stream.read(MAX_INDEX + 1) or b""  # one byte too many is refused by who parses it

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``."""
        return tuple((name, self.read_file(name)) for name in (LAYOUT_FILE, INDEX_FILE))

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """See ``Store.write_index``."""
        with self._locked(INDEX_LOCK, fcntl.LOCK_EX):
            index = change(self.read_index())
            data = index.to_bytes()
            self._flush()
            atomic_write(self.path / INDEX_FILE, data)
            return ImageIndex.from_bytes(data)

    def _flush(self) -> None:
        with self._lock:
            waiting, self._unsynced = sorted(self._unsynced), set()
        for digest in waiting:
            with host_errors(self.blob_path(digest)), contextlib.suppress(FileNotFoundError):
                fd = os.open(self.blob_path(digest), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        if waiting:
            with host_errors(self._blobs):
                sync_folder(self._blobs)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See ``Store.writing``."""
        with self._locked(WRITERS_LOCK, fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See ``Store.alone``."""
        with (
            self._locked(WRITERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB),
            self._locked(INDEX_LOCK, fcntl.LOCK_EX),
        ):
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, how: int) -> Iterator[None]:
        path = self._incoming / name
        with host_errors(path):
            self._incoming.mkdir(exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            try:
                fcntl.flock(fd, how)
            except BlockingIOError as fault:
                raise HostError(
                    "E-STORE-BUSY", self.name, expected="nobody writing", hint="wait for the other run to end"
                ) from fault
            except OSError as fault:
                raise host_error(fault, path) from fault
            yield
        finally:
            os.close(fd)

    def free(self) -> int | None:
        """See ``Store.free``."""
        with host_errors(self.path):
            volume = os.statvfs(self.path)
        return volume.f_bavail * volume.f_frsize

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        path = self.path / check_extra_name(name)
        if not path.is_file():
            raise HostError("E-NOT-FOUND", str(path), expected="a file", found="none")
        with host_errors(path), FileIO(path, "rb") as stream:
            return _hash(stream)

    def put_extra(self, name: str, data: bytes) -> None:
        """See ``Store.put_extra``."""
        atomic_write(self.path / check_extra_name(name), data)

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``: what is in ``.incoming`` and is no lock of ours."""
        return tuple(
            f"{INCOMING}/{name}"
            for name, _ in self._scan(self._incoming)
            if name not in (INDEX_LOCK, WRITERS_LOCK)
        )

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""
        for name in set(names) & set(self.leftovers()):
            with host_errors(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def extras(self) -> tuple[str, ...]:
        """Return the names that are no part of an OCI image layout, relative to it, in order."""
        found = [
            name
            for name, _ in self._scan(self.path)
            if name not in (LAYOUT_FILE, INDEX_FILE, INCOMING, "blobs")
        ]
        found += [f"blobs/{name}" for name, _ in self._scan(self.path / "blobs") if name != "sha256"]
        found += [
            f"blobs/sha256/{name}"
            for name, status in self._scan(self._blobs)
            if not (_HEX.fullmatch(name) and stat.S_ISREG(status.st_mode))
        ]
        return tuple(found)

    def _scan(self, folder: Path) -> list[tuple[str, os.stat_result]]:
        with host_errors(folder):
            try:
                with os.scandir(folder) as entries:
                    return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
            except FileNotFoundError:
                return []


def _hash(stream: FileIO) -> Digest:
    state = hashlib.sha256()
    buffer = bytearray(1 << 20)
    while count := stream.readinto(buffer):
        state.update(memoryview(buffer)[:count])
    return Digest(state.hexdigest())


def _no_store(name: str) -> HostError:
    return HostError(
        "E-NOT-A-STORE",
        name,
        expected="an OCI image layout (a folder with oci-layout and index.json)",
        found="a folder with something else in it",
        hint="name the folder that `envbundle pack` or `envbundle copy` wrote, or an empty one to write to",
    )
