"""The judgements of a whole set for an environment that is only looked at: no manifest, target or lock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envbundle.spec.finding import Finding

from .abi import judge_abi
from .closure import Linkage
from .glibc import floors
from .placed import PlacedFile
from .sonames import judge_sonames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.spec.coverage import FileScan

_SITE = re.compile(r"(?:^|/)lib/python(3\.[0-9]+)/site-packages/")


def judge_inspected(
    scans: Mapping[str, FileScan], owners: Mapping[str, tuple[str, str]], *, prefix: str | None = None
) -> tuple[Finding, ...]:
    """Return what the ELF files of one environment say of each other.

    ``scans`` are by path relative to the prefix, ``owners`` pairs such a path with (distribution, version);
    ``prefix`` is where the environment stands. Nothing is said of a folder that is no environment: one
    without ``lib/python3.N/site-packages``.
    """
    pythons = {match[1] for path in scans if (match := _SITE.search(path))}
    if len(pythons) != 1:
        return ()
    placed = [
        PlacedFile(
            path=path,
            distribution=owners.get(path, ("", ""))[0],
            version=owners.get(path, ("", ""))[1],
            scan=scan,
        )
        for path, scan in sorted(scans.items())
        if scan.kind == "elf" and scan.needs is not None
    ]
    machines = [file.needs.machine for file in placed]
    if not machines:
        return ()
    machine = max(sorted(set(machines)), key=machines.count)
    linkage = Linkage(placed, python=pythons.pop(), machine=machine, prefix=prefix)
    floor = ", ".join(f"{key} {version}" for key, version in floors(linkage.files).requires().items())
    note = Finding(
        code="N-RUNTIME-FLOOR",
        severity="note",
        subject=f"{len(linkage.files)} ELF files",
        found=floor or "no versions of the C runtime",
        hint="what a target's C and C++ runtimes must have at least",
    )
    return (*judge_sonames(linkage), *judge_abi(linkage, {}), note)


def compiler_notes(scans: Iterable[FileScan]) -> tuple[Finding, ...]:
    """Return a note for each GPU compiler among files: its release and the newest GPU that it knows."""
    return tuple(
        Finding(
            code="N-COMPILER",
            severity="note",
            subject=scan.path,
            found=f"{scan.compiler.kind} {scan.compiler.version or 'of an unknown release'}, "
            f"knows sm_{scan.compiler.oldest} to sm_{scan.compiler.newest}",
        )
        for scan in scans
        if scan.compiler is not None
    )
