"""One member of a zip archive as a seekable stream, in bounded memory.

* Inflating stops one byte behind the declared size; behind the last byte the deflated data must end.
* Going back starts at a saved state of the inflater, at most ``STRIDE`` bytes before.
* The CRC is checked as the bytes go by for the first time.
"""

from __future__ import annotations

import io
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from envbundle.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STORED, DEFLATED = 0, 8
STRIDE = 2 << 20
_PIECE = 1 << 16
_OUTPUT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """One member. ``offset`` is where its stored bytes begin; ``mode`` is the Unix mode, 0 where none is."""

    name: str
    method: int
    crc: int
    stored_size: int
    size: int
    mode: int
    offset: int

    @property
    def is_dir(self) -> bool:
        """Whether it only names a directory."""
        return self.name.endswith("/")


class MemberStream(io.RawIOBase):
    """One member as a readable, seekable stream; its CRC is checked when its end is first reached.

    ``read`` gives at most one piece and may give less than asked for. Raises ``IntegrityError``: E-SIZE
    where the member inflates to more than declared, E-WHEEL-ZIP where it is cut off or corrupt.
    """

    def __init__(
        self,
        stream: BinaryIO,
        entry: ZipEntry,
        subject: str,
        *,
        rewinds: bool = True,
        watch: Callable[[bytes], None] | None = None,
    ) -> None:
        """Read ``entry`` from ``stream``. Without ``rewinds`` no inflater states are kept.

        ``watch`` is given every byte once, in order, as it comes by for the first time; ``drain`` gives the
        rest.
        """
        super().__init__()
        self._stream, self._entry, self._subject = stream, entry, subject
        self._rewinds, self._watch = rewinds, watch
        self._position = 0
        self._checked, self._crc = 0, 0
        self._inflater: Any = zlib.decompressobj(-15)
        self._plain = 0  # bytes that the inflater has given
        self._taken = 0  # stored bytes that it was fed
        self._states: list[tuple[int, int, Any]] = []
        self._piece_start, self._piece = 0, b""

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position; nothing is inflated before the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes; b'' at the end alone."""
        if size is not None and size < 0:
            size = None
        if self._position >= self._entry.size:
            self._finish()
            return b""
        wanted = self._entry.size - self._position
        wanted = wanted if size is None else min(size, wanted)
        data = self._stored(wanted) if self._entry.method == STORED else self._inflated(wanted)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer``; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def drain(self) -> None:
        """Read to the end of what was not read yet, so that the CRC is checked."""
        self.seek(self._checked)
        while self.read(_OUTPUT):
            pass

    def _fault(self, found: str, code: str = "E-WHEEL-ZIP") -> IntegrityError:
        return IntegrityError(
            code,
            f"{self._subject}: {ascii(self._entry.name)[1:-1]}",
            expected=f"{self._entry.size} bytes with CRC {self._entry.crc:08x}",
            found=found,
        )

    def _check(self, offset: int, data: bytes) -> None:
        """Take bytes into the CRC as they come by for the first time."""
        if offset == self._checked:
            self._crc = zlib.crc32(data, self._crc)
            if self._watch is not None:
                self._watch(data)
            self._checked += len(data)
            if self._checked == self._entry.size and self._crc != self._entry.crc:
                raise self._fault(f"CRC {self._crc:08x}")

    def _finish(self) -> None:
        if self._entry.size == 0 and self._entry.crc != 0:
            raise self._fault("CRC 00000000")

    def _raw(self, offset: int, count: int) -> bytes:
        self._stream.seek(self._entry.offset + offset)
        return self._stream.read(count)

    def _stored(self, wanted: int) -> bytes:
        if self._position > self._checked:  # bytes stepped over still belong into the CRC
            target, self._position = self._position, self._checked
            while self._position < target:
                self._position += len(self._stored(min(target - self._position, _OUTPUT)))
        data = self._raw(self._position, min(wanted, _OUTPUT))
        if not data:
            raise self._fault(f"the end after {self._position} bytes")
        self._check(self._position, data)
        return data

    def _inflated(self, wanted: int) -> bytes:
        begin = self._position - self._piece_start
        if not 0 <= begin < len(self._piece):
            self._restore()
            while self._plain <= self._position:
                self._piece_start, self._piece = self._plain, b""
                self._piece = self._step()
            begin = self._position - self._piece_start
        piece = self._piece
        return piece[begin : begin + wanted] if begin or wanted < len(piece) else piece

    def _restore(self) -> None:
        """Take up the saved state nearest before the position, unless the present one is nearer."""
        back = self._position < self._plain
        index = bisect_right(self._states, self._position, key=lambda state: state[0]) - 1
        if index >= 0 and (back or self._states[index][0] > self._plain):
            self._plain, self._taken, inflater = self._states[index]
            self._inflater = inflater.copy()
        elif back:
            self._plain, self._taken, self._inflater = 0, 0, zlib.decompressobj(-15)

    def _step(self) -> bytes:
        """Inflate one piece, at least one byte."""
        last = self._states[-1][0] if self._states else 0
        if self._rewinds and self._plain >= last + STRIDE:
            self._states.append((self._plain, self._taken, self._inflater.copy()))
        while True:
            fed = self._inflater.unconsumed_tail
            if not fed and not self._inflater.eof:
                left = self._entry.stored_size - self._taken
                fed = self._raw(self._taken, min(_PIECE, left)) if left > 0 else b""
                self._taken += len(fed)
            data = self._inflate(fed, _OUTPUT)
            if data:
                if self._plain + len(data) > self._entry.size:
                    raise self._fault("more bytes than that", "E-SIZE")
                self._check(self._plain, data)
                self._plain += len(data)
                if self._plain == self._entry.size:
                    self._expect_end()
                return data
            if self._inflater.eof or not fed:
                raise self._fault(f"the end after {self._plain} bytes")

    def _inflate(self, fed: bytes, most: int) -> bytes:
        try:
            data: bytes = self._inflater.decompress(fed, most)
        except zlib.error as fault:
            raise self._fault(f"corrupt bytes after {self._plain}: {fault}") from fault
        return data

    def _expect_end(self) -> None:
        """After the last declared byte the deflated data must end, and nothing may follow it."""
        while not self._inflater.eof:
            fed = self._inflater.unconsumed_tail
            if not fed:
                fed = self._raw(self._taken, min(_PIECE, self._entry.stored_size - self._taken))
                self._taken += len(fed)
            if self._inflate(fed, 1):
                raise self._fault("more bytes than that", "E-SIZE")
            if not fed and not self._inflater.eof:
                raise self._fault("deflated data without an end")
        if self._inflater.unused_data or self._taken != self._entry.stored_size:
            raise self._fault("bytes behind the deflated data")


def read_pieces(stream: MemberStream) -> Iterator[bytes]:
    """Yield the rest of a member in pieces of at most 1 MiB."""
    while piece := stream.read(_OUTPUT):
        yield piece
