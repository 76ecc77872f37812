"""How the captured distributions serve the GPUs that a person asks for; what binds is lock's judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.inspection.coverage import sum_distribution
from envbundle.resolver.evidence import rows_of
from envbundle.resolver.gather import Artifact
from envbundle.spec.digest import Digest
from envbundle.spec.target import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from envbundle.resolver.contents import WheelScan
    from envbundle.resolver.scan import Scanner
    from envbundle.spec.manifest import Manifest

    from .published import Published
    from .rebuild import Rebuilt
    from .survey import Survey


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


def coverage_rows(
    manifest: Manifest | None,
    seen: Survey,
    made: Mapping[str, Rebuilt],
    *,
    folder: Path,
    published: Published | None,
    scanner: Scanner,
) -> tuple[Coverage, ...]:
    """Return the coverage of what was captured for the GPUs of ``manifest``'s targets (None: no rows).

    ``made`` are wheels in ``folder``; the bytes of published ones come from where they were compared.
    """
    if manifest is None:
        return ()
    scans = {}
    for name, rebuilt in made.items():
        if rebuilt.compiled:
            path = folder / rebuilt.filename
            wheel = Artifact(
                filename=rebuilt.filename, path=path, sha256=Digest(rebuilt.sha256), size=rebuilt.size
            )
            scans[name] = scanner.scan(wheel)
    for name, item in seen.distributions.items():
        if name not in made and item.wheel is not None and published is not None:
            held = published.artifact(item.wheel)
            if held is not None:
                scans[name] = scanner.scan(held)
    gpus = dict.fromkeys(gpu for spec in manifest.targets for gpu in spec.target.gpus)
    sources = manifest.source.gpus if manifest.source is not None else ()
    return coverage(scans, gpus, tuple(Arch.parse(name) for name in sources))


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
