"""``kind = "gpu"``: how many GPUs are visible, and what each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:  # noqa: ARG001
    """See ``Invariant``. Where no GPU can be seen, ``W-NO-DEVICE`` says so already."""
    gpus = facts.devices.gpus
    if not gpus:
        return []
    found: list[Finding] = []
    least = fields.get("min-count")
    if isinstance(least, int) and len(gpus) < least:
        found.append(
            Finding(
                code="E-GPU-COUNT",
                severity="error",
                subject="GPUs",
                expected=f"at least {least}",
                found=str(len(gpus)),
                hint="use a machine with more, or lower min-count",
            )
        )
    archs = fields.get("arch")
    wanted = [archs] if isinstance(archs, str) else list(archs or ())
    found += [
        Finding(
            code="E-GPU-ARCH",
            severity="error",
            subject=f"GPU {gpu.index}, {gpu.name}",
            expected=" or ".join(wanted),
            found=str(gpu.arch),
            hint="the bundle's manifest demands it of every GPU here",
        )
        for gpu in gpus
        if wanted and str(gpu.arch) not in wanted
    ]
    return found
