"""True tiny artifacts for tests: wheels here; ELF files, cubins, fatbins and PTX in the lower half.

Everything is built from the published formats, byte for byte, and is deterministic: same arguments, same
bytes. Nothing here imports envbundle, so a fault in the package cannot hide itself in its own tests.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import struct
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)


# --- wheels ---------------------------------------------------------------------------------------------


def record_hash(data: bytes) -> str:
    """Return ``sha256=<urlsafe base64 without padding>`` as RECORD wants it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def escape_name(name: str) -> str:
    """Return the name as it stands in wheel file names and dist-info directories."""
    return re.sub(r"[-_.]+", "_", name).lower()


def wheel_filename(name: str, version: str, tag: str = "py3-none-any", build: str = "") -> str:
    """Return ``name-version[-build]-tag.whl``."""
    parts = [escape_name(name), version.replace("-", "_"), *([build] if build else []), tag]
    return "-".join(parts) + ".whl"


def expand_tags(tag: str) -> list[str]:
    """Return the single tags of a compressed tag set (``py2.py3-none-any``)."""
    pythons, abis, platforms = tag.split("-")
    return [f"{p}-{a}-{q}" for p in pythons.split(".") for a in abis.split(".") for q in platforms.split(".")]


def wheel_bytes(
    name: str,
    version: str,
    files: Mapping[str, bytes | str] | None = None,
    *,
    tag: str = "py3-none-any",
    build: str = "",
    purelib: bool = True,
    requires: Iterable[str] = (),
    requires_python: str | None = None,
    extras: Iterable[str] = (),
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
    scripts: Mapping[str, bytes | str] | None = None,
    data: Mapping[str, bytes | str] | None = None,
    dist_info: Mapping[str, bytes | str] | None = None,
    metadata_lines: Iterable[str] = (),
    metadata_name: str | None = None,
    metadata_version: str | None = None,
    modes: Mapping[str, int] | None = None,
    stored: Iterable[str] = (),
    record: bytes | None = None,
    record_overrides: Mapping[str, tuple[str, str] | None] | None = None,
    level: int = 6,
) -> bytes:
    """Return the bytes of one wheel with a correct METADATA, WHEEL and RECORD.

    ``files`` are members below the root (default: one module ``<name>/__init__.py``); ``scripts`` go to
    ``.data/scripts/`` with mode 0755; ``data`` are other ``.data/`` members keyed ``scheme/path``;
    ``dist_info`` are more files of the dist-info directory. ``modes`` overrides the mode of a member.
    ``record`` replaces RECORD as a whole; ``record_overrides`` replaces (hash, size) of one row, or drops
    the row where the value is None: the two are for tests of bad wheels, as is ``metadata_name``.
    """
    base = f"{escape_name(name)}-{version.replace('-', '_')}"
    info = f"{base}.dist-info"
    if files is None:
        files = {f"{escape_name(name)}/__init__.py": f"__version__ = {version!r}\n"}
    members: dict[str, bytes] = {path: _bytes(content) for path, content in files.items()}
    for script, content in (scripts or {}).items():
        members[f"{base}.data/scripts/{script}"] = _bytes(content)
    for path, content in (data or {}).items():
        members[f"{base}.data/{path}"] = _bytes(content)
    metadata = ["Metadata-Version: 2.1", f"Name: {metadata_name or name}"]
    metadata += [f"Version: {metadata_version or version}"]
    metadata += [f"Requires-Python: {requires_python}"] if requires_python else []
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    metadata += list(metadata_lines)
    members[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    wheel = ["Wheel-Version: 1.0", "Generator: builders", f"Root-Is-Purelib: {str(purelib).lower()}"]
    wheel += [f"Build: {build}"] if build else []
    wheel += [f"Tag: {one}" for one in expand_tags(tag)]
    members[f"{info}/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    if entry_points:
        lines = []
        for group, points in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items()), ""]
        members[f"{info}/entry_points.txt"] = "\n".join(lines).encode()
    for path, content in (dist_info or {}).items():
        members[f"{info}/{path}"] = _bytes(content)
    if record is None:
        record = _record(members, f"{info}/RECORD", record_overrides or {})
    members[f"{info}/RECORD"] = record
    stored, modes = set(stored), dict(modes or {})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in members.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.create_system = 3
            default = 0o100755 if ".data/scripts/" in path else 0o100644
            mode = modes.get(path, default)
            entry.external_attr = (mode if mode > 0o7777 else 0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_STORED if path in stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=level)
    return out.getvalue()


