"""``ArchiveStore``: an OCI image layout in one tar file, ``index.json`` its last member.

* What is written goes to ``.<name>.part`` beside the archive; the archive's own name appears, or changes, by
  one rename in ``close``, after everything was hashed by us and flushed to the disk.
* A part that an interrupted run left is taken up: each blob in it is hashed again, and what follows the last
  whole member is cut off.
* Blobs of the archive that stood there before are carried over; so are files beside the layout.
* Only one run writes an archive at a time (``flock`` on the part).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import FormatError, HostError
from envbundle.host.files import host_error, host_errors, sync_folder
from envbundle.spec.canonical import canonical
from envbundle.spec.digest import Digest
from envbundle.store.blob import check_blob, check_extra_name, missing_blob, wrong_size
from envbundle.store.oci import INDEX_FILE, LAYOUT, LAYOUT_FILE, MAX_INDEX, ImageIndex
from envbundle.store.protocol import MAX_BLOB

from .index import parse_layout
from .tar import BLOCK, END, Member, check_extended, cut, member_header, padding, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from envbundle.store.oci import TagEntry

    from .options import TransferOptions

BLOBS = "blobs/sha256/"
_STEP = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member's bytes are: an open file, an offset, a size."""

    fd: int
    offset: int
    size: int


def open_archive(path: str, create: bool, _options: TransferOptions) -> ArchiveStore:
    """Return the store in the tar file ``path`` (``~`` is the home folder); raises ``HostError``."""
    return ArchiveStore(Path(path).expanduser(), create=create)


def blob_digest(name: str) -> Digest | None:
    """Return the digest that a member's name states, or None where it is no blob."""
    hexes = name.removeprefix(BLOBS)
    if hexes == name or len(hexes) != 64 or hexes.strip("0123456789abcdef"):
        return None
    return Digest(hexes)


