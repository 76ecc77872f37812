"""ELF files of both classes and both byte orders: header, section headers, program headers.

* Rules of the gABI, with the overflow forms: ``e_shnum`` 0 and ``e_shstrndx`` 0xffff are continued in
  section 0's ``sh_size`` and ``sh_link``, ``e_phnum`` 0xffff in its ``sh_info``.
* Every fault is an ``ElfError`` with the absolute offset of the damage; nothing else is raised.
* A file may stand anywhere in a source (an archive's member, a cubin in ``.rodata``): all offsets in the
  values are absolute, and nothing is read behind ``end``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .source import Source

MAGIC = b"\x7fELF"
EM_X86_64, EM_AARCH64, EM_CUDA = 62, 183, 190
MACHINES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64", 3: "i686", 40: "arm", EM_CUDA: "cuda"}
ET_REL = 1
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_NOBITS, SHF_ALLOC = 8, 2
MAX_SECTIONS = 1 << 20
_SHN_XINDEX, _PN_XNUM = 0xFFFF, 0xFFFF


class ElfError(Exception):
    """The bytes at ``offset`` are not what an ELF file has there."""

    def __init__(self, offset: int, expected: str, found: str) -> None:
        super().__init__(f"at byte {offset}: expected {expected}, found {found}")
        self.offset, self.expected, self.found = offset, expected, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """An ELF header; ``start`` and ``end`` bound the file in its source, table offsets are absolute."""

    start: int
    end: int
    bits: int
    order: str
    osabi: int
    abi_version: int
    type: int
    machine: int
    version: int
    flags: int
    section_table: int
    section_size: int
    section_count: int
    names_index: int
    segment_table: int
    segment_size: int
    segment_count: int


class Section(NamedTuple):
    """One section header. ``offset`` is absolute; ``size`` is 0 for what takes no room in the file.

    A tuple, since there are 600,000 of them in one wheel of cubins, made in a third of a dataclass's time.
    """

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.size

    @property
    def loaded(self) -> bool:
        """Whether it is in memory at run time."""
        return bool(self.flags & SHF_ALLOC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One program header; ``offset`` is absolute."""

    type: int
    offset: int
    address: int
    size: int


def read_header(source: Source, start: int, end: int) -> Elf:
    """Read the ELF header at ``start``; raises ``ElfError``."""
    ident = source.read(start, 16)
    if ident[:4] != MAGIC:
        raise ElfError(start, "7f 45 4c 46", ident[:4].hex(" ") or "nothing")
    if len(ident) < 16:
        raise ElfError(start + len(ident), "an ELF header", "the end of the file")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError(start + 4, "class 1 or 2 and byte order 1 or 2", ident[4:6].hex(" "))
    bits, order = (32, 64)[ident[4] - 1], "<>"[ident[5] - 1]
    layout = struct.Struct(order + ("HHIIIIIHHHHHH" if bits == 32 else "HHIQQQIHHHHHH"))
    data = source.read(start + 16, layout.size)
    if len(data) < layout.size or start + 16 + layout.size > end:
        at = min(start + 16 + len(data), end)
        raise ElfError(at, f"an ELF header of {16 + layout.size} bytes", "the end of the file")
    (kind, machine, version, _, phoff, shoff, flags, _, phentsize, phnum, shentsize, shnum, names) = (
        layout.unpack(data)
    )
    elf = Elf(
        start=start,
        end=end,
        bits=bits,
        order=order,
        osabi=ident[7],
        abi_version=ident[8],
        type=kind,
        machine=machine,
        version=version,
        flags=flags,
        section_table=start + shoff if shoff else 0,
        section_size=shentsize,
        section_count=shnum,
        names_index=names,
        segment_table=start + phoff if phoff else 0,
        segment_size=phentsize,
        segment_count=phnum,
    )
    if elf.section_table and (shnum == 0 or names == _SHN_XINDEX or phnum == _PN_XNUM):
        return _continued(source, elf)
    return elf


