"""How the captured distributions serve the GPUs that a person asks for; judged again, and bindingly, by lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.inspection.coverage import sum_distribution
from envbundle.resolver.evidence import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.resolver.contents import WheelScan
    from envbundle.spec.target import Arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One distribution for one GPU: its verdict, and files of which nothing runs.

    ``never_had`` are those of them that run nowhere on the source's GPUs either.
    """

    distribution: str
    arch: str
    verdict: str
    lacking: tuple[str, ...] = ()
    never_had: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "distribution": self.distribution,
            "arch": self.arch,
            "verdict": self.verdict,
            "lacking": list(self.lacking),
            "never_had": list(self.never_had),
        }


def coverage(
    scans: Mapping[str, WheelScan], archs: Iterable[Arch], sources: Sequence[Arch]
) -> tuple[Coverage, ...]:
    """Return a row for each distribution with GPU code and each arch."""
    found = []
    every = tuple(archs)
    for name, scan in sorted(scans.items()):
        files = tuple(file for file in scan.files if file.has_gpu_code)
        had = {
            row.path for gpu in sources for row in rows_of(files, gpu, None) if row.counts.verdict != "none"
        }
        for arch in every if files else ():
            rows = rows_of(files, arch, None)
            lacking = tuple(row.shown() for row in rows if row.counts.verdict == "none")
            never = tuple(row.shown() for row in rows if row.counts.verdict == "none" and row.path not in had)
            total = sum_distribution(judgement for row in rows for judgement in row.judgements)
            found.append(
                Coverage(
                    distribution=name,
                    arch=str(arch),
                    verdict=total.verdict,
                    lacking=lacking,
                    never_had=never if sources else (),
                )
            )
    return tuple(found)
