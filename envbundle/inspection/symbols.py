"""The dynamic symbol table of one ELF file, read through program headers as the loader does.

* The number of symbols is DT_HASH's chain count, else the longest chain of DT_GNU_HASH, else what lies
  between the tables of symbols and of strings. Section headers are not consulted.
* Which version an undefined name is bound to, DT_VERSYM and DT_VERNEED say: names bound to the C++ runtime
  or the C library are judged by their versions, not here.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from envbundle.spec.symbols import Symbols, hashes_of

from .elf import ElfError

if TYPE_CHECKING:
    from .linkage import Dynamic

_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT = 4, 5, 6, 10, 11
_GNU_HASH, _VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_MAX_SYMBOLS, _MAX_STRINGS = 4_000_000, 1 << 28
_RUNTIME = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libpthread|libdl|librt|ld-linux[-a-z0-9_]*)\.so\b.*")
_NAMESPACE = re.compile(rb"_Z(?:T[VTISHW][0-9n_]*|GV|TH|TW)?N[rVKRO]*(St|S[absiod])?([0-9]+)")


def read_symbols(table: Dynamic) -> Symbols:
    """Return what matters of the symbol table; raises ``ElfError`` where it is damaged."""
    rows = _rows(table)
    if rows is None:
        return Symbols()
    symbols, strings, versions = rows
    runtime = {number for number, soname in table.version_files().items() if _RUNTIME.fullmatch(soname)}
    wanted: set[bytes] = set()
    exported: set[bytes] = set()
    modules: set[str] = set()
    python = False
    for index, (start, bind, visibility, defined) in enumerate(symbols):
        if bind not in (_GLOBAL, _WEAK, _UNIQUE):
            continue
        head = strings[start : start + 7]
        if head.startswith(b"_Z"):
            if defined:
                if visibility in (0, 3):
                    exported.add(_string(strings, start))
            elif bind == _GLOBAL and not (versions and versions[index] & 0x7FFF in runtime):
                wanted.add(_string(strings, start))
        elif defined and head == b"PyInit_":
            modules.add(_string(strings, start)[7:].decode("utf-8", "replace"))
        elif not defined and not python and head[:3] in (b"Py_", b"PyO", b"PyM", b"PyE", b"PyL", b"PyU"):
            python = True
    return Symbols(
        wanted=tuple(sorted(name.decode("utf-8", "surrogateescape") for name in wanted)),
        exported=hashes_of(exported),
        namespaces=tuple(sorted({space for name in exported if (space := namespace(name)) is not None})),
        modules=tuple(sorted(modules)),
        python=python,
    )


def namespace(mangled: bytes) -> str | None:
    """Return the outermost namespace (or class) of a mangled name: ``c10``; None where it has none.

    ``std`` is also None: its names belong to the C++ runtime, whoever instantiated them.
    """
    match = _NAMESPACE.match(mangled)
    if match is None or match[1]:
        return None
    length, at = int(match[2]), match.end()
    name = mangled[at : at + length].decode("utf-8", "replace")
    return name if len(name) == length and name not in ("std", "__gnu_cxx", "__cxxabiv1") else None


_Row = tuple[int, int, int, bool]


def _rows(table: Dynamic) -> tuple[list[_Row], bytes, tuple[int, ...]] | None:
    """Return (string offset, binding, visibility, whether defined) per symbol, the strings, the versions."""
    address, text = table.value(_SYMTAB), table.value(_STRTAB)
    if address is None or text is None:
        return None
    order, wide = table.elf.order, table.elf.bits == 64
    layout = struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH"))
    if (table.value(_SYMENT) or layout.size) != layout.size:
        raise ElfError(table.offset, f"symbols of {layout.size} bytes", str(table.value(_SYMENT)))
    start = table.at(address)
    count = _count(table, address, text, layout.size)
    if count == 0:
        return None
    data = table.read(start, count * layout.size, "the dynamic symbols")
    size = min(table.value(_STRSZ) or 0, _MAX_STRINGS)
    strings = table.read(table.at(text), size, "the strings of symbols")
    rows: list[_Row] = []
    for row in layout.iter_unpack(data):
        name, info, other, section = (
            (row[0], row[1], row[2], row[3]) if wide else (row[0], row[3], row[4], row[5])
        )
        rows.append((name, info >> 4, other & 3, section != 0))
    versions: tuple[int, ...] = ()
    place = table.value(_VERSYM)
    if place is not None:
        raw = table.read(table.at(place), 2 * count, "the versions of symbols")
        versions = struct.unpack(f"{order}{count}H", raw)
    return rows, strings, versions


def _count(table: Dynamic, symbols: int, strings: int, size: int) -> int:
    order = table.elf.order
    place = table.value(_HASH)
    if place is not None:
        count = int.from_bytes(
            table.read(table.at(place) + 4, 4, "DT_HASH"), "little" if order == "<" else "big"
        )
    elif (place := table.value(_GNU_HASH)) is not None:
        count = _gnu_count(table, table.at(place))
    else:
        count = (strings - symbols) // size if strings > symbols else 0
    if count > _MAX_SYMBOLS:
        raise ElfError(table.offset, f"at most {_MAX_SYMBOLS} dynamic symbols", str(count))
    return count


def _gnu_count(table: Dynamic, at: int) -> int:
    """Return the number of symbols that a DT_GNU_HASH table implies: the last chain's end."""
    order = table.elf.order
    head: tuple[int, ...] = struct.unpack(order + "4I", table.read(at, 16, "DT_GNU_HASH"))
    buckets, first, bloom, _ = head
    if max(buckets, bloom) > _MAX_SYMBOLS:
        raise ElfError(at, f"at most {_MAX_SYMBOLS} buckets", str(max(buckets, bloom)))
    where = at + 16 + bloom * (8 if table.elf.bits == 64 else 4)
    heads: tuple[int, ...] = struct.unpack(
        f"{order}{buckets}I", table.read(where, 4 * buckets, "DT_GNU_HASH")
    )
    last = max(heads, default=0)
    if last < first:
        return first  # no symbol is hashed, and the others stand before the first that would be
    chains = where + 4 * buckets
    while True:
        step = table.read(chains + 4 * (last - first), 4, "a chain of DT_GNU_HASH")
        last += 1
        if step[0 if order == "<" else 3] & 1:
            return last
        if last > _MAX_SYMBOLS:
            raise ElfError(at, f"at most {_MAX_SYMBOLS} dynamic symbols", "a chain without an end")


def _string(strings: bytes, start: int) -> bytes:
    end = strings.find(b"\0", start)
    return strings[start : end if end >= 0 else len(strings)]
