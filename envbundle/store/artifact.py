"""Artifacts that are no bundles: named files under a tag of their own (the bootstrap ``install.pyz``).

* An OCI manifest with the empty config and one titled layer per file; no descriptor names it. Its own
  annotation repeats the tag, so that a changed byte of the tag in the index is seen.
* Its files may also stand beside the layout, for people without the tool; ``verify`` compares the two.

Source: OCI Image Format Specification 1.1, "Guidelines for Artifact Usage".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError

from .blob import check_extra_name
from .bundle import find_entry, read_image
from .oci import REF_NAME, TITLE, ImageManifest, Item, TagEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.spec.digest import Digest

    from .protocol import Store

MEDIA_EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFile:
    """A file of an artifact: ``name`` is one plain file name, ``data`` at most 64 MiB."""

    name: str
    media: str
    data: bytes


def commit_artifact(store: Store, *, tag: str, artifact: str, files: Iterable[ArtifactFile]) -> Digest:
    """Put ``files`` under ``tag`` as an artifact of type ``artifact`` and return its manifest's digest."""
    layers = []
    for file in files:
        title = {TITLE: check_extra_name(file.name)}
        digest = store.put(file.data)
        layers.append(Item(media=file.media, digest=digest, size=len(file.data), annotations=title))
    config = Item(media=MEDIA_EMPTY, digest=store.put(EMPTY), size=len(EMPTY))
    ordered = tuple(sorted(layers, key=lambda item: item.annotations[TITLE]))
    image = ImageManifest(artifact=artifact, config=config, layers=ordered, annotations={REF_NAME: tag})
    data = image.to_bytes()
    manifest = store.put(data)
    entry = TagEntry(tag=tag, manifest=manifest, size=len(data), artifact=artifact)
    store.write_index(lambda index: index.with_entry(entry))
    return manifest


def read_artifact(store: Store, tag: str, artifact: str) -> tuple[ArtifactFile, ...]:
    """Return the files under ``tag``; raises ``IntegrityError`` unless it is an artifact of that type."""
    image = read_image(store, find_entry(store, tag))
    if image.artifact != artifact:
        found = repr(image.artifact[:100])
        raise IntegrityError("E-MANIFEST-MISMATCH", f"{tag}: artifactType", expected=artifact, found=found)
    return tuple(
        ArtifactFile(
            name=check_extra_name(item.annotations.get(TITLE, "")),
            media=item.media,
            data=store.read(item.digest, item.size),
        )
        for item in image.layers
    )
