"""Symbolic links of an environment: a wheel holds none, so what they lead to inside is carried instead."""

# ruff: noqa: PTH118 - paths here are text
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .inventory import Inventory


def follow_links(inventory: Inventory) -> tuple[Finding, ...]:
    """Add to the files what links inside the environment lead to; say what leads elsewhere."""
    findings = []
    for path, text in sorted(inventory.links.items()):
        place = os.path.realpath(os.path.join(inventory.root, path))
        inside = place[len(inventory.root) + 1 :] if place.startswith(inventory.root + "/") else None
        if inside is None:
            findings.append(_elsewhere(path, text, there=os.path.lexists(place)))
        elif not _add(inventory, path, inside):
            findings.append(_elsewhere(path, text, there=False))
        else:
            findings.append(
                Finding(
                    code="N-CAPTURE-LINK",
                    severity="note",
                    subject=path,
                    found=f"a link to {text}",
                    hint="carried as a copy of what it leads to",
                )
            )
    return tuple(findings)


def _add(inventory: Inventory, path: str, inside: str) -> bool:
    file = inventory.files.get(inside)
    if file is not None:
        inventory.files.setdefault(path, file._replace(path=path))
        return True
    if path.startswith(inside + "/"):
        return False  # a folder that leads into itself
    below = list(_below(inventory.files, inside + "/"))
    for name in below:
        target = inventory.files[name]
        inventory.files.setdefault(
            path + name[len(inside) :], target._replace(path=path + name[len(inside) :])
        )
    return bool(below)


def _below(names: Iterable[str], folder: str) -> Iterable[str]:
    return (name for name in names if name.startswith(folder))


def _elsewhere(path: str, text: str, *, there: bool) -> Finding:
    line = f'[[invariant]] kind = "path" path = "{text}"' if text.startswith("/") else ""
    return Finding(
        code="W-CAPTURE-LINK",
        severity="warning",
        subject=path,
        expected="a link that stays inside the environment",
        found=f"a link to {text}" + ("" if there else ", where nothing is that can be carried"),
        hint="not carried: put the files in its place, or demand them of the target"
        + (f": {line}" if line else ""),
    )
