"""The rows of a distribution's GPU code: its files one by one, its stand-alone cubins as one catalogue."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbundle.inspection.coverage import STAND_ALONE, Judgement, judge_file, sum_distribution
from envbundle.spec.lock import DistributionEvidence, FileEvidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.spec.coverage import Counts, Entry, FileScan
    from envbundle.spec.target import Arch, Target

    from .contents import WheelScan


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a judgement: a file, or the catalogue of a distribution's stand-alone files."""

    path: str
    scans: tuple[FileScan, ...]
    judgements: tuple[Judgement, ...]

    @property
    def counts(self) -> Counts:
        """The row's counts; a catalogue's by union."""
        return sum_distribution(self.judgements)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the row's files in their wheel."""
        return tuple(scan.path for scan in self.scans)

    def reasons(self) -> tuple[str, ...]:
        """Why each image that does not run does not, each reason once."""
        return tuple(dict.fromkeys(reason for each in self.judgements for reason in each.reasons))

    def shown(self) -> str:
        """The path as messages name it."""
        return self.path if len(self.scans) == 1 else f"{self.path} ({len(self.scans)} files)"


def rows_of(files: Sequence[FileScan], gpu: Arch, driver: str | None) -> list[Row]:
    """Return the files' rows, judged for one GPU; ``driver`` as for ``judge_file``."""
    plain = [file for file in files if file.kind not in STAND_ALONE]
    catalogue = tuple(file for file in files if file.kind in STAND_ALONE)
    rows = [Row(file.path, (file,), (judge_file(file, gpu, driver=driver),)) for file in plain]
    if catalogue:
        judged = tuple(judge_file(file, gpu, driver=driver) for file in catalogue)
        rows.append(Row(_common(catalogue), catalogue, judged))
    return rows


def _common(files: Sequence[FileScan]) -> str:
    """Return the one file's path, or the deepest folder that holds all of them."""
    if len(files) == 1:
        return files[0].path
    folders = [posixpath.dirname(file.path) for file in files]
    return (
        posixpath.commonpath(folders)
        or posixpath.commonprefix([file.path for file in files])
        or files[0].path
    )


def holds(entries: Iterable[Entry]) -> str:
    """Say what a file holds: ``has SASS sm_80, sm_90a; no PTX``."""
    kinds: dict[str, dict[str, None]] = {"sass": {}, "ptx": {}, "nvvm": {}}
    for entry in sorted(entries, key=_by_number):
        kinds[entry.kind].setdefault(f"{entry.arch} (ISA {entry.isa})" if entry.isa else entry.arch)
    sass = "SASS " + ", ".join(kinds["sass"]) if kinds["sass"] else "no SASS"
    ptx = "PTX " + ", ".join(kinds["ptx"]) if kinds["ptx"] else "no PTX"
    nvvm = ["LTO-IR " + ", ".join(kinds["nvvm"])] if kinds["nvvm"] else []
    return "has " + "; ".join([sass, ptx, *nvvm])


def _by_number(entry: Entry) -> tuple[int, str]:
    digits = entry.arch.rpartition("_")[2].rstrip("af")
    return (int(digits) if digits.isdecimal() else 0), entry.arch


def evidence_of(
    scan: WheelScan, files: Sequence[FileScan], target: Target, by_gpu: Mapping[Arch, Sequence[Row]]
) -> DistributionEvidence:
    """Return what the lock records: plain files one by one, the catalogue as one row.

    ``by_gpu`` holds the files' rows for every GPU of the target, as ``rows_of`` gives them.
    """
    shown: list[FileEvidence] = []
    rows = by_gpu[target.gpus[0]] if target.gpus else _unjudged(files)
    for position, row in enumerate(rows):
        counts = tuple((str(gpu), by_gpu[gpu][position].counts) for gpu in target.gpus)
        shown.append(FileEvidence(path=row.path, entries=_merged(row.scans), counts=counts))
    totals = tuple(
        (str(gpu), sum_distribution(j for row in judged for j in row.judgements))
        for gpu, judged in by_gpu.items()
    )
    return DistributionEvidence(
        distribution=scan.name, counts=totals, files=tuple(sorted(shown, key=lambda item: item.path))
    )


def _unjudged(files: Sequence[FileScan]) -> list[Row]:
    plain = [Row(file.path, (file,), ()) for file in files if file.kind not in STAND_ALONE]
    catalogue = tuple(file for file in files if file.kind in STAND_ALONE)
    return [*plain, *([Row(_common(catalogue), catalogue, ())] if catalogue else [])]


def _merged(scans: Sequence[FileScan]) -> tuple[Entry, ...]:
    rows: dict[tuple[str, str, str | None, str], Entry] = {}
    for scan in scans:
        for entry in scan.entries:
            key = (entry.kind, entry.arch, entry.isa, entry.section)
            known = rows.get(key)
            rows[key] = replace(entry, modules=entry.modules + (known.modules if known else 0))
    return tuple(sorted(rows.values(), key=lambda e: (e.kind, e.arch, e.isa or "", e.section)))
