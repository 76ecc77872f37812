"""``kind = "library"``: the host's loader finds a shared library by its soname."""

# ruff: noqa: PTH113, PTH118 - paths come as text from variables
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from envbundle.errors import HostError
from envbundle.host.run import find_program
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:
    """See ``Invariant``. Looked at: LD_LIBRARY_PATH, the loader's cache and its default folders."""
    soname = str(fields.get("soname", ""))
    paths = environment.get("LD_LIBRARY_PATH", facts.environment.get("LD_LIBRARY_PATH", ""))
    machine = facts.machine
    folders = [folder for folder in paths.split(":") if folder]
    folders += [
        f"/lib/{machine}-linux-gnu",
        f"/usr/lib/{machine}-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ]
    if any(os.path.isfile(os.path.join(folder, soname)) for folder in folders):
        return []
    if soname in _cached(facts):
        return []
    return [
        Finding(
            code="E-HOST-LIBRARY",
            severity="error",
            subject=soname,
            expected="a library that the loader finds",
            found="none in LD_LIBRARY_PATH, ldconfig's cache and the default folders",
            hint="install the package that brings it",
        )
    ]


def _cached(facts: HostFacts) -> set[str]:
    program = find_program(
        "ldconfig", os.pathsep.join((facts.environment.get("PATH", ""), "/sbin", "/usr/sbin"))
    )
    if program is None:
        return set()
    try:
        listed = facts.runner([program, "-p"], timeout=30.0).text
    except HostError:
        return set()
    return {words[0] for line in listed.splitlines() if "=>" in line and (words := line.split())}
