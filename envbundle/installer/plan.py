"""Which layer's entry lands at which path: decided before a byte is written.

* A path claimed by several layers goes to the layer that ``content.provides`` names; the installer applies
  that and never decides (E-PROVIDES where it is not named, or named wrongly).
* No entry may be written through another one: a file or link where another entry needs a folder is refused
  (E-PATH), and so are the paths that only envbundle writes.
* All of it holds however good the signature is: names in a bundle are hostile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.spec.layer import installed_path
from envbundle.spec.names import RelPath

from .layout import is_reserved, own_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envbundle.spec.descriptor import Content
    from envbundle.spec.layer import Layer, LayerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``places[path] = (layer index, entry)`` for every path that a layer provides, prefix-relative.

    ``claims`` holds the contested paths that are installed, with all layers that claim them.
    """

    python: str
    places: dict[str, tuple[int, LayerEntry]]
    claims: dict[str, tuple[int, ...]]

    @property
    def bytes(self) -> int:
        """The sum of the sizes of all files."""
        return sum(entry.size for _, entry in self.places.values())


def plan(content: Content, layers: Sequence[Layer]) -> Plan:
    """Return where every entry of ``layers`` (in the content's order) lands; raises ``IntegrityError``."""
    python = content.target.python
    places: dict[str, tuple[int, LayerEntry]] = {}
    claims: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for entry in layer.entries:
            path = installed_path(entry.path, python=python, distribution=layer.distribution)
            before = places.get(path)
            if before is None and path not in content.provides:
                places[RelPath(path)] = (index, entry)
                continue
            claimed = claims.setdefault(path, [before[0]] if before else [])
            claimed.append(index)
            if path not in content.provides:
                raise _unprovided(path, claimed, layers)
            if content.provides[path] == index:
                if before is not None and before[0] == index:
                    raise _unprovided(path, claimed, layers)  # two schemes of one layer
                places[RelPath(path)] = (index, entry)
    for path, provider in content.provides.items():
        if provider is not None and path not in places:
            raise IntegrityError(
                "E-PROVIDES",
                ascii(path),
                expected=f"layer {provider} ({layers[provider].distribution}) to hold it",
                found="no such entry",
                hint="the bundle contradicts itself: pack it again",
            )
    _check_removals(content, layers)
    _check_nesting(places, python)
    installed = {path: tuple(found) for path, found in claims.items() if path in places}
    return Plan(python=python, places=places, claims=installed)


def is_shared(content: Content, index: int) -> bool:
    """Say whether a layer's files may be hard links: a published wheel that nothing was laid over."""
    ref = content.layers[index]
    patched = any(
        other.kind == "overlay" and other.distribution == ref.distribution for other in content.layers
    )
    return ref.kind == "distribution" and ref.origin == "published" and not patched


def _unprovided(path: str, claimed: Sequence[int], layers: Sequence[Layer]) -> IntegrityError:
    names = sorted({layers[index].distribution for index in claimed})
    return IntegrityError(
        "E-PROVIDES",
        ascii(path),
        expected="the bundle to name one layer that provides it",
        found=f"claims by {', '.join(names)}",
        hint="the bundle contradicts itself: pack it again",
    )


def _check_removals(content: Content, layers: Sequence[Layer]) -> None:
    """Demand that an overlay's removals are in ``provides``, or removed files would be installed."""
    for index, layer in enumerate(layers):
        for item in layer.removes:
            path = installed_path(item.path, python=content.target.python, distribution=layer.distribution)
            if path not in content.provides:
                raise IntegrityError(
                    "E-PROVIDES",
                    ascii(path),
                    expected=f"the bundle to say that layer {index} removes it",
                    found="nothing",
                    hint="the bundle contradicts itself: pack it again",
                )


def _check_nesting(places: dict[str, tuple[int, LayerEntry]], python: str) -> None:
    folders: set[str] = set(own_folders(python))
    for path in places:
        if is_reserved(path, python):
            raise _refused(path, "a path that a bundle may provide", "one that only envbundle writes")
        parent = path.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    for path, (_, entry) in places.items():
        if path in folders or path.endswith("/__pycache__"):
            raise _refused(path, "a folder, because others lie below it", f"a {entry.type}")
    for path, (_, entry) in places.items():
        if entry.type == "symlink":
            _check_way(path, entry.link, places)


def _check_way(path: str, link: str, places: dict[str, tuple[int, LayerEntry]]) -> None:
    """Refuse a link that leads through another one: contained text says nothing of where it ends then."""
    way = path.split("/")[:-1]
    for part in link.split("/")[:-1]:
        if part == "..":
            if not way:
                raise _refused(path, "a link that stays inside", ascii(link)[:200])
            way.pop()
        elif part not in ("", "."):
            way.append(part)
            through = places.get("/".join(way))
            if through is not None and through[1].type == "symlink":
                raise _refused(path, "a link that passes through folders alone", ascii(link)[:200])


def _refused(path: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        "E-PATH", ascii(path), expected=expected, found=found, hint="do not use this bundle"
    )
