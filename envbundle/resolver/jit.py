"""The table of what compiles or fetches at run time (``jit_rules.toml``), read."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from envbundle.spec.manifest import Group

from .libraries import read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """Which of several bundled compilers a release uses: ``file`` from GPU number ``start`` on."""

    file: str
    start: int
    versions: SpecifierSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """What a distribution would fetch at first use, and what spares it that."""

    what: str
    distribution: str
    same_version: bool
    variable: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JitRule:
    """One row of the table. ``instead`` are distributions that bring everything precompiled."""

    distribution: str
    does: str
    host: tuple[str, ...] = ()
    compiler: str = ""
    variable: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
    gpus: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    fetch: Fetch | None = None
    needed: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JitRules:
    """The table, read. ``toolkit`` maps a GPU to the first CUDA release that compiles for it."""

    rules: tuple[JitRule, ...]
    toolkit: tuple[tuple[str, str], ...]
    groups: tuple[Group, ...]
    gpu_distributions: tuple[str, ...]

    def rule(self, distribution: str) -> JitRule | None:
        """Return the row of a distribution."""
        return next((rule for rule in self.rules if fnmatchcase(distribution, rule.distribution)), None)


@cache
def jit_rules() -> JitRules:
    """Return the shipped table."""
    table = read_rules("jit_rules.toml")
    return JitRules(
        rules=tuple(_rule(row) for row in table["rule"]),
        toolkit=tuple(table["toolkit"].items()),
        groups=tuple(Group(same_version=tuple(row["same-version"])) for row in table["group"]),
        gpu_distributions=tuple(table["gpu"]["distributions"]),
    )


def default_groups(manifest_groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the groups of the table that no group of the manifest speaks of."""
    named = {name for group in manifest_groups for name in group.same_version}
    return tuple(group for group in jit_rules().groups if not named & set(group.same_version))


def _rule(row: Mapping[str, Any]) -> JitRule:
    fetches = row.get("fetches")
    return JitRule(
        distribution=row["distribution"],
        does=row["does"],
        host=tuple(row.get("host", ())),
        compiler=row.get("compiler", ""),
        variable=tuple(row.get("variable", ())),
        picks=tuple(
            Pick(file=pick["file"], start=pick["from"], versions=SpecifierSet(pick.get("versions", "")))
            for pick in row.get("pick", ())
        ),
        gpus=tuple(row.get("gpus", ())),
        instead=tuple(row.get("instead", ())),
        fetch=None
        if fetches is None
        else Fetch(
            what=fetches["what"],
            distribution=fetches["distribution"],
            same_version=fetches["same-version"],
            variable=fetches["variable"],
            gpus=tuple(fetches.get("gpus", ())),
        ),
        needed=bool(row.get("needed", False)),
        optional=bool(row.get("optional", False)),
    )
