"""The SSH wire encoding (RFC 4251, section 5): length-prefixed strings and multi-precision integers.

* A length is four bytes, most significant first. What is left over at the end is a fault, never ignored.
* An ``mpint`` is read in its one canonical form: not negative, no needless leading zero byte.
* Faults are ``ValueError`` with a sentence; whoever knows what the bytes were says so in an own error.
"""

from __future__ import annotations

import struct

Buffer = bytes | bytearray | memoryview
"""Bytes that somebody handed in."""


def pack_string(data: bytes) -> bytes:
    """Return ``data`` behind its length."""
    return struct.pack(">I", len(data)) + data


def pack_mpint(value: int) -> bytes:
    """Return a non-negative integer as an ``mpint``; the spare bit keeps it from reading as negative."""
    return pack_string(value.to_bytes(value.bit_length() // 8 + 1, "big") if value else b"")


class Reader:
    """A cursor over wire data."""

    def __init__(self, data: Buffer) -> None:
        """Read ``data`` from its start."""
        self._data = bytes(data)
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def take(self, size: int, what: str) -> bytes:
        """Return the next ``size`` bytes; ``what`` names them in the fault."""
        if size > self.left:
            raise ValueError(f"{what} of {size} bytes where {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def uint32(self, what: str) -> int:
        """Return the next four bytes as a number."""
        return int.from_bytes(self.take(4, what), "big")

    def uint64(self, what: str) -> int:
        """Return the next eight bytes as a number."""
        return int.from_bytes(self.take(8, what), "big")

    def string(self, what: str) -> bytes:
        """Return the next length-prefixed string."""
        return self.take(self.uint32(f"length of {what}"), what)

    def text(self, what: str) -> str:
        """Return the next string as printable ASCII: names of algorithms are nothing else."""
        data = self.string(what)
        if not data or any(byte < 0x21 or byte > 0x7E for byte in data):
            raise ValueError(f"{what} {data[:40]!r} is no printable ASCII")
        return data.decode("ascii")

    def mpint(self, what: str) -> int:
        """Return the next non-negative integer in its canonical form."""
        data = self.string(what)
        if data and data[0] & 0x80:
            raise ValueError(f"{what} is negative")
        if data and data[0] == 0 and (len(data) == 1 or not data[1] & 0x80):
            raise ValueError(f"{what} has a needless leading zero")
        return int.from_bytes(data, "big")

    def done(self, what: str) -> None:
        """Refuse what is left over behind the end of ``what``."""
        if self.left:
            raise ValueError(f"{self.left} bytes behind the end of {what}")
