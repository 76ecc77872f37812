"""Collecting what no tag reaches: blobs of removed or replaced bundles, and leftovers of interrupted runs.

* Nothing is removed unless every manifest that the index names could be read: damage is no permission.
* Nobody else may be writing: a pack or copy in progress has blobs that no tag names yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, FormatError

from .bundle import read_image
from .oci import MEDIA_MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.spec.digest import Digest

    from .protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, or with ``dry_run`` would be: ``blobs`` of ``bytes`` in all, and ``leftovers``."""

    blobs: tuple[Digest, ...]
    bytes: int
    leftovers: tuple[str, ...]


def reachable(store: Store) -> frozenset[Digest]:
    """Return every blob that the index reaches; raises ``IntegrityError`` where that cannot be known."""
    found: set[Digest] = set()
    for entry in store.tags():
        if entry.media != MEDIA_MANIFEST:
            raise FormatError(
                "E-STORE-INDEX",
                f"{store.name}: {entry.tag}",
                expected=MEDIA_MANIFEST,
                found=repr(entry.media[:100]),
                hint="envbundle did not write this entry: keep it in a store of its own",
            )
        found.add(entry.manifest)
        found.update(item.digest for item in read_image(store, entry).items())
    return frozenset(found)


def collect(store: Store, *, dry_run: bool = False) -> Collected:
    """Remove what no tag reaches and return it. Raises ``HostError`` (E-STORE-BUSY) while somebody writes."""
    with store.alone():
        kept = reachable(store)
        dead = tuple((digest, size) for digest, size in store.blobs() if digest not in kept)
        leftovers = store.leftovers()
        if not dry_run:
            for digest, _ in dead:
                store.remove(digest)
            store.sweep(leftovers)
    return Collected(
        blobs=tuple(d for d, _ in dead), bytes=sum(size for _, size in dead), leftovers=leftovers
    )


def take_back(store: Store, blobs: Iterable[Digest]) -> None:
    """Remove those of ``blobs`` that no tag reaches, after the run that put them was refused.

    Nothing is removed while somebody else writes (they may count on a blob) or where the index is damaged;
    ``collect`` finds the rest later.
    """
    try:
        with store.alone():
            for digest in set(blobs) - reachable(store):
                store.remove(digest)
    except EnvbundleError:
        return
