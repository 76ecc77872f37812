"""Cubins: ELF files of machine 190 (EM_CUDA), in both layouts that NVIDIA's tools write.

========================  ==========================  =====================================
what                      old (EI_OSABI 0x33)         new (EI_OSABI 0x41)
========================  ==========================  =====================================
architecture              ``e_flags & 0xff``          ``(e_flags >> 8) & 0xff``
architecture-specific     bit 0x800, sm >= 90 only    bit 0x8, or ``.nv.compat`` id 9 is 1
========================  ==========================  =====================================

Family-specific code has no structural mark: only the note ``.note.nv.tkinfo`` may hold the command line
that says ``-arch sm_100f``. The layout is told by EI_OSABI, never by the value of the flags.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from envbundle.spec.coverage import Image

from .elf import EM_CUDA, Elf, ElfError, Section, read_header, read_sections
from .source import BufferSource

if TYPE_CHECKING:
    from .source import Source

OLD_LAYOUT, NEW_LAYOUT = 0x33, 0x41
START = b"\x7fELF\x02\x01\x01"  # then 0x33 or 0x41
_COMPAT, _TARGET_ID = 0x70000086, 9
_NOTE, _SYMTAB = 7, 2
_STT_FUNC, _STO_ENTRY = 2, 0x10
_ARCH_OPTION = re.compile(rb"-arch[ =]+sm_([0-9]{2,3})([af]?)\b")
_MAX_NOTE = 1 << 16
_MAX_SYMBOLS = 1 << 20


def read_cubin(source: Source, elf: Elf, sections: tuple[Section, ...]) -> Image:
    """Return the image that a cubin is; raises ``ElfError`` where its flags name no architecture."""
    if elf.osabi == NEW_LAYOUT:
        number, specific = elf.flags >> 8 & 0xFF, bool(elf.flags & 0x8)
    else:
        number = elf.flags & 0xFF
        specific = bool(elf.flags & 0x800) and number >= 90
    if number < 10:
        where = elf.start + (48 if elf.bits == 64 else 36)
        raise ElfError(where, "an architecture in e_flags", hex(elf.flags))
    if specific or _compat_says_specific(source, elf, sections):
        return Image("sass", f"{number}a")
    return Image("sass", f"{number}f" if _noted_family(source, sections) == number else str(number))


def header_image(elf: Elf) -> Image | None:
    """Return the image by the header alone, for a cubin whose sections cannot be read."""
    try:
        return read_cubin(BufferSource(b""), elf, ())
    except ElfError:
        return None


def _compat_says_specific(source: Source, elf: Elf, sections: tuple[Section, ...]) -> bool:
    """Walk ``.nv.compat``: attributes {u8 format, u8 id, ...} whose length follows from the format."""
    for section in sections:
        if section.type != _COMPAT and section.name != ".nv.compat":
            continue
        data = source.read(section.offset, min(section.size, _MAX_NOTE))
        at = 0
        while at + 4 <= len(data):
            form, ident = data[at], data[at + 1]
            value = int.from_bytes(data[at + 2 : at + 4], "little" if elf.order == "<" else "big")
            if ident == _TARGET_ID and form in (2, 3):
                return (value & 0xFF if form == 2 else value) == 1
            at += 4 + (-(-value // 4) * 4 if form == 4 else 0)
    return False


def _noted_family(source: Source, sections: tuple[Section, ...]) -> int:
    """Return N where the tool's note says that it compiled for ``sm_Nf``, else 0."""
    for section in sections:
        if section.name == ".note.nv.tkinfo" and section.type == _NOTE:
            match = _ARCH_OPTION.search(source.read(section.offset, min(section.size, _MAX_NOTE)))
            if match is not None and match[2] == b"f":
                return int(match[1])
    return 0


def has_kernels(sections: tuple[Section, ...]) -> bool:
    """Whether a cubin holds any code: a section named ``.text.<function>``."""
    return any(section.name.startswith(".text.") for section in sections)


def names_code(data: bytes) -> bool:
    """Whether a cubin's table of section names surely has code in it; a quick look before a full one.

    False only means that a full look is needed (names may share their ends, the file may be damaged).
    """
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01" or data[18:20] != b"\xbe\0":
        return False
    table = int.from_bytes(data[40:48], "little") + 64 * int.from_bytes(data[62:64], "little")
    if table + 64 > len(data):
        return False
    offset, size = struct.unpack_from("<QQ", data, table + 24)
    return data.find(b"\0.text.", offset, min(offset + size, len(data))) >= 0


def kernel_names(source: Source, elf: Elf, sections: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the names of the kernels, sorted: functions that the symbol table marks as entry points.

    Without a symbol table the names of the ``.text.`` sections are given. Raises ``ElfError``.
    """
    layout = struct.Struct(elf.order + ("IBBHQQ" if elf.bits == 64 else "IIIBBH"))
    names: set[str] = set()
    for section in sections:
        if section.type != _SYMTAB or section.link >= len(sections):
            continue
        strings = sections[section.link]
        text = source.read(strings.offset, min(strings.size, elf.end - strings.offset))
        table = source.read(section.offset, min(section.size, _MAX_SYMBOLS * layout.size))
        for row in layout.iter_unpack(table[: len(table) // layout.size * layout.size]):
            info, other = (row[1], row[2]) if elf.bits == 64 else (row[3], row[4])
            if info & 0xF == _STT_FUNC and other & _STO_ENTRY:
                end = text.find(b"\0", row[0])
                names.add(text[row[0] : end if end >= 0 else len(text)].decode("utf-8", "replace"))
    if not names:
        names = {section.name[6:] for section in sections if section.name.startswith(".text.")}
    return tuple(sorted(names - {""}))


def open_cubin(data: bytes) -> tuple[BufferSource, Elf, tuple[Section, ...]]:
    """Read the tables of a cubin that is in memory; raises ``ElfError``."""
    source = BufferSource(data)
    elf = read_header(source, 0, len(data))
    if elf.machine != EM_CUDA:
        raise ElfError(18, f"machine {EM_CUDA}", str(elf.machine))
    return source, elf, read_sections(source, elf)
