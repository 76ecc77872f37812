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
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from envbundle.spec.coverage import FileScan, ModuleGroup
from envbundle.spec.finding import Finding

from . import archive, ptx
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
from .fatbin import HEADER_SIZE, PATTERN, Fault, Module, first_nonzero
from .linkage import open_dynamic, read_needs
from .search import Search, search
from .source import BufferSource, StreamSource
from .symbols import read_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import RawIOBase

    from envbundle.spec.coverage import FileKind, Image, Needs, Role, State
    from envbundle.spec.finding import Severity
    from envbundle.spec.symbols import Symbols

    from .source import Buffer, Source

LINKED, RELOCATABLE, SEGMENT = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
GPU_NAME = re.compile(r"\.(?:so(?:\.[0-9.]+)?|o|a|pyd|cubin|fatbin|ptx)$")
LIBRARY_NAME = re.compile(r"\.(?:so(?:\.[0-9.]+)?|o|a|pyd)$")
MAX_FINDINGS = 50
_PTX_SIZE = 1 << 24
_TEXT = bytes(range(32, 127)) + b"\t\r\n\f"
_SEGMENT_RECORD, _SEGMENT_MAGIC = 24, bytes.fromhex("b1436246")


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
    )


def worth_scanning(name: str, head: bytes) -> bool:
    """Whether a file may be a library or hold GPU code, by its name and its first bytes (4 KiB will do)."""
    if head[:4] == MAGIC or head[:8] in (archive.MAGIC, PATTERN):
        return True
    return bool(GPU_NAME.search(name)) or ptx.read_ptx(head) is not None


@dataclass(slots=True)
class _Span:
    """A named section that holds containers, and what was found in it."""

    section: Section
    modules: list[Module] = field(default_factory=list)
    blank: list[int] = field(default_factory=list)


class _Scan:
    """The state of one reading."""

    def __init__(self, name: str, source: Source, *, names: bool, every_section: bool) -> None:
        self.name, self.source = name, source
        self.names, self.every_section = names, every_section
        self.findings: list[Finding] = []
        self.lost = False
        self.needs: Needs | None = None
        self.symbols: Symbols | None = None
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
            self._gaps(start, end, found.modules, found.blank)

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
                found.cut = found.cut if one.cut is None else one.cut
        self._limit(found)
        if sections:
            self._attribute(elf, sections, found, part)
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

    def _attribute(self, elf: Elf, sections: tuple[Section, ...], found: Search, part: int) -> None:
        """Give every module to the section that it lies in, and check that named ones are filled."""
        placed = sorted((s for s in sections if s.size and s.type), key=lambda s: s.offset)
        starts = [s.offset for s in placed]
        spans = {s.offset: _Span(s) for s in placed if s.name in (LINKED, RELOCATABLE)}
        others: list[tuple[Module, str]] = []
        for module in found.modules:
            at = bisect_right(starts, module.offset) - 1
            section = placed[at] if at >= 0 and module.offset < placed[at].end else None
            if section is not None and section.offset in spans:
                if not module.bare:
                    spans[section.offset].modules.append(module)
            elif section is None or section.loaded:
                others.append((module, section.name if section else "(scan)"))
        for offset in found.blank:
            at = bisect_right(starts, offset) - 1
            if at >= 0 and placed[at].offset in spans and offset < placed[at].end:
                spans[placed[at].offset].blank.append(offset)
        inside = part if any(s.section.name == RELOCATABLE and s.modules for s in spans.values()) else 0
        for span in spans.values():
            role: Role = "linked" if span.section.name == LINKED else "relocatable"
            for module in span.modules:
                self.count(module, span.section.name, role, inside)
            self._gaps(span.section.offset, min(span.section.end, elf.end), span.modules, span.blank)
        damaged_until = -1
        for module, section_name in others:
            chance = module.state == "damaged" and not module.images
            if chance or (module.bare and module.offset < damaged_until):
                continue
            if module.state == "damaged":
                damaged_until = max(damaged_until, module.claimed_end)
            self.count(module, section_name, "catalogue")
        self._cross_check(elf, sections, spans.values())

    def _gaps(self, start: int, end: int, modules: list[Module], blank: list[int]) -> None:
        """Between containers there is only zero padding; anything else hides what was a container."""
        stops = [(m.offset, m.claimed_end if m.state == "damaged" else m.end) for m in modules]
        stops += [(offset, offset + HEADER_SIZE) for offset in blank]
        at = start
        for offset, stop in [*sorted(stops), (end, end)]:
            hit = first_nonzero(self.source, at, offset) if at < offset else -1
            if hit >= 0:
                found = self.source.read(hit, 8).hex(" ")
                self.lose("E-FATBIN", Fault(hit, "a fatbin container or zero padding", found))
            if stop > end:
                self.lost = True
            at = max(at, stop)

    def _cross_check(self, elf: Elf, sections: tuple[Section, ...], spans: Iterable[_Span]) -> None:
        """Compare with ``.nvFatBinSegment``: one record of 24 bytes per container of either section."""
        containers = sum(len(span.modules) + len(span.blank) for span in spans)
        for section in sections:
            if section.name != SEGMENT or section.end > elf.end or section.size > 1 << 24:
                continue
            data = self.source.read(section.offset, section.size)
            records = sum(
                data[at : at + 4] == _SEGMENT_MAGIC for at in range(0, len(data) - 23, _SEGMENT_RECORD)
            )
            if records > containers:
                fault = Fault(section.offset, f"{records} fatbin containers", str(containers))
                self.lose("E-FATBIN", fault)
