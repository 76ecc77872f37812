"""The packer's memory: which layer came of which wheel, and which blobs hold it.

* A key names everything that a layer and its blobs depend on: the wheel or overlay by digests, the format of
  layer lists, the rule by which they are made, the codec line (which holds the packing rule).
* An entry starts with the digest of the rest; one that is damaged or cannot be read is as good as none.
* The cache only ever saves work: whether the blobs are still in a store is asked there, each time.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError
from envbundle.host.files import atomic_write, host_errors, read_bounded
from envbundle.spec.canonical import canonical
from envbundle.spec.descriptor import Blob
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import FORMAT, BaseFile, Layer, LayerEntry, Segment, WheelRef

from .draft import LAYER_RULE, MadeLayer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from envbundle.progress import Reporter

_LIMIT = 256 * 1024 * 1024


def layer_key(codec: str, source: Mapping[str, Any]) -> Digest:
    """Return the key of a layer made from ``source`` (JSON that names a wheel or overlay by digests)."""
    return Digest.of(
        canonical({"format": FORMAT, "rule": LAYER_RULE, "codec": codec, "source": dict(source)})
    )


class LayerCache:
    """Finished layers in a folder, one file each. ``folder`` is made when something is kept."""

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        """Use ``folder``; ``reporter`` hears of a cache that cannot be written."""
        self._folder, self._reporter = folder, reporter

    def find(self, key: Digest) -> MadeLayer | None:
        """Return what was kept under ``key``, or None."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            return _read(read_bounded(path, _LIMIT))
        except (EnvbundleError, ValueError) as fault:
            self._reporter.note(f"the packer's cache is damaged and made anew: {path.name}: {fault}")
            return None

    def keep(self, key: Digest, made: MadeLayer) -> None:
        """Remember a finished layer; a cache that cannot be written costs time next time, nothing else."""
        path = self._path(key)
        try:
            with host_errors(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, _write(made), sync=False)
        except EnvbundleError as fault:
            self._reporter.note(f"the packer's cache cannot be written: {fault}")

    def _path(self, key: Digest) -> Path:
        return self._folder / f"{key.hex}.layer"


def _write(made: MadeLayer) -> bytes:
    head = {
        "blobs": {str(plain): blob.to_dict() for plain, blob in made.blobs.items()},
        "findings": [finding.to_dict() for finding in made.findings],
    }
    # Canonical JSON holds no line feed: three lines are a safe frame.
    rest = canonical(head) + b"\n" + made.data
    return Digest.of(rest).hex.encode() + b"\n" + rest


def _read(data: bytes) -> MadeLayer:
    stated, _, rest = data.partition(b"\n")
    if Digest.of(rest).hex.encode() != stated:
        raise ValueError("its digest is not the one it states")
    head_line, _, layer_line = rest.partition(b"\n")
    head = json.loads(head_line)
    try:
        layer = _own_layer(json.loads(layer_line))
    except (KeyError, TypeError) as fault:
        raise ValueError(f"no layer list of ours: {fault}") from fault
    return MadeLayer(
        layer=layer,
        data=layer_line,
        blobs={Digest.parse(plain): Blob.from_dict(blob) for plain, blob in head["blobs"].items()},
        findings=tuple(Finding.from_dict(finding) for finding in head["findings"]),
    )


def _own_layer(value: Any) -> Layer:
    """Return a layer from a list that this program wrote itself, under a digest that was just compared.

    ``Layer.from_dict`` is for lists of others: its checks take most of a second pack's time where a
    distribution has 16,000 files.
    """
    wheel = value.get("wheel")
    chunks = {text: Digest.parse(text) for text, _ in value["chunks"]}
    return Layer(
        kind=value["kind"],
        distribution=value["distribution"],
        version=value["version"],
        entries=tuple(_own_entry(entry, chunks) for entry in value["entries"]),
        chunks=tuple((chunks[text], size) for text, size in value["chunks"]),
        wheel=None if wheel is None else WheelRef.from_dict(wheel),
        replaces=tuple(BaseFile.from_dict(item) for item in value.get("replaces", ())),
        removes=tuple(BaseFile.from_dict(item) for item in value.get("removes", ())),
    )


def _own_entry(value: Any, chunks: Mapping[str, Digest]) -> LayerEntry:
    kind = value.get("type", "file")
    if kind != "file":
        return LayerEntry.from_dict(value)
    inline = value.get("inline")
    return LayerEntry(
        path=value["path"],
        role=value.get("role", "file"),
        mode=value["mode"],
        size=value["size"],
        sha256=Digest.parse(value["sha256"]),
        segments=tuple(
            Segment(chunk=chunks[chunk], offset=offset, length=length)
            for chunk, offset, length in value.get("segments", ())
        ),
        inline=None if inline is None else base64.b64decode(inline),
    )
