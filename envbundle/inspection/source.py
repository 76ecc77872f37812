"""Bytes to be read: a buffer in memory (mmap, bytes) or a seekable stream, behind one small interface.

* Offsets are absolute. A read past the end gives fewer bytes; it never raises.
* A stream is read in windows of at most ``WINDOW`` bytes: memory stays bounded whatever the size.
* Going forward is cheap; going back is allowed and costs what the stream's ``seek`` costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

if TYPE_CHECKING:
    import mmap
    import struct
    from collections.abc import Iterator

Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap"

WINDOW = 1 << 20
_NEAR = 1 << 16


class Source(Protocol):
    """Random access to ``size`` bytes."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``offset``; fewer at the end."""

    def first(self, patterns: tuple[bytes, ...], start: int, end: int) -> tuple[int, int]:
        """Return (offset, index) of the pattern that comes first within [start, end), or (-1, -1)."""


class BufferSource:
    """A source over bytes that are all at hand (an mmap reads from the disk what is touched)."""

    def __init__(self, buffer: Buffer, size: int | None = None) -> None:
        """Take ``buffer``; a memoryview is searched in copies of one window, the others in place."""
        self._buffer = buffer
        self._size = len(buffer) if size is None else min(size, len(buffer))

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._size

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``offset``."""
        if offset < 0 or count <= 0:
            return b""
        return bytes(self._buffer[offset : min(offset + count, self._size)])

    def first(self, patterns: tuple[bytes, ...], start: int, end: int) -> tuple[int, int]:
        """Return (offset, index) of the pattern that comes first within [start, end), or (-1, -1)."""
        start, end = max(start, 0), min(end, self._size)
        if isinstance(self._buffer, memoryview):
            return _first_in_windows(self._windows(start, end), patterns, end)
        best = (-1, -1)
        for index, pattern in enumerate(patterns):
            hit = self._buffer.find(pattern, start, end) if start < end else -1
            if hit >= 0:
                best, end = (hit, index), min(hit + len(pattern), end)
        return best

    def _windows(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for offset in range(start, end, WINDOW):
            yield offset, bytes(self._buffer[offset : min(offset + WINDOW, end)])


class StreamSource:
    """A source over a seekable binary stream of ``size`` bytes; holds one window of it."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        """Read from ``stream``, whose position 0 is the first byte."""
        self._stream, self._size = stream, size
        self._start, self._window = 0, b""

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._size

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``offset``."""
        if offset < 0:
            return b""
        count = min(count, self._size - offset)
        begin = offset - self._start
        if begin >= 0 and begin + count <= len(self._window):
            return self._window[begin : begin + count]
        parts: list[bytes] = []
        while count > 0:
            piece = self._at(offset, count)[:count]
            if not piece:
                break
            parts.append(piece)
            offset, count = offset + len(piece), count - len(piece)
        return b"".join(parts)

    def first(self, patterns: tuple[bytes, ...], start: int, end: int) -> tuple[int, int]:
        """Return (offset, index) of the pattern that comes first within [start, end), or (-1, -1)."""
        end = min(end, self._size)
        return _first_in_windows(self._windows(max(start, 0), end), patterns, end)

    def _windows(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        while start < end:
            window = self._at(start, WINDOW)
            if not window:
                return
            yield start, window
            start += len(window)

    def _at(self, offset: int, wanted: int) -> bytes:
        """Return the bytes of the window from ``offset`` on, loading another one where it is not in."""
        begin = offset - self._start
        if not 0 <= begin < len(self._window):
            adjoining = begin == len(self._window)
            self._stream.seek(offset)
            self._window = self._stream.read(WINDOW if adjoining or wanted > _NEAR else _NEAR)
            self._start, begin = offset, 0
        return self._window[begin:] if begin else self._window


def _first_in_windows(
    windows: Iterator[tuple[int, bytes]], patterns: tuple[bytes, ...], end: int
) -> tuple[int, int]:
    keep = max(len(pattern) for pattern in patterns) - 1
    tail, tail_start = b"", 0
    for start, window in windows:
        best, index = _first_in(tail + window[:keep], patterns, end - tail_start) if tail else (-1, -1)
        if best >= 0:
            return tail_start + best, index
        best, index = _first_in(window, patterns, end - start)
        if best >= 0:
            return start + best, index
        tail = (tail + window)[-keep:] if len(window) < keep else window[-keep:]
        tail_start = start + len(window) - len(tail)
    return -1, -1


def _first_in(data: bytes, patterns: tuple[bytes, ...], end: int) -> tuple[int, int]:
    best = (-1, -1)
    for index, pattern in enumerate(patterns):
        hit = data.find(pattern, 0, max(end, 0))
        if hit >= 0:
            best, end = (hit, index), hit + len(pattern)
    return best


def unpack(layout: struct.Struct, source: Source, offset: int) -> tuple[int, ...] | None:
    """Return the fields of ``layout`` at ``offset``, or None where the bytes end before."""
    data = source.read(offset, layout.size)
    return layout.unpack(data) if len(data) == layout.size else None
