"""The manifest that capture writes: complete pins, overlays, winners, the source as yardstick.

Where envbundle installed the environment, its own manifest is what is written again, with only those parts
replaced that say what lies on the disk: targets, policies, checks and variables stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.spec.manifest import (
    Check,
    IndexSource,
    Invariant,
    Layout,
    Manifest,
    Overlay,
    PackagePolicy,
    Resolve,
    Source,
    TargetSpec,
)
from envbundle.spec.prefix import check_prefix
from envbundle.spec.target import Arch, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .assemble import Plan

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What the environment runs on: ``3.N``, machine, glibc (``2.N``), GPU archs, driver, full version."""

    python: str
    machine: str
    glibc: str
    version: str
    gpus: tuple[str, ...] = ()
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What goes into the manifest beside the files. ``base`` is the manifest the environment came from."""

    name: str
    prefix: str
    machinery: Machinery
    archs: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    indexes: tuple[IndexSource, ...] = ()
    no_index: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    invariants: tuple[Invariant, ...] = ()
    checks: tuple[Check, ...] = ()
    results: tuple[tuple[str, bool], ...] = ()
    base: Manifest | None = None


def manifest_of(plan: Plan, facts: Facts) -> Manifest:
    """Return the manifest; its requirements are in ``requirements.txt`` beside it."""
    machinery, base = facts.machinery, facts.base
    resolve = Resolve(
        requirement_files=(REQUIREMENTS,),
        find_links=facts.find_links,
        indexes=facts.indexes or (base.resolve.indexes if base is not None else ()),
        no_index=facts.no_index,
        complete=True,
    )
    if resolve.no_index:
        resolve = replace(resolve, indexes=())
    if base is not None and base.resolve.sources and not resolve.no_index:
        resolve = replace(resolve, sources=base.resolve.sources)
    source = Source(
        gpus=machinery.gpus,
        driver=machinery.driver,
        glibc=machinery.glibc,
        python=machinery.version,
        checks=facts.results or (base.source.checks if base is not None and base.source is not None else ()),
    )
    made = Manifest(
        name=facts.name,
        version="1",
        python=machinery.python,
        resolve=resolve,
        targets=_targets(facts),
        overlays=tuple(
            Overlay(
                distribution=name, path=f"overlays/{name}", base=overlay.base, remove=tuple(overlay.remove)
            )
            for name, overlay in sorted(plan.overlays.items())
        ),
        packages=_packages(plan, base),
        layout=Layout(prefix=_prefix(facts.prefix)),
        invariants=facts.invariants,
        environment=tuple(sorted(facts.environment.items())),
        checks=facts.checks,
        source=source,
    )
    return made if base is None else _upon(made, base)


def _upon(made: Manifest, base: Manifest) -> Manifest:
    """Keep of the manifest that the environment came from whatever does not describe its files."""
    seen = {(one.kind, one.fields) for one in base.invariants}
    return replace(
        made,
        name=base.name,
        version=base.version,
        serial=base.serial,
        layout=replace(base.layout, prefix=made.layout.prefix),
        invariants=(*base.invariants, *(i for i in made.invariants if (i.kind, i.fields) not in seen)),
        environment=tuple(sorted({**dict(base.environment), **dict(made.environment)}.items())),
        checks=tuple(dict.fromkeys((*base.checks, *made.checks))),
        groups=base.groups,
    )


def bundle_name(text: str) -> str:
    """Return a folder's name as a bundle may be named."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64].rstrip("-._")
    return plain or "captured"


def _prefix(text: str) -> str | None:
    try:
        return check_prefix(text, subject="prefix")
    except EnvbundleError:
        return None


def _targets(facts: Facts) -> tuple[TargetSpec, ...]:
    machinery, base = facts.machinery, facts.base
    if base is not None and not facts.archs:
        return tuple(
            replace(spec, resolve=Resolve(), packages=_without_build(spec.packages)) for spec in base.targets
        )
    names = facts.archs or machinery.gpus or ("none",)
    return tuple(TargetSpec(target=_target(name, machinery)) for name in dict.fromkeys(names))


def _target(name: str, machinery: Machinery) -> Target:
    try:
        gpus = () if name == "none" else (Arch.parse(name),)
    except EnvbundleError as fault:
        raise UserInputError(
            fault.code, "--arch", expected=fault.expected, found=fault.found, hint="write it as sm_103"
        ) from fault
    if gpus and gpus[0].suffix:
        raise UserInputError(
            "E-VALUE",
            "--arch",
            expected=f"sm_{gpus[0].number}",
            found=name,
            hint="a suffix names code, not a GPU",
        )
    return Target(
        name="cpu" if name == "none" else name,
        gpus=gpus,
        python=machinery.python,
        platform=f"{machinery.machine}-manylinux_{machinery.glibc.replace('.', '_')}",
        glibc=machinery.glibc,
    )


def _without_build(
    packages: Sequence[tuple[str, PackagePolicy]],
) -> tuple[tuple[str, PackagePolicy], ...]:
    return tuple((name, replace(policy, build=None, winner=())) for name, policy in packages)


def _packages(plan: Plan, base: Manifest | None) -> tuple[tuple[str, PackagePolicy], ...]:
    found = dict(_without_build(base.packages)) if base is not None else {}
    for name, paths in plan.winners.items():
        found[name] = replace(found.get(name, PackagePolicy()), winner=tuple(sorted(paths)))
    empty = PackagePolicy()
    return tuple(sorted((name, policy) for name, policy in found.items() if policy != empty))
