"""What envbundle itself left in a generation that it installed: the receipt, the layers, lock and manifest.

An environment with these is captured against them and needs no index: every layer of a published wheel lists
the digests of all its files, also of those that an overlay hides.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError
from envbundle.host.file_urls import path_of_file_url
from envbundle.host.files import read_bounded
from envbundle.spec.descriptor import MAX_DESCRIPTOR, Descriptor
from envbundle.spec.digest import Digest
from envbundle.spec.layer import Layer
from envbundle.spec.lock_text import MAX_LOCK, parse_lock
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.receipt import RECEIPT_FOLDER, Receipt

from .published import PublishedWheel, installed_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.spec.descriptor import LayerRef
    from envbundle.spec.layer import LayerEntry
    from envbundle.spec.lock import Lock, LockedWheel
    from envbundle.spec.manifest import Manifest

_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A generation's own documents.

    ``wheels`` are the published wheels by distribution, ``made`` those that were made from a disk;
    ``manifest`` is the one that the bundle was made from.
    """

    receipt: Receipt
    manifest: Manifest
    lock: Lock
    wheels: Mapping[str, PublishedWheel]
    made: Mapping[str, PublishedWheel]
    layers: tuple[tuple[LayerRef, Layer], ...]

    @property
    def prefix(self) -> str:
        """The prefix that people use; the scripts name the generation below it."""
        return self.receipt.prefix

    def restored(self, digests: Mapping[str, str]) -> dict[str, bytes]:
        """Return the packed bytes of files that a fixer changed and nobody since; ``digests``: the disk's."""
        found = {}
        for file in self.receipt.files:
            if file.packed is None or not file.fixer or file.sha256 is None:
                continue
            if digests.get(file.path) != file.sha256.hex or (file.source or 0) >= len(self.layers):
                continue
            for entry in self.layers[file.source or 0][1].entries:
                if entry.inline is not None and entry.sha256 == file.packed:
                    found[file.path] = entry.inline
        return found

    def written(self, digests: Mapping[str, str]) -> frozenset[str]:
        """Return the scripts of entry points that envbundle wrote and nobody changed."""
        return frozenset(
            file.path
            for file in self.receipt.files
            if file.fixer == "entry-point"
            and file.sha256 is not None
            and digests.get(file.path) == file.sha256.hex
        )


def read_own(root: str) -> Own | None:
    """Return what envbundle left in the generation at ``root``; None where not all of it is there."""
    folder = Path(root, RECEIPT_FOLDER)
    if not (folder / "receipt.json").is_file():
        return None
    try:
        receipt = Receipt.from_bytes(read_bounded(folder / "receipt.json", _MAX))
        descriptor = Descriptor.from_bytes(read_bounded(folder / "descriptor.json", MAX_DESCRIPTOR))
        lock = parse_lock(read_bounded(folder / "pylock.toml", MAX_LOCK).decode(), filename="pylock.toml")
        manifest = parse_manifest(read_bounded(folder / "envbundle.toml", MAX_LOCK).decode())
        layers = tuple((ref, _layer(folder, ref)) for ref in descriptor.content.layers)
    except (EnvbundleError, UnicodeDecodeError):
        return None
    urls = {package.name: package.wheel for package in lock.packages}
    wheels: dict[str, PublishedWheel] = {}
    made: dict[str, PublishedWheel] = {}
    for ref, layer in layers:
        wheel = urls.get(ref.distribution)
        if ref.kind != "distribution" or layer.wheel is None or wheel is None:
            continue
        rows = [[e.path, _member(e), e.sha256.hex, e.size] for e in layer.entries if e.sha256 is not None]
        known = wheels if ref.origin == "published" and _can_be_had(wheel) else made
        known[ref.distribution] = PublishedWheel(
            filename=layer.wheel.filename,
            sha256=layer.wheel.sha256.hex,
            size=layer.wheel.size,
            files=installed_files(rows, python=receipt.target.python, distribution=ref.distribution),
            scripts={e.relative: e.reference for e in layer.entries if e.type == "entry-point"},
            url=wheel.url or "",
            index=wheel.index,
        )
    return Own(receipt=receipt, manifest=manifest, lock=lock, wheels=wheels, made=made, layers=layers)


def _can_be_had(wheel: LockedWheel) -> bool:
    """Say whether a published wheel can be locked again from here: by URL, or from its find-links folder."""
    if wheel.url is None:
        return False
    return not wheel.url.startswith("file:") or path_of_file_url(wheel.url).is_file()


def _member(entry: LayerEntry) -> str:
    """Return the name that a file of a wheel's root has in it, '' where that is not known."""
    return entry.relative if entry.scheme in ("purelib", "platlib") else ""


def _layer(folder: Path, ref: LayerRef) -> Layer:
    import json  # noqa: PLC0415

    data = read_bounded(folder / "layers" / f"{ref.list.hex}.json", _MAX)
    if Digest.of(data) != ref.list:
        raise EnvbundleError("E-FORMAT", os.fspath(folder), expected=str(ref.list))
    return Layer.from_dict(json.loads(data))
