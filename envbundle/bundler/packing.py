"""The packing rule: which bytes of a layer's files go into which plain chunk (docs/format.md, "Packing").

* Files are offered in path order. A file under 1 MiB goes whole into the open pack, which is closed before
  it would grow beyond 32 MiB; a larger file is cut from its own start into pieces of 8 MiB, or of 32 MiB
  where the file has 64 MiB or more. Pieces never close the pack.
* Equal files of a layer are kept once; an empty file has no bytes anywhere.
* The outcome depends on nothing but the files' paths and bytes: a sink may finish chunks in any order.

The rule's version is ``envbundle.store.codec.PACKING_RULE``: it stands in the codec line, and through it in
the key of the packer's cache, so changing anything here means changing that number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Protocol

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.spec.layer import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIB = 1024 * 1024
SMALL_FILE = 1 * MIB
PACK_SIZE = 32 * MIB
PIECE_SIZE = 8 * MIB
BIG_FILE = 64 * MIB
BIG_PIECE_SIZE = 32 * MIB


def piece_size(size: int) -> int:
    """Return the length in bytes of the pieces that a file of ``size`` bytes (at least 1 MiB) is cut into."""
    return BIG_PIECE_SIZE if size >= BIG_FILE else PIECE_SIZE


class ChunkTicket(Protocol):
    """A chunk on its way; its digest is known at the latest when it has been written."""

    def digest(self) -> Digest:
        """Wait for the chunk and return the digest of its plain bytes; raises what writing it raised."""


class ChunkSink(Protocol):
    """Takes plain chunks in packing order and owns them from then on."""

    def add(self, plain: bytes, *, packed: bool, digest: Digest | None = None) -> ChunkTicket:
        """Take one chunk: ``packed`` if small files stand together in it; ``digest`` where already known."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Where a file's bytes went: its true digest and size, and slices of chunks in order."""

    sha256: Digest
    size: int
    slices: tuple[tuple[int, int, int], ...]
    """(number of the chunk within the packer, offset, length)."""


class Packer:
    """Packs the files of one layer; feed it in path order, then call ``close``."""

    def __init__(self, sink: ChunkSink) -> None:
        """Send chunks to ``sink``."""
        self._sink = sink
        self._tickets: list[ChunkTicket | None] = []
        self._sizes: list[int] = []
        self._files: dict[Digest, PackedFile] = {}
        self._pack = BytesIO()
        self._pack_slot = -1

    def add(self, path: str, size: int, claimed: Digest | None, blocks: Iterable[bytes]) -> PackedFile:
        """Pack one file of exactly ``size`` bytes and return where they went, with their true digest.

        ``claimed`` is the digest that somebody states for it; comparing it with the true one is the
        caller's part, as only the caller knows whose claim it is. Raises ``IntegrityError`` (E-SIZE) where
        ``blocks`` gives fewer or more bytes; then the layer must be given up.
        """
        checked = exactly(path, size, blocks)
        if claimed is not None and claimed in self._files:
            sha256 = _digest(checked)
            known = self._files.get(sha256)
            return known if known is not None else PackedFile(sha256, size, ())
        packed = self._small(size, b"".join(checked)) if size < SMALL_FILE else self._large(size, checked)
        return self._files.setdefault(packed.sha256, packed)

    def _small(self, size: int, data: bytes) -> PackedFile:
        sha256 = Digest.of(data)
        known = self._files.get(sha256)
        if known is not None:
            return known
        if not size:
            return PackedFile(sha256, 0, ())
        if self._pack.tell() and self._pack.tell() + size > PACK_SIZE:
            self._close_pack()
        offset = self._pack.tell()
        if not offset:
            self._pack_slot = self._reserve()
        self._pack.write(data)
        return PackedFile(sha256, size, ((self._pack_slot, offset, size),))

    def _large(self, size: int, blocks: Iterable[bytes]) -> PackedFile:
        step, left = piece_size(size), size
        whole = hashlib.sha256()
        slices: list[tuple[int, int, int]] = []
        piece = BytesIO()
        for block in blocks:
            whole.update(block)
            view = memoryview(block)
            while view:
                taken = view[: min(step, left) - piece.tell()]
                piece.write(taken)
                view = view[len(taken) :]
                if piece.tell() == min(step, left):
                    left -= piece.tell()
                    slices.append((self._reserve(), 0, piece.tell()))
                    if left:
                        self._emit(slices[-1][0], piece, packed=False)
                        piece = BytesIO()
        sha256 = Digest(whole.hexdigest())
        # The last piece waits for the end of the blocks: a file of one piece has that piece's digest.
        self._emit(slices[-1][0], piece, packed=False, digest=sha256 if len(slices) == 1 else None)
        return PackedFile(sha256, size, tuple(slices))

    def _reserve(self) -> int:
        self._tickets.append(None)
        self._sizes.append(0)
        return len(self._tickets) - 1

    def _emit(self, slot: int, held: BytesIO, *, packed: bool, digest: Digest | None = None) -> None:
        # The bytes object inside a BytesIO is handed on as it is: a chunk is never in memory twice.
        plain = held.getvalue()
        self._sizes[slot] = len(plain)
        self._tickets[slot] = self._sink.add(plain, packed=packed, digest=digest)

    def _close_pack(self) -> None:
        held, self._pack = self._pack, BytesIO()
        self._emit(self._pack_slot, held, packed=True)

    def close(self) -> None:
        """Send the open pack to the sink; nothing may be added afterwards."""
        if self._pack.tell():
            self._close_pack()

    def segments(self, packed: PackedFile) -> tuple[Segment, ...]:
        """Return a packed file's segments; waits for its chunks. Only after ``close``."""
        return tuple(
            Segment(chunk=self._digest_of(slot), offset=offset, length=length)
            for slot, offset, length in packed.slices
        )

    def chunks(self) -> tuple[tuple[Digest, int], ...]:
        """Return the plain chunks with their sizes in bytes, each once, in order of first use by path."""
        found: dict[Digest, int] = {}
        for slot, size in enumerate(self._sizes):
            found.setdefault(self._digest_of(slot), size)
        return tuple(found.items())

    def _digest_of(self, slot: int) -> Digest:
        ticket = self._tickets[slot]
        if ticket is None:
            raise RuntimeError("Packer.close comes before segments and chunks")
        return ticket.digest()


def exactly(path: str, size: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass blocks on; raises ``IntegrityError`` (E-SIZE) at the first byte too many or at an early end."""
    total = 0
    for block in blocks:
        total += len(block)
        if total > size:
            raise IntegrityError("E-SIZE", path, expected=f"{size} bytes", found="more")
        yield block
    if total != size:
        raise IntegrityError("E-SIZE", path, expected=f"{size} bytes", found=f"{total} bytes")


def _digest(blocks: Iterable[bytes]) -> Digest:
    whole = hashlib.sha256()
    for block in blocks:
        whole.update(block)
    return Digest(whole.hexdigest())
