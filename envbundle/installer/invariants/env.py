"""``kind = "env"``: a variable is set, and its whole value matches a regular expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.installer.facts import HostFacts


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:
    """See ``Invariant``. What ``[environment]`` sets counts as set."""
    name = str(fields.get("name", ""))
    value = environment.get(name, facts.environment.get(name))
    pattern = fields.get("matches")
    if value is not None and (pattern is None or re.fullmatch(str(pattern), value)):
        return []
    return [
        Finding(
            code="E-HOST-ENV",
            severity="error",
            subject=name,
            expected="to be set" if pattern is None else f"a value that matches {pattern!a}",
            found="not set" if value is None else ascii(value)[:200],
            hint="set it where the environment is used, or in [environment]",
        )
    ]
