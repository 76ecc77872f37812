"""A store in this process's memory: for tests, relays, and as the plainest statement of what one does."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from envbundle.errors import HostError
from envbundle.spec.canonical import canonical
from envbundle.spec.digest import Digest

from .blob import check_blob, check_extra_name, missing_blob
from .oci import INDEX_FILE, LAYOUT, LAYOUT_FILE, ImageIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .oci import TagEntry


class MemoryStore:
    """A ``Store`` of two dictionaries. ``name`` is for messages."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._blobs: dict[Digest, bytes] = {}
        self._extras: dict[str, bytes] = {}
        self._index = ImageIndex()
        self._lock = threading.RLock()

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``."""
        data = self._blobs.get(digest)
        return data is not None and len(data) == size

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``."""
        return frozenset(digest for digest, size in blobs if not self.has(digest, size))

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        data = self._blobs.get(digest)
        if data is None:
            raise missing_blob(digest, self.name)
        return check_blob(data, digest, size, self.name)

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``."""
        data = self._blobs.get(digest)
        if data is None:
            raise missing_blob(digest, self.name)
        return Digest.of(data)

    def put(self, data: bytes) -> Digest:
        """See ``Store.put``."""
        digest = Digest.of(data)
        with self._lock:
            if not self.has(digest, len(data)):
                self._blobs[digest] = bytes(data)
        return digest

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``."""
        yield from sorted((digest, len(data)) for digest, data in tuple(self._blobs.items()))

    def remove(self, digest: Digest) -> None:
        """See ``Store.remove``."""
        self._blobs.pop(digest, None)

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``."""
        return self._index

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """See ``Store.write_index``."""
        with self._lock:
            self._index = ImageIndex.from_bytes(change(self._index).to_bytes())
            return self._index

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``."""
        return ((LAYOUT_FILE, canonical(LAYOUT)), (INDEX_FILE, self._index.to_bytes()))

    def extras(self) -> tuple[str, ...]:
        """See ``Store.extras``."""
        return tuple(sorted(self._extras))

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        if name not in self._extras:
            raise HostError("E-NOT-FOUND", f"{self.name}/{name}", expected="a file", found="none")
        return Digest.of(self._extras[name])

    def put_extra(self, name: str, data: bytes) -> None:
        """See ``Store.put_extra``."""
        self._extras[check_extra_name(name)] = bytes(data)

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``."""
        return ()

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See ``Store.alone``."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See ``Store.writing``."""
        with self._lock:
            yield

    def free(self) -> int | None:
        """See ``Store.free``."""
        return None
