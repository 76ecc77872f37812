"""What a manifest may not say at once: E-CONTRADICTION, one small function a rule.

The rules see a draft whose faulty parts read as empty; each looks only at parts without faults. What needs
more than the manifest's own text (a package that is not locked, a missing file) is found by those who look.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from .manifest_reader import did_you_mean
from .text_checks import is_file, parse_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from packaging.requirements import Requirement

    from .manifest import IndexSource, Manifest, Resolve, TargetSpec
    from .manifest_reader import Faults
    from .toml_positions import KeyPath

_CODE = "E-CONTRADICTION"
_NEEDS_GPU_CODE = ("complete", "runtime-jit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A manifest as far as it could be read.

    ``packages_at`` holds the place of each package table by (target's name or "", normalised distribution).
    """

    manifest: Manifest
    packages_at: dict[tuple[str, str], KeyPath]


def find_contradictions(draft: Draft, faults: Faults) -> None:
    """Add to ``faults`` whatever in ``draft`` cannot hold together."""
    for rule in RULES:
        rule(draft, faults)


def is_exact_pin(requirement: Requirement) -> bool:
    """Say whether a requirement leaves no choice: a direct reference, ``===``, or ``==`` without a star."""
    return requirement.url is not None or any(
        spec.operator == "===" or (spec.operator == "==" and not spec.version.endswith(".*"))
        for spec in requirement.specifier
    )


def _target_names(draft: Draft, faults: Faults) -> None:
    seen: dict[str, str] = {}
    for spec in draft.manifest.targets:
        name = spec.target.name
        plain = re.sub(r"[-_]+", "-", name)
        if plain in seen:
            faults.add(
                _CODE,
                ("target", name),
                expected="names that differ in more than - and _",
                found=f"also {seen[plain]}",
                hint="the names of their locks would be taken for the same: rename one",
            )
        seen.setdefault(plain, name)


def _gpu_vendors(draft: Draft, faults: Faults) -> None:
    for spec in draft.manifest.targets:
        if len({gpu.vendor for gpu in spec.target.gpus}) > 1:
            faults.add(
                _CODE,
                ("target", spec.target.name, "gpu"),
                expected="GPUs of one vendor",
                found=", ".join(map(str, spec.target.gpus)),
                hint="make it two targets",
            )


def _gpu_policies(draft: Draft, faults: Faults) -> None:
    """GPU code is demanded of a package, but no target that the demand is for has a GPU."""
    targets = draft.manifest.targets
    with_gpu = [
        t.target.name for t in targets if t.target.gpus or not faults.clean(("target", t.target.name, "gpu"))
    ]
    levels = [("", draft.manifest.packages, bool(with_gpu) or not targets)]
    levels += [(t.target.name, t.packages, t.target.name in with_gpu) for t in targets]
    for level, packages, has_gpu in levels:
        for name, policy in packages:
            if policy.coverage in _NEEDS_GPU_CODE and not has_gpu:
                faults.add(
                    _CODE,
                    (*draft.packages_at[level, name], "coverage"),
                    expected="a target with a GPU",
                    found=f'coverage = "{policy.coverage}" where gpu = "none"',
                    hint="no GPU runs no GPU code: drop the policy, or give the target its GPU",
                )


def _resolve_places(manifest: Manifest) -> list[tuple[KeyPath, Resolve]]:
    places: list[tuple[KeyPath, Resolve]] = [(("resolve",), manifest.resolve)]
    return places + [(("target", spec.target.name), spec.resolve) for spec in manifest.targets]


def _requirements(draft: Draft, faults: Faults) -> Iterator[tuple[KeyPath, str, Requirement]]:
    """Yield (place, target's name or "", requirement) of all that are well-formed."""
    for place, resolve in _resolve_places(draft.manifest):
        at = (*place, "requirements")
        whole = faults.clean(at)  # an index means something only where none was left out
        for number, text in enumerate(resolve.requirements):
            yield (
                ((*at, number) if whole else at),
                "" if len(place) == 1 else str(place[1]),
                parse_requirement(text),
            )


