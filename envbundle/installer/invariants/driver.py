"""``kind = "driver"``: the NVIDIA kernel driver is at least ``min``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbundle.host.probe import read_version
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:  # noqa: ARG001
    """See ``Invariant``. Where no driver can be seen, ``W-NO-DEVICE`` says so already."""
    floor, have = str(fields.get("min", "0")), facts.devices.driver
    if have is None or read_version(have) >= read_version(floor):
        return []
    return [
        Finding(
            code="E-DRIVER",
            severity="error",
            subject="NVIDIA driver",
            expected=f"{floor} or newer",
            found=have,
            hint="update the driver",
        )
    ]
