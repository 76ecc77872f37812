"""``scan_file``: one reading of one file, whatever it is; the answer needs the file never again.

* What a file is, its bytes say: ELF, ``ar`` archive, fatbin, cubin or PTX. The name only matters where the
  bytes contradict it (a ``.cubin`` that is none) and for PTX, which is text.
* In an ELF file, containers in ``.nv_fatbin`` are *linked* modules, those in ``__nv_relfatbin``
  *relocatable* ones, and what lies in any other loaded section is a *catalogue* of alternatives. Without
  section headers the whole file is searched and what is found counts as linked.
* Damage becomes a finding with its offset, never an exception: E-FATBIN for GPU code, E-ELF for the file
  around it. ``lost`` says that modules may be hidden by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO, cast

from envbundle.spec.coverage import FileScan, ModuleGroup
from envbundle.spec.finding import Finding

from . import archive, ptx
from .compilers import read_compiler
from .cubin import has_kernels, header_image, kernel_names, read_cubin
from .elf import (
    EM_CUDA,
    ET_REL,
    MAGIC,
    PT_LOAD,
    Elf,
    ElfError,
    Section,
    read_header,
    read_sections,
    read_segments,
)
from .fatbin import PATTERN, Fault, Module
from .linkage import open_dynamic, read_needs
from .search import Search, search
from .sections import LINKED, RELOCATABLE, gaps, place
from .source import BufferSource, StreamSource
from .symbols import read_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import RawIOBase

    from envbundle.spec.compiler import Compiler
    from envbundle.spec.coverage import FileKind, Image, Needs, Role, State
    from envbundle.spec.finding import Severity
    from envbundle.spec.symbols import Symbols

    from .source import Buffer, Source

GPU_NAME = re.compile(r"\.(?:so(?:\.[0-9.]+)?|o|a|pyd|cubin|fatbin|ptx)$")
LIBRARY_NAME = re.compile(r"\.(?:so(?:\.[0-9.]+)?|o|a|pyd)$")
MAX_FINDINGS = 50
_PTX_SIZE = 1 << 24
_TEXT = bytes(range(32, 127)) + b"\t\r\n\f"


def scan_file(
    name: str,
    source: BinaryIO | RawIOBase | Buffer,
    *,
    size: int,
    names: bool = False,
    every_section: bool = True,
) -> FileScan:
    """Read one file and return all that it holds for GPUs and asks of the loader.

    ``source`` is a buffer (an mmap is best) or a seekable stream whose position 0 is the first of ``size``
    bytes. ``names`` also collects the names of kernels. With ``every_section`` false only the sections that
    NVIDIA's tools write are read (buffers only): faster, and blind to catalogues. Damage never raises.
    """
    if hasattr(source, "read") and not hasattr(source, "find"):
        reader: Source = StreamSource(cast("BinaryIO", source), size)
    else:
        reader = BufferSource(cast("Buffer", source), size)
    size = reader.size
    work = _Scan(name, reader, names=names, every_section=every_section)
    head = reader.read(0, 64)
    kind: FileKind = "other"
    if head[:4] == MAGIC:
        kind = work.elf_file()
    elif head[:8] == archive.MAGIC:
        kind = "archive"
        work.archive_file()
    elif head[:8] == PATTERN or name.endswith(".fatbin"):
        kind = "fatbin"
        work.fatbin_file()
    elif name.endswith(".cubin"):
        kind = "cubin"
        work.lose("E-FATBIN", Fault(0, "a cubin", head[:16].hex(" ") or "an empty file"))
    elif work.ptx_file():
        kind = "ptx"
    elif LIBRARY_NAME.search(name) and head.translate(None, _TEXT):
        work.not_elf_file(head)
    return FileScan(
        path=name,
        size=size,
        kind=kind,
        groups=work.groups(),
        findings=tuple(work.findings),
        lost=work.lost,
        needs=work.needs,
        symbols=work.symbols,
        compiler=work.compiler,
    )


def worth_scanning(name: str, head: bytes) -> bool:
    """Whether a file may be a library or hold GPU code, by its name and its first bytes (4 KiB will do)."""
    if head[:4] == MAGIC or head[:8] in (archive.MAGIC, PATTERN):
        return True
    return bool(GPU_NAME.search(name)) or ptx.read_ptx(head) is not None


class _Scan:
    """The state of one reading."""

    def __init__(self, name: str, source: Source, *, names: bool, every_section: bool) -> None:
        self.name, self.source = name, source
        self.names, self.every_section = names, every_section
        self.findings: list[Finding] = []
        self.lost = False
        self.needs: Needs | None = None
        self.symbols: Symbols | None = None
        self.compiler: Compiler | None = None
        self._counts: dict[tuple[str, Role, State, tuple[Image, ...], int, tuple[str, ...]], int] = {}

    # --- what a reading gives

    def groups(self) -> tuple[ModuleGroup, ...]:
        """Return the modules, alike ones together."""
        return tuple(
            ModuleGroup(
                section=section, role=role, state=state, images=images, part=part, kernels=kernels, count=n
            )
            for (section, role, state, images, part, kernels), n in sorted(self._counts.items())
        )

    def find(self, code: str, fault: Fault, *, severity: Severity = "error") -> None:
        """Keep one finding; of very many, the first ones say enough."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(
                Finding(
                    code=code,
                    severity=severity,
                    subject=self.name,
                    expected=fault.expected,
                    found=fault.found,
                    hint="the file is damaged or cut off: fetch or build it again" if code[0] == "E" else "",
                    offset=fault.offset,
                )
            )

    def lose(self, code: str, fault: Fault) -> None:
        """Keep a finding about damage that may hide modules."""
        self.lost = True
        self.find(code, fault)

    def count(self, module: Module, section: str, role: Role, part: int = 0) -> None:
        """Count one module in."""
        if module.fault is not None:
            self.find("E-FATBIN", module.fault)
        if module.maybe_empty:
            self._guessed(module)
        key = (section, role, module.state, module.images, part, module.kernels)
        self._counts[key] = self._counts.get(key, 0) + 1

    def _guessed(self, module: Module) -> None:
        if not any(finding.code == "W-CODEC" for finding in self.findings):
            fault = Fault(module.offset, "a zstd codec", "none, so emptiness of modules is told by size")
            self.find("W-CODEC", fault, severity="warning")

    # --- kinds of files

    def ptx_file(self) -> bool:
        """Read a PTX text; returns whether the file is one, or claims to be."""
        head = self.source.read(0, ptx.HEAD if self.name.endswith(".ptx") else 4096)
        image = ptx.read_ptx(head)
        if image is None:
            if self.name.endswith(".ptx"):
                self.lose("E-FATBIN", Fault(0, "PTX with .version and .target", repr(head[:16])))
            return self.name.endswith(".ptx")
        text = self.source.read(0, min(self.source.size, _PTX_SIZE))
        whole = len(text) == self.source.size
        module = Module(
            offset=0,
            end=self.source.size,
            claimed_end=self.source.size,
            images=(image,),
            state="kernels" if ptx.has_entry(text) or not whole else "empty",
            kernels=ptx.entry_names(text) if self.names else (),
        )
        self.count(module, "(ptx)", "catalogue")
        return True

    def fatbin_file(self) -> None:
        """Read bare containers, one behind the other."""
        self.fatbin_range(0, self.source.size)

    def fatbin_range(self, start: int, end: int) -> None:
        """Read the containers that fill [start, end)."""
        found = search(self.source, start, end, cubins=False, names=self.names)
        self._limit(found)
        for module in found.modules:
            self.count(module, "(fatbin)", "catalogue")
        if not found.modules and not found.blank:
            head = self.source.read(start, 8).hex(" ")
            self.lose("E-FATBIN", Fault(start, "a fatbin container", head or "an empty file"))
        else:
            hidden, lost = gaps(self.source, start, end, found.modules, found.blank, found.quiet)
            self._hidden(hidden)
            self.lost = self.lost or lost

    def archive_file(self) -> None:
        """Read an archive's objects."""
        for item in archive.read_objects(self.source, 0, self.source.size):
            if isinstance(item, Fault):
                self.lose("E-ARCHIVE", item)
                continue
            head = self.source.read(item.start, 8) if item.end - item.start >= 8 else b""
            if head[:4] == MAGIC:
                self.elf_object(item.start, item.end, item.part)
            elif head == PATTERN:
                self.fatbin_range(item.start, item.end)

    def elf_file(self) -> FileKind:
        """Read an ELF file, which may be a cubin."""
        elf = self.elf_object(0, self.source.size, 0)
        if elf is not None and elf.machine == EM_CUDA:
            return "cubin"
        if elf is not None:
            try:
                self.needs = read_needs(self.source, elf)
                table = open_dynamic(self.source, elf)
                self.symbols = None if table is None else read_symbols(table)
                self.compiler = read_compiler(self.name, self.source)
            except ElfError as fault:
                self.find("E-ELF", Fault(fault.offset, fault.expected, fault.found), severity="warning")
        return "elf"

    def not_elf_file(self, head: bytes) -> None:
        """Read a file that is named as a library and is neither one nor a linker script."""
        self.lose("E-ELF", Fault(0, "an ELF file or an archive", head[:8].hex(" ")))
        self._unsectioned(search(self.source, 0, self.source.size, names=self.names), self.source.size)

    # --- ELF

    def elf_object(self, start: int, end: int, part: int) -> Elf | None:
        """Read the ELF file within [start, end); returns its header where that is sound."""
        try:
            elf = read_header(self.source, start, end)
        except ElfError as fault:
            self.lose("E-ELF", Fault(fault.offset, fault.expected, fault.found))
            self._unsectioned(search(self.source, start, end, names=self.names), end)
            return None
        if elf.machine == EM_CUDA:
            self._cubin(elf)
            return elf
        if self.every_section:
            found = search(self.source, start, end, names=self.names)
            sections = self._sections(elf)
        else:
            sections = self._sections(elf)
            named = [s for s in sections if s.name in (LINKED, RELOCATABLE)]
            found = Search()
            ranges = sorted((s.offset, min(s.end, end)) for s in named) if sections else [(start, end)]
            for low, high in ranges:
                one = search(self.source, low, high, cubins=False, names=self.names)
                found.modules += one.modules
                found.blank += one.blank
                found.quiet |= one.quiet
                found.cut = found.cut if one.cut is None else one.cut
        self._limit(found)
        if sections:
            placed = place(self.source, elf, sections, found)
            inside = part if any(item.role == "relocatable" for item in placed.modules) else 0
            for item in placed.modules:
                self.count(item.module, item.section, item.role, inside if item.role != "catalogue" else 0)
            self._hidden(placed.hidden)
            self.lost = self.lost or placed.lost
        else:
            self._unsectioned(found, end)
        return elf

    def _sections(self, elf: Elf) -> tuple[Section, ...]:
        """Return the sections, or none where the table is absent or unreadable; damage is kept."""
        try:
            sections = read_sections(self.source, elf)
        except ElfError as fault:
            damage = Fault(fault.offset, fault.expected, fault.found)
            if elf.type == ET_REL or self._cut(elf):
                self.lose("E-ELF", damage)
            else:
                self.find("E-ELF", damage, severity="warning")
            return ()
        if any(section.name for section in sections):
            self._reach(elf, sections)
            return sections
        return ()

    def _cut(self, elf: Elf) -> bool:
        """Whether the file ends before what is loaded from it does."""
        try:
            segments = read_segments(self.source, elf)
        except ElfError:
            return True
        return not segments or any(s.type == PT_LOAD and s.offset + s.size > elf.end for s in segments)

    def _reach(self, elf: Elf, sections: tuple[Section, ...]) -> None:
        for section in sections:
            if section.end > elf.end and (section.loaded or section.name in (LINKED, RELOCATABLE)):
                fault = Fault(
                    elf.end, f"{section.name or 'a section'} up to byte {section.end}", "the end of the file"
                )
                self.lose("E-ELF", fault)
                return

    def _hidden(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.lose("E-FATBIN", fault)

    def _limit(self, found: Search) -> None:
        if found.cut is not None:
            self.lose("E-FATBIN", Fault(found.cut, f"at most {len(found.modules)} modules", "more"))

    def _cubin(self, elf: Elf) -> None:
        """Read a stand-alone cubin."""
        image, kernels = header_image(elf), cast("tuple[str, ...]", ())
        state: State = "damaged"
        fault: Fault | None = None
        try:
            sections = read_sections(self.source, elf)
            image = read_cubin(self.source, elf, sections)
            state = "kernels" if has_kernels(sections) else "empty"
            beyond = next((s for s in sections if s.end > elf.end), None)
            if not sections or beyond:
                state = "damaged"
                fault = Fault(elf.end, f"{beyond.name if beyond else 'sections'}", "the end of the file")
            elif self.names:
                kernels = kernel_names(self.source, elf, sections)
        except ElfError as damage:
            fault = Fault(damage.offset, damage.expected, damage.found)
        module = Module(
            offset=elf.start,
            end=elf.end,
            claimed_end=elf.end,
            images=(image,) if image else (),
            state=state,
            fault=fault,
            kernels=kernels,
            bare=True,
        )
        self.count(module, "(cubin)", "catalogue")

    def _unsectioned(self, found: Search, end: int) -> None:
        """Count what a file without readable section headers holds."""
        damaged_until = -1
        for module in found.modules:
            if module.bare and module.offset < damaged_until:
                continue  # the payload of a container that could not be read
            if module.state == "damaged":
                damaged_until = max(damaged_until, min(module.claimed_end, end))
            self.count(module, "(scan)", "linked")
        if found.modules:
            fault = Fault(found.modules[0].offset, "section headers", "none: the whole file was searched")
            self.find("N-NO-SECTIONS", fault, severity="note")
