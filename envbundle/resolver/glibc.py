"""Symbol versions that files ask of the C and C++ runtimes, against what the target has.

The content decides: a platform tag is a hint. An entry that is marked weak (VER_FLG_WEAK) is tolerated by
the loader when it is absent; a weak *symbol* with a hard entry is not. What the target's libstdc++ has is
concluded from its glibc by the table of usual hosts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.spec.finding import Finding

from .libraries import library_rules
from .sonames import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .closure import Linkage
    from .placed import PlacedFile

_VERSION = re.compile(r"(GLIBC_2|GLIBCXX_3\.4|CXXABI_1\.3)(?:\.([0-9]{1,4}))?(?:\.[0-9]+)?")


@dataclass(slots=True)
class Floors:
    """The highest version of each runtime that any file asks for, with the files that ask for it.

    ``families`` are ``GLIBC_2``, ``GLIBCXX_3.4`` and ``CXXABI_1.3``; versions are their last number.
    """

    newest: dict[str, int] = field(default_factory=dict)

    def requires(self) -> dict[str, str]:
        """Return the floors as a lock's ``requires`` holds them."""
        keys = {"GLIBC_2": "glibc", "GLIBCXX_3.4": "glibcxx", "CXXABI_1.3": "cxxabi"}
        tops = {"GLIBC_2": "2", "GLIBCXX_3.4": "3.4", "CXXABI_1.3": "1.3"}
        return {
            key: f"{tops[family]}.{self.newest[family]}"
            for family, key in keys.items()
            if family in self.newest
        }


def versions_asked(file: PlacedFile) -> dict[str, int]:
    """Return the highest hard version of each family that one file asks for."""
    asked: dict[str, int] = {}
    for _, versions in file.needs.versions:
        for version in versions:
            match = _VERSION.fullmatch(version)
            if match is not None:
                asked[match[1]] = max(asked.get(match[1], 0), int(match[2] or 0))
    return asked


def floors(files: Iterable[PlacedFile]) -> Floors:
    """Return the floors of an environment."""
    result = Floors()
    for file in files:
        for family, version in versions_asked(file).items():
            result.newest[family] = max(result.newest.get(family, 0), version)
    return result


def judge_runtimes(linkage: Linkage, glibc: str, *, source_glibc: str | None = None) -> tuple[Finding, ...]:
    """Return E-GLIBC and E-GLIBCXX for files that ask for more than a target with ``glibc`` (2.N) has.

    ``source_glibc`` is that of the machine where the environment ran: what was too new there too is a note.
    """
    minor = _minor(glibc)
    had = None if source_glibc is None else _limits(_minor(source_glibc))
    bundled = any(file.name == "libstdc++.so.6" for file in linkage.files)
    grouped: dict[tuple[str, str, int], list[PlacedFile]] = defaultdict(list)
    for file in linkage.files:
        for family, version in versions_asked(file).items():
            if version > _limits(minor)[family] and (family == "GLIBC_2" or not bundled):
                grouped[family, file.distribution, version].append(file)
    findings = []
    for (family, _, version), files in sorted(grouped.items()):
        code = "E-GLIBC" if family == "GLIBC_2" else "E-GLIBCXX"
        name = "glibc" if family == "GLIBC_2" else "libstdc++"
        limit = _limits(minor)[family]
        never = had is not None and version > had[family]
        findings.append(
            Finding(
                code="N-NEVER-HAD" if never else code,
                severity="note" if never else "error",
                subject=subject_of(files),
                expected=f"at most {family}.{limit}, as {name} of a target with glibc {glibc} has",
                found=f"{family}.{version}",
                hint="too new for the source machine as well, which ran without it"
                if never
                else "take a build for an older platform"
                + ("" if family == "GLIBC_2" else "; the newest libstdc++ is concluded from the glibc")
                + ", or state the target's true glibc",
            )
        )
    return tuple(findings)


def _minor(glibc: str) -> int:
    digits = glibc.partition(".")[2].partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _limits(minor: int) -> dict[str, int]:
    cxx, abi = library_rules().newest_libstdcxx(minor)
    return {"GLIBC_2": minor, "GLIBCXX_3.4": cxx, "CXXABI_1.3": abi}