class ArchiveStore:
    """The store in the file ``path``; ``close`` makes what was written visible.

    With ``create`` it may come to be. Raises ``HostError`` (E-NOT-FOUND, E-STORE-BUSY) and ``FormatError``
    (E-TAR, E-TAR-CUT) for a file that is no whole archive.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self.name = str(path)
        self._part_path = path.with_name(f".{path.name}.part")
        self._lock = threading.RLock()
        self._opened: list[int] = []
        self._part = -1
        self._end = 0
        self._blobs: dict[Digest, Place] = {}
        self._extras: dict[str, Place] = {}
        self._documents: dict[str, Place] = {}
        self._dropped = self._dirty = False
        self._index = ImageIndex()
        try:
            self._learn_all(path, create=create)
        except BaseException:
            self._let_go()
            raise

    def _learn_all(self, path: Path, *, create: bool) -> None:
        if path.exists():
            fd = self._open(path, os.O_RDONLY)
            self._scan(fd)
            if INDEX_FILE not in self._documents:
                raise cut(self.name)
        elif not create:
            raise HostError(
                "E-NOT-FOUND", self.name, expected="a store", found="no file", hint="check the path"
            )
        elif not path.parent.is_dir():
            raise HostError("E-NOT-FOUND", str(path.parent), expected="a folder", found="none")
        if self._documents:
            self._index = parse_layout({name: self._document(name) for name in (LAYOUT_FILE, INDEX_FILE)})
        if create and self._part_path.exists():
            self._begin()

    def _open(self, path: Path, flags: int) -> int:
        with host_errors(path):
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW * (path == self._part_path), 0o644)
        self._opened.append(fd)
        return fd

    def _scan(self, fd: int, *, recover: bool = False) -> int:
        """Learn the members of ``fd``; return where the next goes. ``recover``: stop at the first damage."""
        size = os.fstat(fd).st_size
        position = 0
        while position < size:
            header = None
            try:
                block = os.pread(fd, BLOCK, position)
                header = parse_header(block, self.name)
                if header is not None and header.extended:
                    check_extended(os.pread(fd, header.size, position + BLOCK), self.name)
                if header is not None and position + BLOCK + header.size > size:
                    raise cut(self.name)
            except FormatError:
                if recover:
                    return position
                raise
            if header is None:
                return position
            place = Place(fd, position + BLOCK, header.size)
            if header.member is not None and not self._learn(header.member, place, recover=recover):
                return position
            position += BLOCK + header.size + len(padding(header.size))
        if not recover:
            raise cut(self.name)
        return position  # the truncation that follows also fills up a last block that was cut

    def _learn(self, member: Member, place: Place, *, recover: bool) -> bool:
        digest = blob_digest(member.name)
        if digest is not None:
            if recover and self._hash(place) != digest:
                return False
            self._blobs[digest] = place
        elif recover:
            return False  # a part holds blobs alone: documents are written when it becomes the archive
        elif member.name in (LAYOUT_FILE, INDEX_FILE):
            self._documents[member.name] = place
        else:
            self._extras[member.name] = place
        return True

    def _begin(self) -> None:
        """Open the part for writing, taking up what is whole in it."""
        if self._part >= 0:
            return
        fd = self._open(self._part_path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise HostError(
                "E-STORE-BUSY", self.name, expected="nobody writing", hint="wait for the other run to end"
            ) from fault
        with host_errors(self._part_path):
            self._end = self._scan(fd, recover=True)
            os.ftruncate(fd, self._end)
        self._part = fd

    def _append(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> Place:
        """Write one member to the part; a failure leaves the part as it was."""
        self._begin()
        start = self._end
        with host_errors(self.path):
            try:
                position = _write_all(self._part, member_header(name, size), start)
                for data in parts:
                    position = _write_all(self._part, data, position)
                self._end = _write_all(self._part, padding(size), position)
            except BaseException:
                os.ftruncate(self._part, start)
                raise
        return Place(self._part, start + BLOCK, size)

    def _pread(self, place: Place, limit: int = MAX_BLOB + 1) -> bytes:
        with host_errors(self.path):
            return b"".join(_pieces(place, limit))

    def _hash(self, place: Place) -> Digest:
        state = hashlib.sha256()
        with host_errors(self.path):
            for data in _pieces(place):
                state.update(data)
        return Digest(state.hexdigest())

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``."""
        place = self._blobs.get(digest)
        return place is not None and place.size == size

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``."""
        return frozenset(digest for digest, size in blobs if not self.has(digest, size))

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        place = self._blobs.get(digest)
        if place is None:
            raise missing_blob(digest, self.name)
        if place.size != size or size > MAX_BLOB:
            raise wrong_size(digest, self.name, min(size, MAX_BLOB), str(place.size))
        return check_blob(self._pread(place), digest, size, self.name)

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``."""
        place = self._blobs.get(digest)
        if place is None:
            raise missing_blob(digest, self.name)
        return self._hash(place)

    def put(self, data: bytes) -> Digest:
        """See ``Store.put``."""
        digest = Digest.of(data)
        with self._lock:
            if not self.has(digest, len(data)):
                self._blobs[digest] = self._append(BLOBS + digest.hex, (data,), len(data))
        return digest

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``."""
        yield from sorted((digest, place.size) for digest, place in tuple(self._blobs.items()))

    def remove(self, digest: Digest) -> None:
        """See ``Store.remove``; the bytes go when the archive is written anew in ``close``."""
        with self._lock:
            if self._blobs.pop(digest, None) is not None:
                self._dropped = self._dirty = True

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``."""
        return self._index

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """See ``Store.write_index``; others see it after ``close``."""
        with self._lock:
            self._index = ImageIndex.from_bytes(change(self._index).to_bytes())
            self._dirty = True
            return self._index

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``."""
        if self._documents and not self._dirty:
            return tuple((name, self._document(name)) for name in (LAYOUT_FILE, INDEX_FILE))
        return ((LAYOUT_FILE, canonical(LAYOUT)), (INDEX_FILE, self._index.to_bytes()))

    def _document(self, name: str) -> bytes:
        place = self._documents.get(name)
        if place is None:
            raise FormatError(
                "E-STORE-LAYOUT",
                f"{self.name}: {name}",
                expected="a file of every OCI image layout",
                found="none",
            )
        return self._pread(place, MAX_INDEX + 1)

    def extras(self) -> tuple[str, ...]:
        """See ``Store.extras``."""
        return tuple(sorted(self._extras))

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        place = self._extras.get(check_extra_name(name))
        if place is None:
            raise HostError("E-NOT-FOUND", f"{self.name}: {name}", expected="a file", found="none")
        return self._hash(place)

    def put_extra(self, name: str, data: bytes) -> None:
        """See ``Store.put_extra``."""
        with self._lock:
            self._dropped = self._dropped or check_extra_name(name) in self._extras
            self._extras[name] = self._append(name, (data,), len(data))
            self._dirty = True

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``: a part that nobody writes is taken up by the next run."""
        return ()

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See ``Store.alone``."""
        with self._lock:
            self._begin()
            yield

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See ``Store.writing``."""
        with self._lock:
            self._begin()
        yield

    def free(self) -> int | None:
        """See ``Store.free``."""
        with host_errors(self.path.parent):
            volume = os.statvfs(self.path.parent)
        return volume.f_bavail * volume.f_frsize

    def close(self) -> None:
        """Make what was written the archive, if an index was; a part without one stays for the next run."""
        with self._lock:
            try:
                if self._dirty:
                    self._finish()
                elif self._part >= 0 and not self._end:
                    self._part_path.unlink(missing_ok=True)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        while self._opened:
            os.close(self._opened.pop())
        self._part = -1

    def abandon(self) -> None:
        """Close without a word: what was written stays in the part, for the next run."""
        with self._lock:
            self._dirty = False
            self.close()

    def _finish(self) -> None:
        """Carry over what the part lacks, write the documents, and rename."""
        self._begin()
        if self._dropped:  # bytes of what is gone stand in the part: none of them may reach the archive
            self._part_path.unlink(missing_ok=True)
            self._part = -1
            kept = dict(self._blobs)
            self._begin()
            self._blobs = kept
        for digest, place in sorted(self._blobs.items()):
            if place.fd != self._part:
                self._append(BLOBS + digest.hex, _pieces(place), place.size)
        for name, place in sorted(self._extras.items()):
            if place.fd != self._part:
                self._append(name, _pieces(place), place.size)
        layout, index = canonical(LAYOUT), self._index.to_bytes()
        self._append(LAYOUT_FILE, (layout,), len(layout))
        self._append(INDEX_FILE, (index,), len(index))
        with host_errors(self.path):
            _write_all(self._part, END, self._end)
            os.fsync(self._part)
            self._part_path.replace(self.path)
            sync_folder(self.path.parent)


def _pieces(place: Place, limit: int | None = None) -> Iterator[bytes]:
    left = place.size if limit is None else min(place.size, limit)
    position = place.offset
    while left:
        data = os.pread(place.fd, min(left, _STEP), position)
        if not data:
            return
        yield data
        position += len(data)
        left -= len(data)


def _write_all(fd: int, data: bytes | memoryview, position: int) -> int:
    view = memoryview(data)
    try:
        while view:
            count = os.pwrite(fd, view, position)
            position += count
            view = view[count:]
    except OSError as fault:
        raise host_error(fault, "the archive being written") from fault
    return position
