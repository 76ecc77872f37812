"""What ``pip check`` would say of the locked set, by the wheels' own metadata and the target's markers.

A solved set has no complaints. A full freeze (``complete = true``) is a copy of what ran, and real ones have
dozens: one finding for each distribution that misses something, never an error.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envbundle.spec.finding import Finding

from .requirements import marker_environment
from .sonames import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envbundle.spec.target import Target

    from .contents import WheelScan


def judge_requirements(
    scans: Mapping[str, WheelScan], target: Target, *, captured: bool = False
) -> tuple[Finding, ...]:
    """Return one finding for each distribution whose requirements are not met: W-PIP-CHECK.

    ``captured`` says that the set is a copy of an environment that ran: then it is a note.
    """
    findings = []
    extras = _extras(scans, target)
    for name, scan in sorted(scans.items()):
        complaints = list(dict.fromkeys(_complaints(scan, scans, target, extras[name])))
        if complaints:
            findings.append(
                Finding(
                    code="N-PIP-CHECK" if captured else "W-PIP-CHECK",
                    severity="note" if captured else "warning",
                    subject=f"{name} {scan.version}",
                    expected="the distributions that its metadata asks for",
                    found=f"{len(complaints)} unmet: {shown(complaints, 6)}",
                    hint="as in the environment that was captured"
                    if captured
                    else "it may not be importable without them",
                )
            )
    return tuple(findings)


def _applying(scan: WheelScan, target: Target, extras: set[str]) -> Iterator[Requirement]:
    environment = marker_environment(target)
    for line in scan.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(
            marker.evaluate({**environment, "extra": extra}) for extra in ("", *sorted(extras))
        ):
            yield requirement


def _extras(scans: Mapping[str, WheelScan], target: Target) -> Mapping[str, set[str]]:
    """Return the extras of each distribution that others ask for."""
    asked: dict[str, set[str]] = defaultdict(set)
    waiting = list(scans)
    while waiting:
        name = waiting.pop()
        for requirement in _applying(scans[name], target, asked[name]):
            other = canonicalize_name(requirement.name)
            new = requirement.extras - asked[other]
            if new and other in scans:
                asked[other] |= new
                waiting.append(other)
    return asked


def _complaints(
    scan: WheelScan, scans: Mapping[str, WheelScan], target: Target, extras: set[str]
) -> Iterator[str]:
    for requirement in _applying(scan, target, extras):
        other = scans.get(canonicalize_name(requirement.name))
        if other is None:
            yield f"{requirement.name} (not there)"
        elif requirement.url is None and not requirement.specifier.contains(other.version, prereleases=True):
            yield f"{requirement.name}{requirement.specifier} ({other.version} there)"
    try:
        pythons = SpecifierSet(scan.requires_python)
    except InvalidSpecifier:
        return
    if scan.requires_python and not pythons.contains(f"{target.python}.99", prereleases=True):
        yield f"Python {scan.requires_python} ({target.python} there)"
