"""The kinds of file that change on the way from the bundle to the disk: one file and one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import direct_url, entry_point, kernelspec, record, script
from .interface import Fixed, Fixer, Place, Subject

if TYPE_CHECKING:
    from envbundle.spec.layer import LayerEntry

FIXERS: dict[str, Fixer] = {
    "direct-url": direct_url.fix,
    "entry-point": entry_point.fix,
    "kernelspec": kernelspec.fix,
    "record": record.fix,
    "script": script.fix,
}
LATE = frozenset(("record",))  # they list the other files, so they come last, and need no packed bytes


def fixer_of(entry: LayerEntry) -> str:
    """Return the key in ``FIXERS`` of the fixer for an entry, '' where its bytes stay as they are."""
    name = entry.type if entry.type == "entry-point" else entry.role if entry.type == "file" else ""
    return name if name in FIXERS else ""


__all__ = ["FIXERS", "LATE", "Fixed", "Fixer", "Place", "Subject", "fixer_of"]
