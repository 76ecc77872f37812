"""``kind = "space"``: free bytes on the volume that holds a path, the prefix's where none is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.host.probe import volume
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:  # noqa: ARG001
    """See ``Invariant``."""
    wanted = int(fields.get("bytes", 0))
    place = Path(str(fields["path"])) if fields.get("path") else facts.prefix.home
    found = volume(place)
    if found.free >= wanted:
        return []
    return [
        Finding(
            code="E-SPACE",
            severity="error",
            subject=str(place),
            expected=f"{wanted} bytes free, as the bundle's manifest demands",
            found=f"{found.free} bytes",
            hint="free space on that volume",
        )
    ]
