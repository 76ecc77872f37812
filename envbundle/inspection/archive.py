"""Static libraries: ``!<arch>`` and 60-byte member headers, each member an object file.

The symbol tables (``/``, ``/SYM64/``, ``__.SYMDEF``) and the table of long names (``//``) are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .fatbin import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source import Source

MAGIC = b"!<arch>\n"
_HEADER = 60


@dataclass(frozen=True, slots=True)
class Object:
    """The bytes [start, end) of one member; ``part`` counts the members from 1."""

    part: int
    start: int
    end: int


def read_objects(source: Source, start: int, end: int) -> Iterator[Object | Fault]:
    """Yield the members in order; a ``Fault`` ends the iteration where the archive is damaged."""
    at, part = start + len(MAGIC), 0
    while at < end:
        header = source.read(at, min(_HEADER, end - at))
        if len(header) < _HEADER:
            if header.strip(b"\n\0"):
                yield Fault(at, "a member header of 60 bytes", f"{len(header)} bytes")
            return
        digits = header[48:58].strip()
        if header[58:60] != b"`\n" or not digits.isdigit():
            yield Fault(at, "a member header", header[48:60].hex(" "))
            return
        size, first = int(digits), at + _HEADER
        if size > end - first:
            yield Fault(at + 48, f"a member of at most {end - first} bytes", f"{size} bytes")
            size = end - first
        name = header[:16].rstrip()
        part += 1
        if name not in (b"/", b"//", b"/SYM64/") and not name.startswith(b"__.SYMDEF"):
            skip = int(name[3:]) if name.startswith(b"#1/") and name[3:].isdigit() else 0
            yield Object(part, first + min(skip, size), first + size)
        at = first + size + (size & 1)