def _continued(source: Source, elf: Elf) -> Elf:
    """Return the header with the counts that did not fit into it, from section 0."""
    first = _section(source, elf, 0)
    if first is None:
        return elf
    _, _, _, _, _, size, link, info = first
    count = elf.section_count or size
    if count > MAX_SECTIONS:
        raise ElfError(elf.section_table, f"at most {MAX_SECTIONS} sections", str(count))
    return replace(
        elf,
        section_count=count,
        names_index=link if elf.names_index == _SHN_XINDEX else elf.names_index,
        segment_count=info if elf.segment_count == _PN_XNUM else elf.segment_count,
    )


def _section_layout(elf: Elf) -> struct.Struct:
    return struct.Struct(elf.order + ("IIIIIIII" if elf.bits == 32 else "IIQQQQII"))


def _section(source: Source, elf: Elf, index: int) -> tuple[int, ...] | None:
    layout = _section_layout(elf)
    data = source.read(elf.section_table + index * elf.section_size, layout.size)
    return layout.unpack(data) if len(data) == layout.size else None


def read_sections(source: Source, elf: Elf) -> tuple[Section, ...]:
    """Return the sections in table order (none where the file has no table); raises ``ElfError``.

    A section that reaches behind the end of the file is kept as it is: who reads it finds fewer bytes.
    """
    if not elf.section_table or not elf.section_count:
        return ()
    layout = _section_layout(elf)
    if elf.section_size < layout.size:
        raise ElfError(elf.start, f"section headers of {layout.size} bytes", str(elf.section_size))
    length = elf.section_size * elf.section_count
    if elf.section_table + length > elf.end:
        wanted = f"{elf.section_count} section headers at byte {elf.section_table}"
        raise ElfError(min(elf.section_table, elf.end), wanted, "the end of the file")
    table = source.read(elf.section_table, length)
    if len(table) < length:
        raise ElfError(elf.section_table + len(table), "section headers", "the end of the file")
    rows = [layout.unpack_from(table, i * elf.section_size) for i in range(elf.section_count)]
    names = b""
    if elf.names_index < len(rows):
        offset, size = elf.start + rows[elf.names_index][4], rows[elf.names_index][5]
        if size > 1 << 28 or offset + size > elf.end:
            raise ElfError(min(offset, elf.end), "the table of section names", "the end of the file")
        names = source.read(offset, size)
    return tuple(
        Section(
            _name(names, name),
            kind,
            flags,
            address,
            elf.start + offset,
            0 if kind == SHT_NOBITS else size,
            link,
            info,
        )
        for name, kind, flags, address, offset, size, link, info, *_ in rows
    )


def read_segments(source: Source, elf: Elf) -> tuple[Segment, ...]:
    """Return the program headers in table order; raises ``ElfError``."""
    if not elf.segment_table or not elf.segment_count:
        return ()
    layout = struct.Struct(elf.order + ("IIIIIIII" if elf.bits == 32 else "IIQQQQQQ"))
    if elf.segment_size < layout.size:
        raise ElfError(elf.start, f"program headers of {layout.size} bytes", str(elf.segment_size))
    length = elf.segment_size * elf.segment_count
    table = source.read(elf.segment_table, length) if elf.segment_table + length <= elf.end else b""
    if length > 1 << 24 or len(table) < length:
        wanted = f"{elf.segment_count} program headers at byte {elf.segment_table}"
        raise ElfError(min(elf.segment_table, elf.end), wanted, "the end of the file")
    segments = []
    for i in range(elf.segment_count):
        row = layout.unpack_from(table, i * elf.segment_size)
        offset, address, size = (row[1], row[2], row[4]) if elf.bits == 32 else (row[2], row[3], row[5])
        segments.append(Segment(type=row[0], offset=elf.start + offset, address=address, size=size))
    return tuple(segments)


def _name(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset)
    return names[offset : end if end >= 0 else len(names)].decode("utf-8", "replace")
