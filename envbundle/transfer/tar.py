"""Tar members as bytes, no input or output of its own (POSIX.1-1988 ustar).

* Written in one way: plain files, mode 0644, no owner, no time: equal stores give equal archives.
* Read leniently where other programs write: ``./`` before names, folders, GNU and pax extras are passed over.
* A damaged header is refused: nothing after it can be believed. Extended headers that would rename or resize
  a member are refused too: no name of a store needs them.

Source: IEEE Std 1003.1, "pax", ustar Interchange Format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_EXTENDED = 1024 * 1024
_FILE = (b"0", b"\0", b"7")
_EXTENDED = (b"x", b"g", b"L", b"K")
_PASSED_OVER = (b"1", b"2", b"3", b"4", b"5", b"6", b"S", b"V", b"M")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One regular file of an archive: its name without ``./``, its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A parsed header block: ``member`` is None for what is no regular file; ``size`` bytes follow it."""

    member: Member | None
    size: int
    extended: bool = False


def member_header(name: str, size: int) -> bytes:
    """Return the header block of a plain file; ``name``: at most 100 ASCII bytes, ``size``: below 8 GiB."""
    encoded = name.encode("ascii")
    if len(encoded) > 100 or not 0 <= size < 8**11:
        raise ValueError(name, size)
    block = bytearray(BLOCK)
    block[0 : len(encoded)] = encoded
    block[100:108] = b"0000644\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"%011o\0" % 0
    block[156:157] = b"0"
    block[257:265] = b"ustar\00000"
    block[148:156] = b"%06o\0 " % _checksum(block)
    return bytes(block)


def padding(size: int) -> bytes:
    """Return the zero bytes that fill ``size`` up to a whole block."""
    return bytes(-size % BLOCK)


def parse_header(block: bytes, where: str) -> Header | None:
    """Return what a header block says, or None for the zero block that ends an archive.

    Raises ``FormatError`` (E-TAR).
    """
    if len(block) == BLOCK and not any(block):
        return None
    if len(block) != BLOCK or _number(block[148:156]) != _checksum(block):
        raise FormatError(
            "E-TAR",
            where,
            expected="a tar header",
            found="bytes that are none",
            hint="the archive is damaged or was cut: copy it again",
        )
    size = _number(block[124:136])
    kind = block[156:157]
    if size is None:
        raise FormatError("E-TAR", where, expected="a size in octal digits", found="another form")
    if kind in _EXTENDED:
        if size > MAX_EXTENDED:
            raise FormatError("E-TAR", where, expected="a short extended header", found=f"{size} bytes")
        return Header(member=None, size=size, extended=True)
    if kind in _FILE:
        return Header(member=Member(name=_name(block), size=size), size=size)
    if kind in _PASSED_OVER:
        return Header(member=None, size=size if kind in (b"S", b"M") else 0)
    raise FormatError("E-TAR", where, expected="a kind of member that is known", found=ascii(kind)[2:-1])


def check_extended(data: bytes, where: str) -> None:
    """Raise ``FormatError`` where an extended header gives the next member another name or size."""
    for key in (b" path=", b" size=", b" GNU.sparse", b" linkpath="):
        if key in data:
            raise FormatError(
                "E-TAR", where, expected="plain names and sizes", found="an extended header with others"
            )


def read_members(read: Callable[[int], bytes], where: str) -> Iterator[tuple[Member, Callable[[], bytes]]]:
    """Give each regular file of a stream and a function that returns its bytes, to be called before going on.

    ``read(n)`` returns ``n`` bytes, fewer only at the end. Nothing larger than asked for is held. Raises
    ``FormatError`` (E-TAR, E-TAR-CUT).
    """
    while True:
        block = read(BLOCK)
        if not block:
            raise cut(where)
        header = parse_header(block, where)
        if header is None:
            return
        if header.member is None:
            data = _exactly(read, header.size, where) if header.extended else b""
            check_extended(data, where)
            _skip(read, header.size - len(data) + len(padding(header.size)), where)
            continue
        taken = False
        size = header.size

        def body(size: int = size) -> bytes:
            nonlocal taken
            taken = True
            return _exactly(read, size, where)

        yield header.member, body
        _skip(read, (0 if taken else size) + len(padding(size)), where)


def cut(where: str) -> FormatError:
    """Return the error of an archive that ends too early."""
    return FormatError(
        "E-TAR-CUT",
        where,
        expected="a tar archive to its end",
        found="an end in the middle",
        hint="it was cut on the way: copy it again",
    )


def _exactly(read: Callable[[int], bytes], size: int, where: str) -> bytes:
    data = read(size)
    if len(data) != size:
        raise cut(where)
    return data


def _skip(read: Callable[[int], bytes], size: int, where: str) -> None:
    while size:
        size -= len(_exactly(read, min(size, 1 << 20), where))


def _checksum(block: bytes | bytearray) -> int:
    return sum(block) - sum(block[148:156]) + 8 * 0x20


def _number(text: bytes) -> int | None:
    if text[:1] == b"\x80":  # base 256, as GNU writes what octal cannot hold
        return int.from_bytes(text[1:], "big")
    digits = text.strip(b" \0")
    return int(digits, 8) if digits and not digits.translate(None, b"01234567") else 0 if not digits else None


def _name(block: bytes) -> str:
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    text = (prefix + b"/" + name if prefix else name).decode("ascii", "backslashreplace")
    while text.startswith("./"):
        text = text[2:]
    return text
