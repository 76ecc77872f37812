"""What locked files ask of the machine that runs them, by content: glibc, PTX ISA, CUDA, GPU compilers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from envbundle.spec.manifest import Invariant
    from envbundle.spec.target import Target

    from .chosen import Chosen
    from .contents import WheelScan

_GLIBC = re.compile(r"GLIBC_2\.([0-9]{1,3})(?:\.[0-9]+)?")
_CUDART = re.compile(r"libcudart\.so\.([0-9]+)")
_COMPILERS = re.compile(r"(nvcc|ptxas(?:-[a-z]+)?|libnvrtc\.so[0-9.]*)")


def host_needs(chosen: Sequence[Chosen], target: Target) -> dict[str, str]:
    """Return ``glibc``, ``ptx-isa`` and ``driver`` as the lock's ``requires`` holds them."""
    requires: dict[str, str] = {}
    glibc = max((minor for one in chosen for minor in _glibc_minors(one.scan)), default=None)
    if glibc is not None:
        requires["glibc"] = f"2.{glibc}"
    isas = [one.judgement.ptx_isa for one in chosen if one.judgement.ptx_isa is not None]
    if isas:
        major, minor = max(isas)
        requires["ptx-isa"] = f"{major}.{minor}"
    if target.driver is not None:
        requires["driver"] = target.driver
    return requires


def compilers(scans: Iterable[WheelScan], invariants: Iterable[Invariant]) -> tuple[str, ...]:
    """Return the GPU compilers that the target will have: in locked files, or demanded of the host."""
    found = {
        member.member
        for scan in scans
        for member in scan.members
        if _COMPILERS.fullmatch(member.member.rpartition("/")[2])
    }
    for invariant in invariants:
        values = dict(invariant.fields)
        name = values.get("tool", values.get("name"))
        if invariant.kind == "tool" and isinstance(name, str) and _COMPILERS.fullmatch(name):
            found.add(name)
    return tuple(sorted(found))


def torch_cuda(scan: WheelScan | None) -> str | None:
    """Return the CUDA major that torch's libraries ask for, None where they ask for none or several."""
    sonames = [s for file in scan.files if file.needs for s in file.needs.sonames] if scan is not None else []
    majors = {match[1] for soname in sonames if (match := _CUDART.fullmatch(soname))}
    return majors.pop() if len(majors) == 1 else None


def _glibc_minors(scan: WheelScan) -> Iterable[int]:
    for file in scan.files:
        if file.needs is None:
            continue
        for _, versions in file.needs.versions:
            for version in versions:
                match = _GLIBC.fullmatch(version)
                if match is not None:
                    yield int(match[1])
