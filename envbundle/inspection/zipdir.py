"""The zip container of a wheel, read so that no two readers can see different files in it.

* The central directory must end where its end record begins, and every local header must repeat name,
  method and sizes; members may not overlap, share a name, be encrypted, or hide another local header.
* Sizes are bounded before anything is inflated.

Only stored and deflated members are read, as the wheel format's writers make them (PEP 427, APPNOTE 6.3).
"""

from __future__ import annotations

import io
import stat
import struct
from dataclasses import dataclass
from typing import BinaryIO

from envbundle.errors import IntegrityError

from .member import DEFLATED, STORED, MemberStream, ZipEntry, read_pieces

__all__ = ["Limits", "MemberStream", "ZipEntry", "read_directory", "read_pieces"]

_END, _END64, _LOCATOR64 = struct.Struct("<IHHHHIIH"), struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI")
_CENTRAL, _LOCAL = struct.Struct("<IHHHHHHIIIHHHHHII"), struct.Struct("<IHHHHHIIIHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED, _DESCRIPTOR, _UTF8, _MASKED = 0x1, 0x8, 0x800, 0x2000
_BEST_RATIO = 1032  # deflate cannot do better


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what a wheel may ask of its reader; sizes in bytes after inflating."""

    members: int = 200_000
    member_size: int = 8 << 30
    total_size: int = 64 << 30
    metadata_size: int = 64 << 20


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
        if flags & (_ENCRYPTED | _MASKED) or method not in (STORED, DEFLATED) or disk:
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
