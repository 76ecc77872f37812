"""Zip archives that no honest tool writes: members as given, headers changed after the fact."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING

from ..builders import EPOCH, record_hash, wheel_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE, LINK, FIFO, DEVICE = 0o100644, 0o120777, 0o010644, 0o060644
INFO = "app-1.0.dist-info"


def members_of(data: bytes) -> list[tuple[str, bytes]]:
    """Return names and bytes of an archive's members, in order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def archive_of(
    members: list[tuple[str, bytes]], *, modes: Mapping[str, int] | None = None, system: int = 3
) -> bytes:
    """Write members in order; a name may stand twice, a mode may say anything."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # zipfile warns of names that stand twice
        for name, data in members:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = system
            entry.external_attr = ((modes or {}).get(name, FILE)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return out.getvalue()


def app_wheel(**more: object) -> bytes:
    return wheel_bytes("app", "1.0", {"app/__init__.py": "x = 1\n", "app/a.py": "y = 2\n"}, **more)  # type: ignore[arg-type]


def with_member(name: str, data: bytes = b"evil", *, mode: int = FILE, listed: bool = True) -> bytes:
    """Return the wheel with one more member, which RECORD lists truthfully."""
    members = members_of(app_wheel())
    record = members.pop()
    row = f'"{name}",{record_hash(data)},{len(data)}\n'.encode() if listed else b""
    members += [(name, data), (record[0], row + record[1])]
    return archive_of(members, modes={name: mode})


def patched(data: bytes, name: str, where: str, at: int, value: bytes) -> bytes:
    """Change bytes of the ``local`` or ``central`` header of a member; ``at`` counts from the header."""
    signature = b"PK\x03\x04" if where == "local" else b"PK\x01\x02"
    size, field = (30, 26) if where == "local" else (46, 28)
    start = 0
    while True:
        start = data.index(signature, start)
        (length,) = struct.unpack_from("<H", data, start + field)
        if data[start + size : start + size + length] == name.encode():
            return data[: start + at] + value + data[start + at + len(value) :]
        start += 4


def zeros(mebibytes: int) -> bytes:
    """Return a raw deflate stream of that many MiB of zeros, made in no time."""
    one = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = one.compress(bytes(1 << 20)) + one.flush(zlib.Z_FULL_FLUSH)
    return block * mebibytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def with_deflated(name: str, stream: bytes, *, size: int, crc: int = 0) -> bytes:
    """Return the wheel with one more member, of which RECORD and headers tell ``size``."""
    members = members_of(app_wheel())
    record = members.pop()
    row = f"{name},{record_hash(b'')},{size}\n".encode()
    head = archive_of([*members, (record[0], row + record[1])])
    # A member is put in front: offsets of the others move by its length.
    raw = name.encode()
    wide = size > 0xFFFFFFFE
    extra = struct.pack("<HHQQ", 1, 16, size, len(stream)) if wide else b""
    stated = (0xFFFFFFFF, 0xFFFFFFFF) if wide else (len(stream), size)
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 8, 0, 33, crc, *stated, len(raw), len(extra))
    block = local + raw + extra + stream
    central = struct.pack(
        "<IHHHHHHIIIHHHHHII", 0x02014B50, 3 << 8 | 45, 45, 0, 8, 0, 33, crc, *stated, len(raw), len(extra), 0, 0, 0, FILE << 16, 0
    )  # fmt: skip
    end = head.rindex(b"PK\x05\x06")
    count, length, offset = struct.unpack_from("<HII", head, end + 10)
    table = bytearray(head[offset : offset + length])
    at = 0
    while at < len(table):
        n, m, k = struct.unpack_from("<HHH", table, at + 28)
        (start,) = struct.unpack_from("<I", table, at + 42)
        struct.pack_into("<I", table, at + 42, start + len(block))
        at += 46 + n + m + k
    table = bytearray(central + raw + extra + table)
    body = block + head[:offset]
    tail = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count + 1, count + 1, len(table), len(body), 0)
    return body + bytes(table) + tail
