"""``kind = "tool"``: a program is there, and says that it is at least version ``min``."""

# ruff: noqa: PTH113, PTH118 - paths come as text from variables
from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from envbundle.errors import HostError
from envbundle.host.probe import read_version
from envbundle.host.run import find_program
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts

_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:
    """See ``Invariant``. A name is looked for in CUDA_HOME/bin and PATH, as the tools' users do."""
    tool = str(fields.get("tool", ""))
    floor = fields.get("min")
    wanted = f"{tool} >= {floor}" if floor else tool
    program = _find(tool, {**facts.environment, **environment})
    if program is None:
        return [_fault(wanted, "not found")]
    if floor is None:
        return []
    arguments = [str(word) for word in fields.get("version-args") or ("--version",)]
    try:
        finished = facts.runner([program, *arguments], timeout=30.0)
    except HostError as fault:
        return [_fault(wanted, f"{program}: {fault.found or fault.code}")]
    match = _VERSION.search(finished.text + finished.error_text)
    if match is None:
        return [_fault(wanted, f"{program}, which prints no version")]
    if _padded(match[0]) < _padded(str(floor)):
        return [_fault(wanted, f"{match[0]} at {program}")]
    return []


def _find(tool: str, environment: Mapping[str, str]) -> str | None:
    if tool.startswith("/"):
        return tool if os.access(tool, os.X_OK) and os.path.isfile(tool) else None
    home = environment.get("CUDA_HOME", "")
    inside = os.path.join(home, "bin", tool)
    if home and os.access(inside, os.X_OK):
        return inside
    return find_program(tool, environment.get("PATH"))


def _padded(version: str) -> tuple[int, ...]:
    numbers = read_version(version)
    return numbers + (0,) * (8 - len(numbers))


def _fault(wanted: str, found: str) -> Finding:
    return Finding(
        code="E-HOST-TOOL",
        severity="error",
        subject=wanted,
        expected="on this host",
        found=found,
        hint="install it, or set CUDA_HOME or PATH to where it is",
    )
