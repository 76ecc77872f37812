"""What a fixer is given and what it returns.

A fixer changes one kind of file for the place it is installed at; what no fixer is listed for stays
byte-equal to what was packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from envbundle.spec.finding import Finding
    from envbundle.spec.layer import LayerEntry
    from envbundle.spec.receipt import InstalledFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One file to be fixed: its installed path (prefix-relative), its entry and layer, its packed bytes."""

    path: str
    entry: LayerEntry
    layer: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it is installed.

    ``interpreter`` is the absolute path of the generation's ``bin/python``; ``old_prefixes`` are absolute
    paths that the environment had before; ``site`` is the prefix-relative site-packages; ``files_of`` returns
    what is installed for a layer's distribution (complete only for the fixers of ``LATE``).
    """

    interpreter: str
    old_prefixes: tuple[str, ...]
    site: str
    files_of: Callable[[int], Iterable[InstalledFile]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The bytes to install and what a person should know about the change."""

    data: bytes
    findings: tuple[Finding, ...] = ()


class Fixer(Protocol):
    """Changes one file."""

    def __call__(self, subject: Subject, place: Place) -> Fixed:
        """Return the bytes for ``place``; raises ``IntegrityError`` for what cannot be installed."""
