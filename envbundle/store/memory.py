"""A store in this process's memory: for tests, relays, and as the plainest statement of what one does."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from envbundle.spec.digest import Digest

from .blob import check_blob, missing_blob
from .oci import ImageIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .oci import TagEntry


class MemoryStore:
    """A ``Store`` of two dictionaries. ``name`` is for messages."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._blobs: dict[Digest, bytes] = {}
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

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See ``Store.writing``."""
        with self._lock:
            yield

    def free(self) -> int | None:
        """See ``Store.free``."""
        return None
