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

    def rehash(self, digest: Digest) -> Digest:
        """Return the digest of what stands under ``digest``, of any size, in bounded memory.

        Raises ``IntegrityError`` (E-BLOB-MISSING).
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

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """Return the unhashed documents of the layout as they are written: name and bytes."""

    def extras(self) -> tuple[str, ...]:
        """Return names that are no part of an OCI image layout, in order."""

    def rehash_extra(self, name: str) -> Digest:
        """Return the digest of a plain file beside the layout; raises ``HostError`` if there is none."""

    def put_extra(self, name: str, data: bytes) -> None:
        """Write a file beside the layout (the bootstrap): ``name`` is one plain file name."""

    def leftovers(self) -> tuple[str, ...]:
        """Return names of what an interrupted run left behind, in order."""

    def sweep(self, names: Iterable[str]) -> None:
        """Drop what ``leftovers`` named; what is gone already is no fault."""

    def alone(self) -> AbstractContextManager[None]:
        """While it is entered nobody else writes; raises ``HostError`` (E-STORE-BUSY) if somebody does."""

    def writing(self) -> AbstractContextManager[None]:
        """While it is entered no collection runs; take it around puts that an index entry will follow."""

    def free(self) -> int | None:
        """Bytes that can still be written here, or None where nobody knows."""
