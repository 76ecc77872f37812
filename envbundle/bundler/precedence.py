"""Who provides a path that several layers claim: decided here, applied by the installer without deciding.

* Paths are compared as installed, relative to the prefix: two schemes can lead to one place.
* A distribution claims a path with its overlay's bytes where that has the path, else with its wheel's. Among
  distributions the lock's winner comes first; else the bytes must be equal.
* A path that an overlay removes is nobody's, unless another layer still claims it.
* A path cannot be a file and a folder, and what envbundle itself writes cannot be claimed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import VerdictError
from envbundle.spec.finding import Finding
from envbundle.spec.layer import installed_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.spec.layer import Layer, LayerEntry

_RESERVED = re.compile(
    r"""
      ( pyvenv\.cfg | \.envbundle | lib64 | env\.(sh|conf)
      | bin/ python[w]? ([0-9]+ (\.[0-9]+)* [a-z]?)?
      | bin/ [Aa]ctivate (\.[A-Za-z0-9]+)?
      | lib/ python3\.[0-9]+ / site-packages / ( _envbundle_[^/]* | [^/]* envbundle\.pth )
      ) (/.*)?
    | bin | lib | include | lib/ python3\.[0-9]+ (/ site-packages)?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Claim:
    layer: int
    entry: LayerEntry

    @property
    def bytes(self) -> tuple[str, str]:
        """What must be equal for two claims to be no conflict."""
        entry = self.entry
        if entry.type == "file":
            return "file", str(entry.sha256)
        return entry.type, entry.link or f"{entry.reference} gui={entry.gui}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """``provides`` as a descriptor holds it, and what is worth a person's look (W-CASE)."""

    provides: dict[str, int | None]
    findings: tuple[Finding, ...] = ()


def decide(layers: Sequence[Layer], *, python: str, winners: Mapping[str, str]) -> Precedence:
    """Return who provides each installed path that more than one layer claims or an overlay removes.

    ``layers`` stand in the descriptor's order; ``python`` is ``3.N``; ``winners`` maps an installed path to
    the distribution that the lock lets win. Raises ``VerdictError`` with every conflict found: E-OVERLAP
    (different bytes and no winner; a file that another layer needs as a folder), E-RESERVED-PATH.
    """
    claims: dict[str, list[_Claim]] = {}
    for index, layer in enumerate(layers):
        for entry in layer.entries:
            path = installed_path(entry.path, python=python, distribution=layer.distribution)
            claims.setdefault(path, []).append(_Claim(index, entry))
    removed = _removals(layers, python)
    findings: list[Finding] = []
    provides: dict[str, int | None] = {}
    provided: dict[str, _Claim] = {}
    for path in sorted(claims, key=str.encode):
        held = [claim for claim in claims[path] if (claim.layer, path) not in removed]
        if not held:
            provides[path] = None
            continue
        if _RESERVED.fullmatch(path):
            findings.append(_reserved(path, layers[held[0].layer]))
            continue
        if len({claim.layer for claim in claims[path]}) < len(claims[path]):
            findings.append(_twice(path, claims[path], layers))
            continue
        winner, conflict = _choose(path, held, layers, winners)
        if conflict is not None:
            findings.append(conflict)
        provided[path] = winner
        if len(claims[path]) > 1:
            provides[path] = winner.layer
    findings += _folders(provided, layers)
    if findings:
        raise VerdictError.of(findings)
    return Precedence(provides=provides, findings=tuple(_twins(provided)))


def _removals(layers: Sequence[Layer], python: str) -> set[tuple[int, str]]:
    """Return (layer, installed path) of every claim that an overlay of the same distribution takes away."""
    bases = {layer.distribution: index for index, layer in enumerate(layers) if layer.kind == "distribution"}
    return {
        (bases[layer.distribution], installed_path(item.path, python=python, distribution=layer.distribution))
        for layer in layers
        if layer.kind == "overlay" and layer.distribution in bases
        for item in layer.removes
    }


def _choose(
    path: str, held: list[_Claim], layers: Sequence[Layer], winners: Mapping[str, str]
) -> tuple[_Claim, Finding | None]:
    patched = {layers[claim.layer].distribution for claim in held if layers[claim.layer].kind == "overlay"}
    candidates = [
        claim
        for claim in held
        if layers[claim.layer].kind == "overlay" or layers[claim.layer].distribution not in patched
    ]
    named = winners.get(path)
    chosen = [claim for claim in candidates if layers[claim.layer].distribution == named]
    if not chosen:
        chosen = candidates
    if len({claim.bytes for claim in chosen}) > 1:
        return chosen[0], _overlap(path, chosen, layers)
    # Equal bytes: the first, but one that may be executed before one that may not.
    return next((claim for claim in chosen if claim.entry.mode & 0o111), chosen[0]), None


def _overlap(path: str, claims: list[_Claim], layers: Sequence[Layer]) -> Finding:
    found = ", ".join(f"{_name(layers[claim.layer])} with {claim.bytes[1]}" for claim in claims)
    winner = layers[claims[0].layer].distribution
    return Finding(
        code="E-OVERLAP",
        severity="error",
        subject=path,
        expected="one distribution's bytes, or equal bytes",
        found=found,
        hint=f'name who wins, for instance [package.{winner}] winner = ["{path}"], and lock again',
    )


def _twice(path: str, claims: list[_Claim], layers: Sequence[Layer]) -> Finding:
    return Finding(
        code="E-OVERLAP",
        severity="error",
        subject=path,
        expected="one entry of a layer for it",
        found=", ".join(f"{_name(layers[claim.layer])}: {claim.entry.path}" for claim in claims),
        hint="the wheel has two files for one place: have it rebuilt, or leave the distribution out",
    )


def _reserved(path: str, layer: Layer) -> Finding:
    return Finding(
        code="E-RESERVED-PATH",
        severity="error",
        subject=path,
        expected="a path that the environment itself does not need",
        found=f"{_name(layer)} installs it",
        hint="remove the file by an overlay, or leave the distribution out",
    )


def _folders(provided: Mapping[str, _Claim], layers: Sequence[Layer]) -> Iterable[Finding]:
    seen: set[str] = set()
    for path, claim in provided.items():
        folder = path.rpartition("/")[0]
        while folder and folder not in seen:
            seen.add(folder)
            if folder in provided:
                yield Finding(
                    code="E-OVERLAP",
                    severity="error",
                    subject=folder,
                    expected="a file or a folder",
                    found=f"{_name(layers[provided[folder].layer])} has a file there, "
                    f"{_name(layers[claim.layer])} has {path}",
                    hint="remove one of them by an overlay",
                )
            folder = folder.rpartition("/")[0]


def _twins(provided: Iterable[str]) -> Iterable[Finding]:
    folded: dict[str, str] = {}
    for path in provided:
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            yield Finding(
                code="W-CASE",
                severity="warning",
                subject=path,
                expected="names that differ by more than case",
                found=other,
                hint="a file system that folds case (a Mac's, most Windows shares) can hold only one of them",
            )


def _name(layer: Layer) -> str:
    kind = "overlay of " if layer.kind == "overlay" else ""
    return f"{kind}{layer.distribution} {layer.version}"
