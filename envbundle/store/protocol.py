"""``Store``: what every store can do, wherever it is. One conformance suite covers all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from envbundle.spec.digest import Digest

    from .oci import ImageIndex, TagEntry

#: No stored blob is larger: chunks are at most 32 MiB, descriptors and layer lists at most 64 MiB.
MAX_BLOB = 64 * 1024 * 1024


class Store(Protocol):
    """Blobs by digest and an index of tags. Every method may be called by several threads at once."""

    @property
    def name(self) -> str:
        """Where the store is, for messages."""

    def has(self, digest: Digest, size: int) -> bool:
        """Whether a blob stands under its final name with ``size`` bytes; its bytes are not read."""

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """Return those of ``blobs`` (digest, size) that the store has not, asked in one batch."""

    def read(self, digest: Digest, size: int) -> bytes:
        """Return a blob's bytes after its size and hash were found right.

        Never reads more than ``size`` + 1 bytes. Raises ``IntegrityError``: E-BLOB-MISSING, E-BLOB-SIZE,
        E-BLOB-HASH.
        """

    def put(self, data: bytes) -> Digest:
        """Keep ``data`` and return its digest; a blob that is there already is left alone."""

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """Every blob under a final name, with its size in bytes, in the order of digests."""

    def remove(self, digest: Digest) -> None:
        """Drop a blob; one that is not there is no fault."""

    def tags(self) -> tuple[TagEntry, ...]:
        """Return the entries of the index, in the order of their tags."""

    def read_index(self) -> ImageIndex:
        """Return the index; raises ``FormatError`` (E-STORE-INDEX, E-STORE-LAYOUT) where it is damaged."""

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """Replace the index by ``change`` of it, atomically and alone, and return the new one.

        All blobs put before are on the disk when the new index can be seen.
        """

    def writing(self) -> AbstractContextManager[None]:
        """While it is entered no collection runs; take it around puts that an index entry will follow."""

    def free(self) -> int | None:
        """Bytes that can still be written here, or None where nobody knows."""