def make_wheel(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes | str] | None = None,
    *,
    tag: str = "py3-none-any",
    build: str = "",
    **more: object,
) -> Path:
    """Write one wheel into ``directory`` under its right file name; ``more`` as for ``wheel_bytes``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / wheel_filename(name, version, tag, build)
    path.write_bytes(wheel_bytes(name, version, files, tag=tag, build=build, **more))  # type: ignore[arg-type]
    return path


def _record(members: Mapping[str, bytes], own: str, overrides: Mapping[str, tuple[str, str] | None]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, content in members.items():
        row = overrides.get(path, (record_hash(content), str(len(content))))
        if row is not None:
            writer.writerow([path, *row])
    writer.writerow([own, "", ""])
    return text.getvalue().encode()


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


# --- PTX, cubins, fatbins -------------------------------------------------------------------------------

FATBIN_MAGIC = 0xBA55ED50
KINDS = {"ptx": 1, "sass": 2, "nvvm": 8}
_64BIT, _LINUX, _LZ4, _ZSTD, _SPECIFIC, _FAMILY = 0x1, 0x10, 0x2000, 0x8000, 0x100000, 0x200000


def ptx_text(target: str = "sm_90", isa: str = "9.0", kernels: Sequence[str] = ("k",)) -> bytes:
    """Return a PTX text for ``target`` (``sm_90a``); without kernels it is an empty translation unit."""
    lines = ["//", "// Generated by a test", "//", "", f".version {isa}", f".target {target}"]
    lines += [".address_size 64", ""]
    for kernel in kernels:
        lines += [f".visible .entry {kernel}(", f"\t.param .u64 {kernel}_param_0", ")", "{", "\tret;", "}"]
    return ("\n".join(lines) + "\n").encode()


def cubin(
    number: int,
    suffix: str = "",
    kernels: Sequence[str] = ("k",),
    *,
    layout: str = "new",
    toolkit: str = "13.0",
    note: bool = True,
    size: int = 0,
    sections: bool = True,
) -> bytes:
    """Return a cubin for ``sm_<number><suffix>``: machine 190, one ``.text.`` section per kernel.

    ``layout`` is ``old`` (CUDA <= 12.9 for sm <= 90) or ``new``. An 'a' is marked as ``toolkit`` does it:
    in e_flags up to 12.9, in ``.nv.compat`` from 13.0. An 'f' only stands in the note, unless ``note`` is
    False. ``size`` pads the code of the first kernel. Without ``sections`` the table is left out.
    """
    specific = suffix == "a"
    modern = int(toolkit.split(".", maxsplit=1)[0]) >= 13
    if layout == "old":
        osabi, abi, version = 0x33, 7, 0x81
        flags = number | number << 16 | 0x500 | (0x800 if specific else 0)
    else:
        osabi, abi, version = 0x41, 8, 1
        flags = 0x06000002 | number << 8 | (0x8 if specific and not modern else 0)
    parts: list[Part] = []
    if layout == "new":
        compat = bytes([2, 2, 1, 0]) + (bytes([2, 9, int(specific), 0]) if modern else b"")
        parts.append(Part(".nv.compat", compat, kind=0x70000086, flags=0))
    if note:
        strings = b"\0".join(
            [b"ptxas", b"V" + toolkit.encode(), b"a build", f"-arch sm_{number}{suffix} -m 64".encode()]
        )
        owner = b"NVIDIA Corp\0"
        body = strings + b"\0" * (-len(strings) % 4)
        head = struct.pack("<III", len(owner), len(body), 2000) + owner
        parts.append(Part(".note.nv.tkinfo", head + body, kind=7, flags=0))
    code = [bytes(128 + (size if i == 0 else 0)) for i in range(len(kernels))]
    parts += [Part(f".text.{name}", text, flags=6) for name, text in zip(kernels, code, strict=True)]
    first = len(parts) - len(kernels) + 1  # section numbers: 0 is the null section
    names, symbols = b"\0", bytes(24)
    for i, name in enumerate(kernels):
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0x10, first + i, 0, len(code[i]))
        names += name.encode() + b"\0"
    parts.append(Part(".symtab", symbols, kind=2, flags=0, link=len(parts) + 2, entry_size=24))
    parts.append(Part(".strtab", names, kind=3, flags=0))
    return elf_file(
        parts,
        machine=190,
        kind=2,
        osabi=osabi,
        abi_version=abi,
        version=version,
        e_flags=flags,
        section_headers=sections,
    )


def lz4_block(data: bytes) -> bytes:
    """Compress into one raw LZ4 block: greedy, four-byte matches, the last bytes as literals."""
    out = bytearray()
    table: dict[bytes, int] = {}
    at = anchor = 0

    def put(literals: bytes, match: int, back: int) -> None:
        token = min(len(literals), 15) << 4 | (min(match - 4, 15) if match else 0)
        out.append(token)
        for count in (len(literals),):
            if count >= 15:
                out.extend(b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255]))
        out.extend(literals)
        if match:
            out.extend(struct.pack("<H", back))
            if match - 4 >= 15:
                out.extend(b"\xff" * ((match - 19) // 255) + bytes([(match - 19) % 255]))

    while at + 12 < len(data):
        key = data[at : at + 4]
        seen = table.get(key, -1)
        table[key] = at
        if seen < 0 or at - seen > 0xFFFF:
            at += 1
            continue
        match = 4
        while at + match < len(data) - 5 and data[seen + match] == data[at + match]:
            match += 1
        put(data[anchor:at], match, at - seen)
        at += match
        anchor = at
    put(data[anchor:], 0, 0)
    return bytes(out)


def entry(
    kind: str,
    number: int,
    payload: bytes,
    suffix: str = "",
    *,
    compression: str = "none",
    isa: str = "9.0",
    name: str = "",
    raw_kind: int | None = None,
) -> bytes:
    """Return one fatbin entry: ``kind`` is sass, ptx or nvvm; ``compression`` none, lz4 or zstd."""
    flags = _64BIT | _LINUX | {"": 0, "a": _SPECIFIC, "f": _FAMILY}[suffix]
    stored = payload
    if compression == "lz4":
        stored, flags = lz4_block(payload), flags | _LZ4
    elif compression == "zstd":
        import zstandard

        stored, flags = zstandard.ZstdCompressor().compress(payload), flags | _ZSTD
    packed = len(stored) if compression != "none" else 0
    stored += bytes(-len(stored) % 8)
    options = struct.pack("<IIQ", 72, 0, 0) if kind == "ptx" else b""
    text = name.encode() + b"\0" if name else b""
    head = 64 + len(options) + len(text) + -len(text) % 8
    major, minor = (int(part) for part in isa.split(".")) if kind == "ptx" else (1, 8)
    header = struct.pack(
        "<HHIQIIHHIIIQQQ",
        KINDS[kind] if raw_kind is None else raw_kind,
        0x0101,
        head,
        len(stored),
        packed,
        64 if options else 0,
        minor,
        major,
        number,
        64 + len(options) if name else 0,
        len(name),
        flags,
        0,
        len(payload) if packed else 0,
    )
    return header + options + text + bytes(-len(text) % 8) + stored


def sass(
    arch: str, kernels: Sequence[str] = ("k",), *, compression: str = "none", layout: str = "", size: int = 0
) -> bytes:
    """Return an entry with a cubin for ``arch`` (``sm_90a``); no kernels make it an empty unit."""
    number, suffix = int(re.sub(r"\D", "", arch)), arch[-1] if arch[-1] in "af" else ""
    layout = layout or ("new" if number >= 100 else "old")
    payload = cubin(number, suffix, kernels, layout=layout, toolkit="12.9", size=size)
    return entry("sass", number, payload, suffix, compression=compression)


def ptx(arch: str, kernels: Sequence[str] = ("k",), *, isa: str = "9.0", compression: str = "none") -> bytes:
    """Return an entry with PTX for ``arch`` (``compute_90a``)."""
    number, suffix = int(re.sub(r"\D", "", arch)), arch[-1] if arch[-1] in "af" else ""
    text = ptx_text(f"sm_{number}{suffix}", isa, kernels)
    return entry("ptx", number, text, suffix, compression=compression, isa=isa)


def nvvm(number: int) -> bytes:
    """Return an entry with LTO-IR."""
    return entry("nvvm", number, b"BC\xc0\xde" + bytes(60))


def container(*entries: bytes, size: int | None = None) -> bytes:
    """Return a fatbin container of ``entries``; ``size`` lies about what follows its header."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(body) if size is None else size) + body


