"""Which section of an ELF file each module lies in, and what that makes of it.

* ``.nv_fatbin`` holds linked modules, ``__nv_relfatbin`` relocatable ones, any other loaded section a
  catalogue. What is not loaded at run time does not count.
* The two named sections hold containers and zero padding only: anything else hides what was a container.
* ``.nvFatBinSegment`` has one record per container of the two: more records than containers is damage.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .fatbin import HEADER_SIZE, Fault, Module, first_nonzero

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.spec.coverage import Role

    from .elf import Elf, Section
    from .search import Search
    from .source import Source

LINKED, RELOCATABLE, SEGMENT = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
_RECORD, _RECORD_MAGIC = 24, bytes.fromhex("b1436246")


@dataclass(frozen=True, slots=True)
class PlacedModule:
    """A module with the name of its section, or ``(scan)`` where it lies in none."""

    module: Module
    section: str
    role: Role


@dataclass(slots=True)
class Placed:
    """All modules that count; ``hidden`` are signs of containers that nobody can read."""

    modules: list[PlacedModule] = field(default_factory=list)
    hidden: list[Fault] = field(default_factory=list)
    lost: bool = False


@dataclass(slots=True)
class _Span:
    section: Section
    modules: list[Module] = field(default_factory=list)
    blank: list[int] = field(default_factory=list)


def place(source: Source, elf: Elf, sections: Sequence[Section], found: Search) -> Placed:
    """Give every module that was found to its section, and check that the named ones are filled."""
    ordered = sorted((s for s in sections if s.size and s.type), key=lambda s: s.offset)
    starts = [section.offset for section in ordered]
    spans = {s.offset: _Span(s) for s in ordered if s.name in (LINKED, RELOCATABLE)}

    def holder(offset: int) -> Section | None:
        at = bisect_right(starts, offset) - 1
        return ordered[at] if at >= 0 and offset < ordered[at].end else None

    others: list[tuple[Module, str]] = []
    for module in found.modules:
        section = holder(module.offset)
        if section is not None and section.offset in spans:
            if not module.bare:
                spans[section.offset].modules.append(module)
        elif section is None or section.loaded:
            others.append((module, section.name if section else "(scan)"))
    for offset in found.blank:
        section = holder(offset)
        if section is not None and section.offset in spans:
            spans[section.offset].blank.append(offset)
    placed = Placed()
    for span in spans.values():
        role: Role = "linked" if span.section.name == LINKED else "relocatable"
        placed.modules += [PlacedModule(module, span.section.name, role) for module in span.modules]
        end = min(span.section.end, elf.end)
        hidden, lost = gaps(source, span.section.offset, end, span.modules, span.blank, found.quiet)
        placed.hidden += hidden
        placed.lost = placed.lost or lost
    placed.modules += _catalogue(others)
    placed.hidden += _cross_check(source, elf, sections, spans.values())
    return placed


def _catalogue(others: Iterable[tuple[Module, str]]) -> list[PlacedModule]:
    """Return what counts of the modules in sections that nobody reserved for them."""
    kept: list[PlacedModule] = []
    damaged_until = -1
    for module, section in others:
        if module.state == "damaged" and not module.images:
            continue  # the pattern by chance, as in a library that writes fatbins
        if module.bare and module.offset < damaged_until:
            continue  # the payload of a container that could not be read
        if module.state == "damaged":
            damaged_until = max(damaged_until, module.claimed_end)
        kept.append(PlacedModule(module, section, "catalogue"))
    return kept


def gaps(
    source: Source,
    start: int,
    end: int,
    modules: Sequence[Module],
    blank: Sequence[int],
    quiet: Mapping[int, int],
) -> tuple[list[Fault], bool]:
    """Return what stands between the containers of [start, end) other than zero padding.

    The second value says that a damaged container claims to reach behind ``end``. ``blank`` are the offsets
    of containers of size 0; ``quiet`` is what the search noticed of padding.
    """
    stops = [(m.offset, m.claimed_end if m.state == "damaged" else m.end) for m in modules]
    stops += [(offset, offset + HEADER_SIZE) for offset in blank]
    at, hidden = start, []
    for offset, stop in [*sorted(stops), (end, end)]:
        known = max(at, quiet.get(at, at))
        hit = first_nonzero(source, known, offset) if known < offset else -1
        if hit >= 0:
            found = source.read(hit, 8).hex(" ")
            hidden.append(Fault(hit, "a fatbin container or zero padding", found))
        at = max(at, stop)
    return hidden, any(stop > end for _, stop in stops)


def _cross_check(
    source: Source, elf: Elf, sections: Sequence[Section], spans: Iterable[_Span]
) -> list[Fault]:
    containers = sum(len(span.modules) + len(span.blank) for span in spans)
    hidden = []
    for section in sections:
        if section.name != SEGMENT or section.end > elf.end or section.size > 1 << 24:
            continue
        data = source.read(section.offset, section.size)
        records = sum(data[at : at + 4] == _RECORD_MAGIC for at in range(0, len(data) - 23, _RECORD))
        if records > containers:
            hidden.append(Fault(section.offset, f"{records} fatbin containers", str(containers)))
    return hidden
