"""What an invariant's check is given and returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts
    from envbundle.spec.finding import Finding


class Invariant(Protocol):
    """Checks one invariant of a bundle on this machine, without changing anything."""

    def __call__(
        self, fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]
    ) -> list[Finding]:
        """Return findings, none where it holds.

        ``fields`` are the kind's own (``envbundle.spec.invariants``), from a signed bundle that may have been
        made by another version; ``environment`` is the bundle's ``[environment]``.
        """