def modules(*archs: str, kernels: Sequence[str] = ("k",)) -> bytes:
    """Return one container with an image for each name: ``sm_90a``, ``compute_80``, ``compute_80@7.8``."""
    images = []
    for arch in archs:
        if arch.startswith("sm_"):
            images.append(sass(arch, kernels))
        else:
            target, _, isa = arch.partition("@")
            images.append(ptx(target, kernels, isa=isa or "9.0"))
    return container(*images)


# --- ELF ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One section to be written: PROGBITS and loaded unless said otherwise."""

    name: str
    data: bytes
    kind: int = 1
    flags: int = 2
    link: int = 0
    info: int = 0
    entry_size: int = 0
    align: int = 8


def elf_file(
    parts: Sequence[Part],
    *,
    bits: int = 64,
    order: str = "<",
    machine: int = 62,
    kind: int = 1,
    osabi: int = 0,
    abi_version: int = 0,
    version: int = 1,
    e_flags: int = 0,
    section_headers: bool = True,
    overflow: bool = False,
    segments: Callable[[dict[str, int], int], bytes] | None = None,
    segment_count: int = 0,
) -> bytes:
    """Return an ELF file with ``parts`` as its sections, in order, each aligned.

    ``overflow`` writes e_shnum 0 and e_shstrndx 0xffff and puts the numbers into section 0.
    ``segments`` makes the program headers from (offset of each section by name, size of all of them).
    """
    wide = bits == 64
    head_size, row_size, segment_size = (64, 64, 56) if wide else (52, 40, 32)
    out = bytearray(head_size + segment_count * segment_size)
    names, rows = b"\0", []
    offsets: dict[str, int] = {}
    every = [*parts, Part(".shstrtab", b"", kind=3, flags=0)]
    for part in every:
        out += bytes(-len(out) % part.align)
        offsets.setdefault(part.name, len(out))
        data = part.data
        if part.name == ".shstrtab":
            data = names + b".shstrtab\0"
        address = len(out) if part.flags & 2 else 0
        fields = (len(names), part.kind, part.flags, address, len(out), len(data), part.link, part.info)
        rows.append((*fields, part.align, part.entry_size))
        names += part.name.encode() + b"\0"
        out += data
    loaded = len(out)
    table, count = 0, 0
    if section_headers:
        out += bytes(-len(out) % 8)
        table, count = len(out), len(rows) + 1
        first = [0] * 10
        if overflow:
            first[5], first[6] = count, count - 1
        layout = order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII")
        for row in [first, *rows]:
            out += struct.pack(layout, *row)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1, osabi, abi_version]) + bytes(7)
    shown, names_index = (0, 0xFFFF) if overflow else (count, max(count - 1, 0))
    header = ident + struct.pack(
        order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"),
        kind,
        machine,
        version,
        0,
        head_size if segment_count else 0,
        table,
        e_flags,
        head_size,
        segment_size if segment_count else 0,
        segment_count,
        row_size,
        shown,
        names_index,
    )
    out[:head_size] = header
    if segments is not None:
        out[head_size : head_size + segment_count * segment_size] = segments(offsets, loaded)
    return bytes(out)


