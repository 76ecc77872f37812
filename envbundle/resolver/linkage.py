"""Everything about a whole locked set that its bytes tell before the move, gathered in one call.

Link closure, versions of the C and C++ runtimes, C++ symbols, compilers and fetching at run time, what the
metadata asks for, and labels against bytes. GPU coverage itself is judged wheel by wheel (``judge``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbundle.spec.finding import Finding

from .abi import judge_abi
from .closure import Linkage
from .glibc import floors, judge_runtimes
from .pip_check import judge_requirements
from .placed import place
from .runtime import HostPromise, judge_driver, judge_runtime
from .sonames import judge_sonames, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import Contested
    from envbundle.spec.manifest import Manifest
    from envbundle.spec.target import Target

    from .contents import WheelScan

_CUDART = re.compile(r"libcudart\.so\.([0-9]{1,3})(?:\..*)?")
_TORCH_TAG = re.compile(r"torch[-_.]?([0-9]+\.[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetJudgement:
    """The findings about a whole set, and what it asks of the host as a lock's ``requires`` holds it."""

    findings: tuple[Finding, ...]
    requires: dict[str, str]


def judge_set(
    scans: Mapping[str, WheelScan],
    target: Target,
    manifest: Manifest,
    *,
    claims: Mapping[str, Mapping[str, Digest]],
    contested: Sequence[Contested],
) -> SetJudgement:
    """Judge all locked wheels together; ``claims`` and ``contested`` are those of ``ownership``."""
    placed = place(scans, target.python, claims=claims, contested=contested)
    linkage = Linkage(placed, python=target.python, machine=target.machine, prefix=manifest.layout.prefix)
    source = manifest.source
    promise = HostPromise.of(
        manifest.invariants, manifest.environment, bundled=manifest.layout.interpreter == "bundled"
    )
    findings = (
        *judge_sonames(
            linkage,
            declared=declared_libraries(manifest),
            source_libraries=source.libraries if source else None,
        ),
        *judge_runtimes(linkage, target.glibc, source_glibc=source.glibc if source else None),
        *judge_abi(linkage, {name: told for name, scan in scans.items() if (told := built_for(scan))}),
        *judge_driver(cuda_majors(linkage), target.driver if target.gpus else None),
        *judge_runtime(scans, target, promise),
        *judge_requirements(scans, target, captured=source is not None and manifest.resolve.complete),
        *judge_labels(scans),
        *judge_torch_tags(scans),
    )
    return SetJudgement(findings=tuple(dict.fromkeys(findings)), requires=floors(linkage.files).requires())


def declared_libraries(manifest: Manifest) -> frozenset[str]:
    """Return the sonames that the manifest demands of the host."""
    return frozenset(
        str(dict(invariant.fields).get("soname", ""))
        for invariant in manifest.invariants
        if invariant.kind == "library"
    )


def cuda_majors(linkage: Linkage) -> set[int]:
    """Return the CUDA majors of the runtimes that an import of the environment loads."""
    names = (
        name
        for file in linkage.files
        if file.path in linkage.reachable
        for name in (file.needs.soname or "", *file.needs.sonames)
    )
    return {int(match[1]) for name in names if (match := _CUDART.fullmatch(name))}


def built_for(scan: WheelScan) -> str:
    """Return what a wheel tells of the torch it was built for: its local version, or a pin; else ''."""
    tag = _TORCH_TAG.search(scan.version.partition("+")[2])
    if tag is not None:
        return f"torch {tag[1]}"
    for line in scan.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == "torch" and "==" in str(requirement.specifier):
            return f"torch{requirement.specifier}"
    return ""


def judge_torch_tags(scans: Mapping[str, WheelScan]) -> tuple[Finding, ...]:
    """Return W-TORCH-TAG for wheels whose local version names another torch than the locked one."""
    torch = scans.get("torch")
    if torch is None:
        return ()
    release = ".".join(map(str, Version(torch.version).release[:2]))
    findings = []
    for name, scan in sorted(scans.items()):
        tag = _TORCH_TAG.search(scan.version.partition("+")[2])
        if tag is not None and tag[1] != release:
            findings.append(
                Finding(
                    code="W-TORCH-TAG",
                    severity="warning",
                    subject=f"{name} {scan.version}",
                    expected=f"a build for torch {release}",
                    found=f"its version says torch {tag[1]}",
                    hint="its symbols decide (E-ABI); take the build for the locked torch if there is one",
                )
            )
    return tuple(findings)


def judge_labels(scans: Mapping[str, WheelScan]) -> tuple[Finding, ...]:
    """Return W-ARCH-DECLARED for wheels whose labels name GPU architectures that their bytes do not hold."""
    findings = []
    for name, scan in sorted(scans.items()):
        held = {image.arch for file in scan.files for group in file.groups for image in group.images}
        numbers = {re.sub(r"\D", "", arch) for arch in held}
        absent = [arch for arch in scan.declared if re.sub(r"\D", "", arch) not in numbers]
        if absent:
            findings.append(
                Finding(
                    code="W-ARCH-DECLARED",
                    severity="warning",
                    subject=f"{name} {scan.version}",
                    expected=f"what its labels declare: {', '.join(scan.declared)}",
                    found=f"nothing compiled for {', '.join(absent)}; "
                    f"it holds {shown(sorted(held), 12) or 'no GPU code'}",
                    hint="labels are no evidence: the bytes were judged",
                )
            )
    return tuple(findings)