def _complete(draft: Draft, faults: Faults) -> None:
    if not draft.manifest.resolve.complete:
        return
    for at, _, requirement in _requirements(draft, faults):
        if not is_exact_pin(requirement):
            faults.add(
                _CODE,
                at,
                expected="an exact pin, since resolve.complete = true",
                found=f"`{requirement}`",
                hint=f"write {requirement.name}==VERSION, or complete = false",
            )


def _pins(draft: Draft, faults: Faults) -> None:
    """Two exact pins of one distribution without markers; a pin that an overlay's base contradicts."""
    pins: dict[tuple[str, str], str] = {}
    versions: dict[str, list[Requirement]] = {}
    for at, target, requirement in _requirements(draft, faults):
        if requirement.url is not None or requirement.marker is not None or not is_exact_pin(requirement):
            continue
        name = canonicalize_name(requirement.name)
        versions.setdefault(name, []).append(requirement)
        said = str(requirement.specifier)
        other = pins.get((target, name), pins.get(("", name), said))
        if other != said:
            faults.add(_CODE, at, expected=f"one pin of {name}", found=f"{said} and {other}")
        pins.setdefault((target, name), said)
    for number, overlay in enumerate(draft.manifest.overlays):
        known = versions.get(overlay.distribution, [])
        if overlay.base is None or not known:
            continue
        if not any(one.specifier.contains(Version(overlay.base), prereleases=True) for one in known):
            faults.add(
                _CODE,
                ("overlay", number, "base"),
                expected=f"the version pinned: {known[0].specifier}",
                found=overlay.base,
                hint="an overlay is made for the files of one version",
            )


def _no_index(draft: Draft, faults: Faults) -> None:
    manifest = draft.manifest
    if not manifest.resolve.no_index:
        return
    at: KeyPath = ("resolve", "no-index")
    for place, resolve in _resolve_places(manifest):
        for number, index in enumerate(resolve.indexes):
            faults.add(
                _CODE,
                (*place, "index", number),
                expected="no index, since resolve.no-index = true",
                found=f"the index {index.name}",
            )
    if manifest.resolve.find_links or not faults.clean(("resolve", "find-links")):
        return
    served = {spec.target.name for spec in manifest.targets if spec.resolve.find_links}
    for _, target, requirement in _requirements(draft, faults):
        needy = [
            s.target.name
            for s in manifest.targets
            if s.target.name not in served and target in ("", s.target.name)
        ]
        if requirement.url is None and needy:
            faults.add(
                _CODE,
                at,
                expected="find-links, or direct references alone (name @ path)",
                found=f"`{requirement}` and nowhere to find it",
                hint="add find-links = [...], or drop no-index",
            )
            return


def _indexes(draft: Draft, faults: Faults) -> None:
    manifest = draft.manifest
    common = [(("resolve", "index", i), index) for i, index in enumerate(manifest.resolve.indexes)]
    for spec in manifest.targets or (None,):
        own = _own_indexes(spec)
        names: set[str] = set()
        default = ""
        for at, index in (*common, *own):
            if index.name and index.name in names:
                faults.add(
                    _CODE, (*at, "name"), expected="each name once", found=f'"{index.name}" a second time'
                )
            names.add(index.name)
            if index.default and index.explicit:
                faults.add(
                    _CODE,
                    at,
                    expected="default or explicit",
                    found="both",
                    hint="a default index serves all packages, an explicit one those that `from` names",
                )
            if index.default and default:
                faults.add(_CODE, (*at, "default"), expected="one default index", found=f'"{default}" is one')
            default = default or (index.name if index.default else "")
        _from(draft, faults, spec, names)


def _own_indexes(spec: TargetSpec | None) -> list[tuple[KeyPath, IndexSource]]:
    if spec is None:
        return []
    return [(("target", spec.target.name, "index", i), index) for i, index in enumerate(spec.resolve.indexes)]


def _from(draft: Draft, faults: Faults, spec: TargetSpec | None, names: set[str]) -> None:
    """``from`` sends a distribution to an index that is not there."""
    places: list[tuple[KeyPath, Resolve]] = [(("resolve", "from"), draft.manifest.resolve)]
    if spec is not None:
        places.append((("target", spec.target.name, "from"), spec.resolve))
    for at, resolve in places:
        for distribution, index in resolve.sources:
            if index not in names:
                listed = ", ".join(sorted(name for name in names if name)) or "none is named"
                faults.add(
                    _CODE,
                    (*at, distribution),
                    expected=f"the name of an index: {listed}",
                    found=f'"{index}"',
                    hint=did_you_mean(index, names) or "add [[resolve.index]] with that name",
                )


