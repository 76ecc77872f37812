"""What generations keep for later installs: layer lists, and so what will not have to be written again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.store.read import parse_layer, read_plain

from .layout import LAYERS
from .locking import names
from .plan import is_shared

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.layer import Layer
    from envbundle.store.protocol import Store

    from .layout import Prefix
    from .options import InstallOptions


def read_layers(descriptor: Descriptor, store: Store, prefix: Prefix) -> list[Layer]:
    """Return the layers, from lists that a generation kept where there is one, else from the store."""
    kept = [prefix.home / name / LAYERS for name in reversed(names(prefix))] if prefix.home.is_dir() else []
    layers = []
    for ref in descriptor.content.layers:
        data = next(
            (found for folder in kept if (found := _kept_list(folder, ref.list.hex, ref.list_size))), None
        )
        if data is not None:
            try:
                layers.append(parse_layer(data, descriptor, ref))
                continue
            except IntegrityError:
                pass  # changed on this disk: the store has the right one
        layers.append(parse_layer(read_plain(store, descriptor, ref.list), descriptor, ref))
    return layers


def reusable(descriptor: Descriptor, prefix: Prefix, options: InstallOptions) -> int:
    """Return the bytes that will take no space, because files of other generations are linked to."""
    there = names(prefix) if prefix.home.is_dir() else []
    if any(name.endswith(f"-{descriptor.content_id.short}") for name in there):
        return sum(ref.bytes for ref in descriptor.content.layers)
    if options.reuse == "copy":
        return 0
    kept = {path.stem for name in there for path in (prefix.home / name / LAYERS).glob("*.json")}
    return sum(
        ref.bytes
        for index, ref in enumerate(descriptor.content.layers)
        if ref.list.hex in kept and is_shared(descriptor.content, index)
    )


def _kept_list(folder: Path, name: str, size: int) -> bytes | None:
    path = folder / f"{name}.json"
    try:
        if path.stat().st_size != size:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return data if Digest.of(data).hex == name else None
