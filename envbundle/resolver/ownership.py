"""Judgements over the whole set: paths that several distributions claim, groups of equal versions.

* Equal bytes under one path are no contest. Different bytes need a winner that the manifest names, by the
  prefix-relative path or by the path below site-packages; an overlay counts as its distribution's bytes.
* A group compares public versions; a local part that names a CUDA release (``+cu130``) must agree with the
  other members' and with torch's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from envbundle.spec.finding import Finding
from envbundle.spec.layer import installed_path
from envbundle.spec.lock import Contested

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import LockedOverlay, LockedPackage
    from envbundle.spec.manifest import Group, PackagePolicy

    from .contents import WheelScan

_CUDA = re.compile(r"cu([0-9]{2,3})")
_TORCH = "torch"


def claims_of(
    scans: Mapping[str, WheelScan], overlays: Sequence[LockedOverlay], python: str
) -> dict[str, dict[str, Digest]]:
    """Return, per installed path, the digest that each distribution brings there after its overlay.

    ``scans`` are by distribution. A distribution whose overlay removes a path no longer claims it.
    """
    claims: dict[str, dict[str, Digest]] = {}
    for name, scan in scans.items():
        for path, digest in scan.installed(python).items():
            claims.setdefault(path, {})[name] = digest
    for overlay in overlays:
        name = overlay.distribution
        for item in overlay.files:
            path = installed_path(f"purelib/{item.path}", python=python, distribution=name)
            claims.setdefault(path, {})[name] = item.sha256
        for removed, _ in overlay.removes:
            path = installed_path(f"purelib/{removed}", python=python, distribution=name)
            claims.get(path, {}).pop(name, None)
    return claims


def judge_ownership(
    claims: Mapping[str, Mapping[str, Digest]], policies: Mapping[str, PackagePolicy], python: str
) -> tuple[tuple[Contested, ...], tuple[Finding, ...]]:
    """Return the contested paths with their winners, and E-OVERLAP for those without one (or with two)."""
    site = f"lib/python{python}/site-packages/"
    contested, findings = [], []
    for path, by_name in sorted(claims.items()):
        if len(by_name) < 2 or len(set(by_name.values())) == 1:
            continue
        spellings = {path, path.removeprefix(site)}
        winners = (
            [name for name in sorted(by_name) if spellings & set(policies[name].winner)] if policies else []
        )
        if len(winners) == 1:
            contested.append(Contested(path=path, claims=tuple(sorted(by_name.items())), winner=winners[0]))
            continue
        findings.append(_overlap(path, by_name, winners))
    return tuple(contested), (*findings, *_files_for_folders(claims))


def _files_for_folders(claims: Mapping[str, Mapping[str, Digest]]) -> Iterator[Finding]:
    """Yield E-OVERLAP for each path at which one distribution has a file and another needs a folder."""
    held = {path: by_name for path, by_name in claims.items() if by_name}
    seen: set[str] = set()
    for path in sorted(held):
        folder = path.rpartition("/")[0]
        while folder and folder not in seen:
            seen.add(folder)
            if folder in held:
                yield Finding(
                    code="E-OVERLAP",
                    severity="error",
                    subject=folder,
                    expected="a file or a folder",
                    found=f"{' and '.join(sorted(held[folder]))} has a file there, "
                    f"{' and '.join(sorted(held[path]))} has {path}",
                    hint="remove one of them by an overlay",
                )
            folder = folder.rpartition("/")[0]


def _overlap(path: str, by_name: Mapping[str, Digest], winners: Sequence[str]) -> Finding:
    names = sorted(by_name)
    others = " or ".join(names[1:])
    return Finding(
        code="E-OVERLAP",
        severity="error",
        subject=path,
        expected="one provider of that path, or equal bytes",
        found=" / ".join(f"{name} ({by_name[name].short})" for name in names)
        + (f"; two winners: {' and '.join(winners)}" if winners else ""),
        hint=f'name who wins: [package.{names[0]}] winner = ["{path}"], or the same for {others}',
    )


def judge_groups(
    groups: Iterable[Group], packages: Mapping[str, LockedPackage], torch_cuda: str | None = None
) -> tuple[Finding, ...]:
    """Return E-GROUP-VERSION for every group whose locked members differ.

    ``torch_cuda`` is the CUDA major (``13``) that torch's own files ask for, used where its version has no
    local part. Members that are not locked are not compared.
    """
    findings = []
    for group in groups:
        members = [packages[name] for name in group.same_version if name in packages]
        versions = {member.name: _version(member.version) for member in members}
        if len({version.public for version in versions.values()}) > 1:
            findings.append(_group_finding(group, versions, "one public version"))
            continue
        wanted = _cuda_of(packages[_TORCH].version) if _TORCH in packages else None
        cudas = {name: cuda for name, version in versions.items() if (cuda := _cuda_of(str(version)))}
        if len(set(cudas.values())) > 1:
            findings.append(_group_finding(group, versions, "one CUDA release in the local parts"))
        elif wanted and any(cuda != wanted for cuda in cudas.values()):
            torch = packages[_TORCH].version
            findings.append(_group_finding(group, versions, f"local parts as torch {torch} has"))
        elif torch_cuda and not wanted and any(not cuda.startswith(torch_cuda) for cuda in cudas.values()):
            findings.append(
                _group_finding(group, versions, f"CUDA {torch_cuda}, which torch's files ask for")
            )
    return tuple(findings)


def _group_finding(group: Group, versions: Mapping[str, Version], expected: str) -> Finding:
    return Finding(
        code="E-GROUP-VERSION",
        severity="error",
        subject=", ".join(group.same_version),
        expected=expected,
        found=", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        hint="pin them to one release, each from the index of the same CUDA",
    )


def _cuda_of(version: str) -> str | None:
    """Return ``130`` of a version ``2.9.0+cu130``, else None."""
    match = _CUDA.search(version.partition("+")[2])
    return match[1] if match else None


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # a lock holds what packaging read; this keeps a hostile one from a traceback
        return Version("0")
