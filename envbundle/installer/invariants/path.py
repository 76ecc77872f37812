"""``kind = "path"``: a path is there, of that type, with that mode, open to the user who installs."""

# ruff: noqa: PTH116 - the path comes as text from the manifest
from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:  # noqa: ARG001
    """See ``Invariant``."""
    path = str(fields.get("path", ""))
    wanted = str(fields.get("type", "any"))
    try:
        status = os.stat(path)
    except OSError as fault:
        return [
            _fault(
                path, f"a {wanted}" if wanted != "any" else "something there", fault.strerror or str(fault)
            )
        ]
    found: list[Finding] = []
    kind = "dir" if stat.S_ISDIR(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "special"
    if wanted not in ("any", kind):
        found.append(_fault(path, f"a {wanted}", f"a {kind}"))
    mode = fields.get("mode")
    if mode is not None and stat.S_IMODE(status.st_mode) != int(str(mode), 8):
        found.append(_fault(path, f"mode {int(str(mode), 8):04o}", f"{stat.S_IMODE(status.st_mode):04o}"))
    for key, access in (("readable", os.R_OK), ("writable", os.W_OK)):
        if fields.get(key) and not os.access(path, access):
            found.append(_fault(path, key, "not so for this user"))
    return found


def _fault(path: str, expected: str, found: str) -> Finding:
    return Finding(
        code="E-HOST-PATH",
        severity="error",
        subject=path,
        expected=expected,
        found=found,
        hint="the bundle's manifest declares it; make it so on this host",
    )
