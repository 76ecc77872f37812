"""One forward pass over bytes that finds every container and every bare cubin among them.

Payloads of containers are stepped over, so what lies inside a container is never found a second time.
After damage the search goes on behind the last byte that was understood: the pass always ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .cubin import NEW_LAYOUT, OLD_LAYOUT, START, has_kernels, kernel_names, open_cubin, read_cubin
from .elf import EM_CUDA, ElfError, read_header, read_sections
from .fatbin import HEADER_SIZE, NAMES_SIZE, PATTERN, Module, read_container

if TYPE_CHECKING:
    from .source import Source

MAX_MODULES = 200_000  # the largest library known holds 24,000
_PADDING = 64
MAX_DAMAGED = 1_000


@dataclass(slots=True)
class Search:
    """What a pass found, in order of offsets. ``cut`` says where it gave up counting, else None.

    ``quiet`` says of the end of a module up to which offset zeros follow it, as far as the pass looked: so
    that nobody has to come back for the padding between modules, which is dear in a compressed file.
    """

    modules: list[Module] = field(default_factory=list)
    blank: list[int] = field(default_factory=list)
    cut: int | None = None
    quiet: dict[int, int] = field(default_factory=dict)

    def pad(self, source: Source, at: int, end: int) -> None:
        """Look how many zeros follow the module that ends at ``at``."""
        data = source.read(at, min(_PADDING, end - at)) if at < end else b""
        self.quiet[at] = at + len(data) - len(data.lstrip(b"\0"))


def search(source: Source, start: int, end: int, *, cubins: bool = True, names: bool = False) -> Search:
    """Search [start, end) for containers and, with ``cubins``, for bare cubins between them.

    Containers of size 0 are no modules; their offsets are in ``blank``.
    """
    found = Search()
    patterns = (PATTERN, START) if cubins else (PATTERN,)
    at, damaged = start, 0
    while at < end:
        hit, which = source.first(patterns, at, end)
        if hit < 0:
            break
        if len(found.modules) >= MAX_MODULES or damaged >= MAX_DAMAGED:
            found.cut = hit
            break
        if which == 1:
            cubin = _bare_cubin(source, hit, end, names=names) if hit > start else None
            at = cubin.end if cubin else hit + len(START)
            if cubin:
                found.modules.append(cubin)
            continue
        if hit + HEADER_SIZE <= end and source.read(hit + 8, 8) == bytes(8):
            found.blank.append(hit)
            at = hit + HEADER_SIZE
            found.pad(source, at, end)
            continue
        module = read_container(source, hit, end, names=names)
        found.modules.append(module)
        damaged += module.state == "damaged"
        at = max(module.end, hit + len(PATTERN))
        found.pad(source, at, end)
    return found


def _bare_cubin(source: Source, offset: int, end: int, *, names: bool) -> Module | None:
    """Return the cubin that stands at ``offset``, or None where the bytes are not one."""
    if source.read(offset + 7, 1) not in (bytes([OLD_LAYOUT]), bytes([NEW_LAYOUT])):
        return None
    try:
        elf = read_header(source, offset, end)
        if elf.machine != EM_CUDA or not elf.section_table:
            return None
        stop = max(
            elf.section_table + elf.section_count * elf.section_size,
            elf.segment_table + elf.segment_count * elf.segment_size,
        )
        if stop > end:
            return None
        sections = read_sections(source, elf)
        stop = max([stop, *(section.end for section in sections)])
        if stop > end:
            return None
        kernels: tuple[str, ...] = ()
        if names and stop - offset <= NAMES_SIZE:
            kernels = kernel_names(*open_cubin(source.read(offset, stop - offset)))
        return Module(
            offset=offset,
            end=stop,
            claimed_end=stop,
            images=(read_cubin(source, elf, sections),),
            state="kernels" if has_kernels(sections) else "empty",
            kernels=kernels,
            bare=True,
        )
    except ElfError:
        return None
