"""The zip container of a wheel, read so that no two readers can see different files in it.

* The central directory must end where its end record begins, and every local header must repeat name,
  method and sizes; members may not overlap, share a name, be encrypted, or hide another local header.
* Sizes are bounded before anything is inflated, and inflating stops one byte behind the declared size.
* ``MemberStream`` gives a member as a seekable stream in bounded memory: going back starts at a saved
  state of the inflater, at most ``STRIDE`` bytes before.

Only stored and deflated members are read, as the wheel format's writers make them (PEP 427, APPNOTE 6.3).
"""

from __future__ import annotations

import io
import stat
import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from envbundle.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator

STRIDE = 8 << 20
_PIECE = 1 << 16
_OUTPUT = 1 << 20
_END, _END64, _LOCATOR64 = struct.Struct("<IHHHHIIH"), struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI")
_CENTRAL, _LOCAL = struct.Struct("<IHHHHHHIIIHHHHHII"), struct.Struct("<IHHHHHIIIHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED, _DESCRIPTOR, _UTF8, _MASKED = 0x1, 0x8, 0x800, 0x2000
_STORED, _DEFLATED = 0, 8
_BEST_RATIO = 1032  # deflate cannot do better


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a wheel may ask of its reader; sizes in bytes after inflating."""

    members: int = 200_000
    member_size: int = 8 << 30
    total_size: int = 64 << 30
    metadata_size: int = 64 << 20


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


def read_directory(stream: BinaryIO, subject: str, limits: Limits) -> tuple[ZipEntry, ...]:
    """Return all members in the order of their bytes.

    ``subject`` names the file in errors. Raises ``IntegrityError``: E-WHEEL-ZIP for a malformed or
    ambiguous archive, E-WHEEL-DUPLICATE for a name that stands twice, E-SIZE beyond ``limits``.
    """
    return _Directory(stream, subject, limits).entries()


class _Directory:
    def __init__(self, stream: BinaryIO, subject: str, limits: Limits) -> None:
        self._stream, self._subject, self._limits = stream, subject, limits
        self._size = stream.seek(0, io.SEEK_END)

    def _fail(self, offset: int, expected: str, found: str, code: str = "E-WHEEL-ZIP") -> IntegrityError:
        return IntegrityError(code, self._subject, expected=expected, found=found, offset=offset)

    def _read(self, offset: int, count: int) -> bytes:
        if offset < 0 or count < 0 or offset + count > self._size:
            found = f"a file of {self._size} bytes"
            raise self._fail(max(min(offset, self._size), 0), f"{count} bytes", found)
        self._stream.seek(offset)
        data = self._stream.read(count)
        if len(data) < count:
            raise self._fail(offset + len(data), f"{count} bytes", f"{len(data)}")
        return data

    def _bounds(self) -> tuple[int, int, int]:
        """Return (offset, size, count) of the central directory."""
        reach = min(self._size, _END.size + 0xFFFF)
        tail = self._read(self._size - reach, reach)
        at = tail.rfind(b"PK\x05\x06")
        while at >= 0:
            if len(tail) - at >= _END.size:
                row = _END.unpack_from(tail, at)
                if at + _END.size + row[7] == len(tail):
                    break
            at = tail.rfind(b"PK\x05\x06", 0, at)
        else:
            raise self._fail(self._size, "the end record of a zip archive", "none: cut off, or no zip at all")
        end = self._size - reach + at
        _, disk, first_disk, here, count, size, offset, _ = row
        if end >= _LOCATOR64.size:
            locator = _LOCATOR64.unpack(self._read(end - _LOCATOR64.size, _LOCATOR64.size))
            if locator[0] == 0x07064B50:
                end = locator[2]
                wide = _END64.unpack(self._read(end, _END64.size))
                if wide[0] != 0x06064B50 or end + 12 + wide[1] != self._size - reach + at - _LOCATOR64.size:
                    raise self._fail(end, "a zip64 end record", "something else")
                _, _, _, _, disk, first_disk, here, count, size, offset = wide
        if disk or first_disk or here != count:
            raise self._fail(end, "an archive in one piece", "one of several disks")
        if offset + size != end:
            raise self._fail(end, f"a directory that ends at byte {end}", f"one that ends at {offset + size}")
        return offset, size, count

    def entries(self) -> tuple[ZipEntry, ...]:
        offset, size, count = self._bounds()
        if count > self._limits.members or size > self._limits.metadata_size:
            expected = f"at most {self._limits.members} members"
            raise self._fail(offset, expected, f"{count} in {size} bytes", "E-SIZE")
        table = self._read(offset, size)
        rows: list[tuple[int, ZipEntry, int, bytes]] = []
        at, total = 0, 0
        names: set[str] = set()
        for _ in range(count):
            entry, flags, start, raw, at = self._central(table, at, offset)
            if entry.name in names:
                raise self._fail(start, "each name once", ascii(entry.name)[:200], "E-WHEEL-DUPLICATE")
            names.add(entry.name)
            total += entry.size
            if total > self._limits.total_size:
                expected = f"at most {self._limits.total_size} bytes in all"
                raise self._fail(offset + at, expected, f"{total}", "E-SIZE")
            rows.append((start, entry, flags, raw))
        if at != size:
            raise self._fail(offset + at, f"{count} members", "bytes behind the last one")
        return self._placed(sorted(rows, key=lambda row: row[0]), offset)

    def _central(self, table: bytes, at: int, base: int) -> tuple[ZipEntry, int, int, bytes, int]:
        if len(table) - at < _CENTRAL.size:
            raise self._fail(base + at, "a member of the directory", "its end")
        row = _CENTRAL.unpack_from(table, at)
        signature, made, _, flags, method, _, _, crc, stored, size = row[:10]
        n, m, k, disk, _, attributes, start = row[10:]
        first = at + _CENTRAL.size
        stop = first + n + m + k
        if signature != 0x02014B50 or stop > len(table):
            raise self._fail(base + at, "a member of the directory", table[at : at + 4].hex(" "))
        raw = table[first : first + n]
        wide = _Zip64(table[first + n : first + n + m])
        size, stored, start = wide.take(size), wide.take(stored), wide.take(start)
        name = self._name(raw, flags, base + first)
        if flags & (_ENCRYPTED | _MASKED) or method not in (_STORED, _DEFLATED) or disk:
            found = f"method {method}, flags {flags:#x}: {ascii(name)[:200]}"
            raise self._fail(base + at, "a stored or deflated member", found)
        mode = attributes >> 16 if made >> 8 == 3 else 0
        kind = stat.S_IFMT(mode)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (name.endswith("/") and size):
            raise self._fail(base + at, "a plain file", f"{ascii(name)[:200]} of mode {mode:o}")
        most = min(self._limits.member_size, stored * _BEST_RATIO + 64 if method else stored)
        if size > most or (not method and size != stored):
            expected = f"at most {most} bytes"
            raise self._fail(base + at, expected, f"{size} in {ascii(name)[:200]}", "E-SIZE")
        entry = ZipEntry(
            name=name, method=method, crc=crc, stored_size=stored, size=size, mode=mode, offset=0
        )
        return entry, flags, start, raw, stop

    def _name(self, raw: bytes, flags: int, offset: int) -> str:
        try:
            name = raw.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError:
            raise self._fail(offset, "a name in UTF-8, marked as such", repr(raw[:80])) from None
        if not name or "\0" in name:
            raise self._fail(offset, "a name", repr(raw[:80]))
        return name

    def _placed(self, rows: list[tuple[int, ZipEntry, int, bytes]], directory: int) -> tuple[ZipEntry, ...]:
        """Compare with the local headers, in the order of the bytes."""
        placed: list[ZipEntry] = []
        stop = 0
        for start, entry, flags, raw in rows:
            self._gap(stop, start, entry)
            head = self._read(start, _LOCAL.size + len(raw))
            (signature, _, own_flags, method, _, _, crc, stored, size, n, m) = _LOCAL.unpack_from(head)
            same = signature == 0x04034B50 and n == len(raw) and head[_LOCAL.size :] == raw
            same = same and method == entry.method and not (own_flags ^ flags) & (_ENCRYPTED | _DESCRIPTOR)
            if same and not (flags & _DESCRIPTOR and (crc, stored, size) == (0, 0, 0)):
                wide = _Zip64(self._read(start + _LOCAL.size + n, m))
                size, stored = wide.take(size), wide.take(stored)
                # A streaming writer may leave the sizes to the descriptor and still write zip64 fields.
                deferred = bool(flags & _DESCRIPTOR) and (crc, size, stored) == (0, 0, 0)
                same = deferred or (crc, stored, size) == (entry.crc, entry.stored_size, entry.size)
            if not same:
                raise self._fail(start, f"the local header of {ascii(entry.name)[:200]}", "another one")
            first = start + _LOCAL.size + n + m
            stop = first + entry.stored_size
            if stop > directory:
                raise self._fail(start, "a member before the directory", ascii(entry.name)[:200])
            placed.append(
                ZipEntry(
                    name=entry.name,
                    method=entry.method,
                    crc=entry.crc,
                    stored_size=entry.stored_size,
                    size=entry.size,
                    mode=entry.mode,
                    offset=first,
                )
            )
        self._gap(stop, directory, None)
        return tuple(placed)

    def _gap(self, stop: int, start: int, entry: ZipEntry | None) -> None:
        """Between members there may be a data descriptor or padding, but no member that is not listed."""
        if start < stop:
            raise self._fail(start, "members side by side", f"{entry.name if entry else 'the end'} overlaps")
        if start - stop > 1 << 20:
            raise self._fail(stop, "members side by side", f"{start - stop} bytes of nothing")
        if start > stop and _LOCAL_SIGNATURE in self._read(stop, start - stop):
            raise self._fail(stop, "listed members only", "a local header that the directory does not name")


class _Zip64:
    """The 64-bit fields of an extra block, taken in order wherever a 32-bit one is full."""

    def __init__(self, extra: bytes) -> None:
        self._fields: list[int] = []
        at = 0
        while at + 4 <= len(extra):
            ident, size = struct.unpack_from("<HH", extra, at)
            if ident == 1:
                body = extra[at + 4 : at + 4 + size]
                self._fields = [int.from_bytes(body[i : i + 8], "little") for i in range(0, len(body) - 7, 8)]
                return
            at += 4 + size

    def take(self, value: int) -> int:
        return self._fields.pop(0) if value == 0xFFFFFFFF and self._fields else value


class MemberStream(io.RawIOBase):
    """One member as a readable, seekable stream; its CRC is checked when its end is first reached.

    ``read`` gives at most one piece and may give less than asked for. Raises ``IntegrityError``: E-SIZE
    where the member inflates to more than declared, E-WHEEL-ZIP where it is cut off or corrupt.
    """

    def __init__(self, stream: BinaryIO, entry: ZipEntry, subject: str, *, rewinds: bool = True) -> None:
        """Read ``entry`` from ``stream``. Without ``rewinds`` no inflater states are kept."""
        super().__init__()
        self._stream, self._entry, self._subject = stream, entry, subject
        self._rewinds = rewinds
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
        data = self._stored(wanted) if self._entry.method == _STORED else self._inflated(wanted)
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
