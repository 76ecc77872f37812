"""What one ELF file asks of the dynamic loader, read as the loader reads it: through program headers.

* NEEDED, SONAME, RPATH and RUNPATH from the dynamic table; symbol versions from DT_VERNEED, each with the
  entry's own weak flag (VER_FLG_WEAK), which alone decides whether its absence is tolerated.
* Addresses become offsets through PT_LOAD. Section names are not consulted: ``strip`` may drop them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from envbundle.spec.coverage import Needs

from .elf import MACHINES, PT_DYNAMIC, PT_INTERP, PT_LOAD, Elf, ElfError, Segment, read_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source import Source

_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_WEAK = 2
_MAX_ENTRIES = 1 << 16
_MAX_STRING = 1 << 16


def open_dynamic(source: Source, elf: Elf) -> Dynamic | None:
    """Return the file's dynamic table, None where it has none; raises ``ElfError`` where it is damaged."""
    segments = read_segments(source, elf)
    dynamic = next((segment for segment in segments if segment.type == PT_DYNAMIC), None)
    return None if dynamic is None or not dynamic.size else Dynamic(source, elf, segments, dynamic)


def read_needs(source: Source, elf: Elf) -> Needs:
    """Return what the file needs; raises ``ElfError`` where its dynamic table is damaged."""
    machine = MACHINES.get(elf.machine, f"em_{elf.machine}")
    interpreter = None
    for segment in read_segments(source, elf):
        if segment.type == PT_INTERP:
            interpreter = _text(source.read(segment.offset, min(segment.size, _MAX_STRING)))
    table = open_dynamic(source, elf)
    if table is None:
        return Needs(machine=machine, interpreter=interpreter)
    versions, weak = table.versions()
    return Needs(
        machine=machine,
        soname=next(iter(table.strings(_SONAME)), None),
        sonames=table.strings(_NEEDED),
        versions=versions,
        weak_versions=weak,
        rpath=_split(table.strings(_RPATH)),
        runpath=_split(table.strings(_RUNPATH)),
        interpreter=interpreter,
    )


class Dynamic:
    """The dynamic table of one file."""

    def __init__(self, source: Source, elf: Elf, segments: tuple[Segment, ...], dynamic: Segment) -> None:
        self._source, self.elf = source, elf
        self._loads = [segment for segment in segments if segment.type == PT_LOAD]
        layout = struct.Struct(elf.order + ("qQ" if elf.bits == 64 else "iI"))
        size = min(dynamic.size, elf.end - dynamic.offset, _MAX_ENTRIES * layout.size)
        data = source.read(dynamic.offset, max(size, 0))
        if len(data) < min(dynamic.size, layout.size):
            raise ElfError(min(dynamic.offset, elf.end), "the dynamic table", "the end of the file")
        self._rows: list[tuple[int, int]] = []
        for tag, value in layout.iter_unpack(data[: len(data) // layout.size * layout.size]):
            if tag == 0:
                break
            self._rows.append((tag, value))
        self.offset = dynamic.offset

    def value(self, tag: int) -> int | None:
        """Return the value of the first row with ``tag``."""
        return next((value for own, value in self._rows if own == tag), None)

    def read(self, offset: int, count: int, what: str) -> bytes:
        """Return exactly ``count`` bytes of the file from ``offset``; raises ``ElfError`` naming ``what``."""
        data = self._source.read(offset, count) if offset + count <= self.elf.end else b""
        if len(data) < count:
            raise ElfError(min(offset, self.elf.end), f"{what}, {count} bytes", "the end of the file")
        return data

    def at(self, address: int) -> int:
        """Return the offset of what is loaded at ``address``."""
        for load in self._loads:
            if load.address <= address < load.address + load.size:
                return load.offset + address - load.address
        raise ElfError(self.offset, "addresses inside the loaded file", hex(address))

    def _string(self, index: int) -> str:
        base, size = self.value(_STRTAB), self.value(_STRSZ) or 0
        if base is None or not 0 <= index < max(size, 1):
            raise ElfError(self.offset, f"a string within {size} bytes", str(index))
        offset = self.at(base) + index
        data = self._source.read(offset, min(size - index, 256))
        if b"\0" not in data:
            data = self._source.read(offset, min(size - index, _MAX_STRING))
        return _text(data)

    def strings(self, tag: int) -> tuple[str, ...]:
        """Return the strings of all rows with ``tag``, in table order."""
        return tuple(self._string(value) for own, value in self._rows if own == tag)

    def versions(self) -> tuple[_Versions, _Versions]:
        """Return the hard and the weak version needs, by soname."""
        hard: dict[str, set[str]] = {}
        weak: dict[str, set[str]] = {}
        for soname, name, flags, _ in self._needed_versions():
            (weak if flags & _WEAK else hard).setdefault(soname, set()).add(self._string(name))
        return _frozen(hard), _frozen(weak)

    def version_files(self) -> dict[int, str]:
        """Return the soname that each version number of DT_VERSYM asks."""
        return {number & 0x7FFF: soname for soname, _, _, number in self._needed_versions()}

    def _needed_versions(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (soname, offset of the version's name, flags, number)."""
        address, count = self.value(_VERNEED), self.value(_VERNEEDNUM) or 0
        if address is None or not count:
            return
        file_layout = struct.Struct(self.elf.order + "HHIII")
        name_layout = struct.Struct(self.elf.order + "IHHII")
        at = self.at(address)
        budget = _MAX_ENTRIES
        for _ in range(min(count, _MAX_ENTRIES)):
            _, names, file, first, following = self._unpack(file_layout, at)
            soname = self._string(file)
            where = at + first
            for _ in range(names):
                budget -= 1
                if budget < 0:
                    raise ElfError(at, f"at most {_MAX_ENTRIES} version needs", "more")
                _, flags, number, name, more = self._unpack(name_layout, where)
                yield soname, name, flags, number
                if not more:
                    break
                where += more
            if not following:
                break
            at += following

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        data = self._source.read(offset, layout.size)
        if len(data) < layout.size or offset + layout.size > self.elf.end:
            raise ElfError(min(offset, self.elf.end), "a version need", "the end of the file")
        return layout.unpack(data)


_Versions = tuple[tuple[str, tuple[str, ...]], ...]


def _frozen(versions: dict[str, set[str]]) -> _Versions:
    return tuple((name, tuple(sorted(wanted))) for name, wanted in sorted(versions.items()))


def _split(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for path in paths for part in path.split(":") if part)


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