def _overlays(draft: Draft, faults: Faults) -> None:
    seen: set[str] = set()
    for number, overlay in enumerate(draft.manifest.overlays):
        at: KeyPath = ("overlay", number)
        if overlay.distribution and overlay.distribution in seen:
            faults.add(
                _CODE,
                (*at, "distribution"),
                expected="one overlay a distribution",
                found=f"a second one of {overlay.distribution}",
                hint="put the files of both into one folder",
            )
        seen.add(overlay.distribution)
        if overlay.mode == "replace" and overlay.remove:
            faults.add(
                _CODE,
                (*at, "remove"),
                expected='nothing to remove, since mode = "replace"',
                found=f"{len(overlay.remove)} paths",
                hint="what the folder does not hold is gone anyway",
            )


def _winners(draft: Draft, faults: Faults) -> None:
    for spec in draft.manifest.targets:
        claimed: dict[str, str] = {}
        for name, policy in draft.manifest.policies(spec.target.name).items():
            for path in policy.winner:
                if path in claimed:
                    at = draft.packages_at.get((spec.target.name, name)) or draft.packages_at["", name]
                    faults.add(
                        _CODE,
                        (*at, "winner"),
                        expected="one winner a path",
                        found=f"{path} is also {claimed[path]}'s",
                        hint="where targets differ, name the winner under each [target.NAME.package.NAME]",
                    )
                claimed.setdefault(path, name)


def _layout(draft: Draft, faults: Faults) -> None:
    layout = draft.manifest.layout
    if layout.mode == "fixed" and layout.prefix is None and faults.clean(("layout", "prefix")):
        faults.add(
            _CODE,
            ("layout", "mode"),
            expected='prefix = "/..." beside mode = "fixed"',
            found="no prefix",
            hint="a fixed layout lives in one place only: name it",
        )
    if layout.interpreter == "bundled" and layout.interpreter_path is not None:
        faults.add(
            _CODE,
            ("layout", "interpreter-path"),
            expected='none, since interpreter = "bundled"',
            found=layout.interpreter_path,
        )


def _checks(draft: Draft, faults: Faults) -> None:
    for number, check in enumerate(draft.manifest.checks):
        at: KeyPath = ("check", number)
        if faults.clean(at) and bool(check.imports) == bool(check.run):
            found = "both" if check.imports else "neither"
            faults.add(
                _CODE, at, expected="import = [...] or run = [...]", found=found, hint="one check, one thing"
            )


def _constraints(draft: Draft, faults: Faults) -> None:
    """Find constraints that an exact pin without a marker breaks."""
    pinned: dict[str, Requirement] = {}
    for _, target, requirement in _requirements(draft, faults):
        plain = requirement.url is None and requirement.marker is None and is_exact_pin(requirement)
        if plain and target == "":
            pinned[canonicalize_name(requirement.name)] = requirement
    at: KeyPath = ("resolve", "constraints")
    if not faults.clean(at):
        return
    for number, text in enumerate(draft.manifest.resolve.constraints):
        constraint = None if is_file(text) else parse_requirement(text)
        pin = pinned.get(canonicalize_name(constraint.name)) if constraint else None
        if constraint is None or pin is None or constraint.marker is not None:
            continue
        versions = [spec.version for spec in pin.specifier if spec.operator == "=="]
        if versions and not constraint.specifier.contains(versions[0], prereleases=True):
            faults.add(_CODE, (*at, number), expected=f"room for `{pin}`", found=f"`{constraint}`")


RULES: tuple[Callable[[Draft, Faults], None], ...] = (
    _target_names,
    _gpu_vendors,
    _gpu_policies,
    _complete,
    _pins,
    _constraints,
    _no_index,
    _indexes,
    _overlays,
    _winners,
    _layout,
    _checks,
)