def shared_object(
    sections: Mapping[str, bytes] | None = None,
    *,
    needed: Sequence[str] = (),
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    versions: Mapping[str, Sequence[str]] | None = None,
    weak_versions: Mapping[str, Sequence[str]] | None = None,
    undefined: Sequence[str] = (),
    exported: Sequence[str] = (),
    symbol_versions: Mapping[str, str] | None = None,
    gnu_hash: bool = False,
    weak: Sequence[str] = (),
    bits: int = 64,
    order: str = "<",
    machine: int = 62,
    section_headers: bool = True,
    overflow: bool = False,
) -> bytes:
    """Return a shared object that a loader maps: dynamic table, symbols, version needs, ``sections``.

    ``versions`` maps a soname to symbol versions wanted of it; ``symbol_versions`` binds undefined symbols
    to them. Exported symbols are absolute ones; undefined ones named in ``weak`` are weak. ``gnu_hash``
    writes the symbol count as DT_GNU_HASH does, in one bucket.
    """
    wide = bits == 64
    text = bytearray(b"\0")

    def string(value: str) -> int:
        at = len(text)
        text.extend(value.encode() + b"\0")
        return at

    symbol = struct.Struct(order + ("IBBHQQ" if wide else "IIIBBH"))
    symbols = bytes(symbol.size)
    for name, section, value in [(n, 0, 0) for n in undefined] + [(n, 0xFFF1, 1) for n in exported]:
        info = 0x22 if name in weak else 0x12
        row = (string(name), info, 0, section, value, 0)
        symbols += symbol.pack(*(row if wide else (row[0], value, 0, info, 0, section)))
    count = len(symbols) // symbol.size
    hashes = struct.pack(order + "II", 1, count) + struct.pack(order + "I", 1 if count > 1 else 0)
    hashes += b"".join(struct.pack(order + "I", i + 1 if 0 < i < count - 1 else 0) for i in range(count))
    if gnu_hash:
        first = 1 + len(undefined)
        hashes = struct.pack(order + "4I", 1, first, 1, 0) + bytes(8 if wide else 4)
        hashes += struct.pack(order + "I", first if exported else 0)
        hashes += b"".join(struct.pack(order + "I", 2 * i | (i == count - 1)) for i in range(first, count))
    needs = b""
    numbers: dict[str, int] = {}
    wanted = [(soname_, v, 0) for soname_, vs in (versions or {}).items() for v in vs]
    wanted += [(soname_, v, 2) for soname_, vs in (weak_versions or {}).items() for v in vs]
    files = sorted({file for file, _, _ in wanted})
    for number, file in enumerate(files):
        mine = [(v, flag) for own, v, flag in wanted if own == file]
        following = 16 + 16 * len(mine) if number + 1 < len(files) else 0
        needs += struct.pack(order + "HHIII", 1, len(mine), string(file), 16, following)
        for index, (v, flag) in enumerate(mine):
            more = 16 if index + 1 < len(mine) else 0
            numbers.setdefault(v, 2 + len(numbers))
            needs += struct.pack(order + "IHHII", sysv_hash(v), flag, numbers[v], string(v), more)
    rows = [(1, string(name)) for name in needed]
    rows += [(tag, string(value)) for tag, value in ((14, soname), (15, rpath), (29, runpath)) if value]
    bound = [numbers[version] if (version := (symbol_versions or {}).get(n)) else 1 for n in (*undefined, *exported)]
    table_of_versions = b"".join(struct.pack(order + "H", number) for number in (0, *bound))
    hash_tag = 0x6FFFFEF5 if gnu_hash else 4
    tags = [hash_tag, 5, 6, 10, 11] + ([0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF] if needs else []) + [0]
    pair = struct.Struct(order + ("qQ" if wide else "iI"))
    length = (len(rows) + len(tags)) * pair.size
    parts = [
        Part(".hash", hashes, kind=5, link=2),
        Part(".dynsym", symbols, kind=11, link=3, info=1, entry_size=symbol.size),
        Part(".dynstr", bytes(text), kind=3),
        Part(".gnu.version", table_of_versions, kind=0x6FFFFFFF, link=2, entry_size=2),
        Part(".gnu.version_r", needs, kind=0x6FFFFFFE, link=3, info=len(files)),
        Part(".dynamic", bytes(length), kind=6, flags=3, link=3, entry_size=pair.size),
        *(Part(name, data) for name, data in (sections or {}).items()),
    ]
    dynamic: list[bytes] = []

    def headers(offsets: dict[str, int], loaded: int) -> bytes:
        values = {hash_tag: ".hash", 5: ".dynstr", 6: ".dynsym", 0x6FFFFFF0: ".gnu.version"}
        values[0x6FFFFFFE] = ".gnu.version_r"
        fixed = {10: len(text), 11: symbol.size, 0x6FFFFFFF: len(files), 0: 0}
        table = [*rows, *((tag, offsets[values[tag]] if tag in values else fixed[tag]) for tag in tags)]
        dynamic.append(b"".join(pair.pack(*row) for row in table))
        at = offsets[".dynamic"]
        if wide:
            load = struct.pack(order + "IIQQQQQQ", 1, 6, 0, 0, 0, loaded, loaded, 0x1000)
            return load + struct.pack(order + "IIQQQQQQ", 2, 6, at, at, at, length, length, 8)
        load = struct.pack(order + "IIIIIIII", 1, 0, 0, 0, loaded, loaded, 6, 0x1000)
        return load + struct.pack(order + "IIIIIIII", 2, at, at, at, length, length, 6, 4)

    blank = elf_file(
        parts,
        bits=bits,
        order=order,
        machine=machine,
        kind=3,
        section_headers=section_headers,
        overflow=overflow,
        segments=headers,
        segment_count=2,
    )
    at = struct.unpack_from(order + ("Q" if wide else "I"), blank, 64 + 56 + 8 if wide else 52 + 32 + 4)[0]
    return blank[:at] + dynamic[0] + blank[at + length :]


def sysv_hash(name: str) -> int:
    """Return the hash that symbol version needs carry."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def gpu_library(*containers: bytes, **more: object) -> bytes:
    """Return a shared object whose ``.nv_fatbin`` holds ``containers``; ``more`` as for shared_object."""
    return shared_object({".nv_fatbin": b"".join(containers)}, **more)  # type: ignore[arg-type]


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a static library (``ar``) of object files."""
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name + '/':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) & 1)
    return out
