"""``oci://registry/repository[:tag]``: a repository of any OCI registry as a store.

* Its index is the registry's tags: the one that was named, else all. A bundle stands under its own tag;
  characters that a registry's tag may not have (``+``) are ``_`` there. With ``:tag`` one bundle goes under
  that other name, and is known by its own to whoever reads it.
* Signatures are layers of the manifest, so that a registry needs no referrers API, and one pull brings
  them.
* A blob of another repository of the same registry is mounted, not sent.
* Files beside a layout have no place in a registry: they are not carried.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError, FormatError, HostError, UserInputError
from envbundle.host.fetch import Web
from envbundle.spec.canonical import canonical
from envbundle.spec.descriptor import ARTIFACT_BUNDLE, MAX_DESCRIPTOR
from envbundle.spec.digest import Digest
from envbundle.store.blob import missing_blob, wrong_size
from envbundle.store.bundle import parse_descriptor
from envbundle.store.oci import (
    INDEX_FILE,
    LAYOUT,
    LAYOUT_FILE,
    MEDIA_MANIFEST,
    REF_NAME,
    ImageIndex,
    ImageManifest,
    TagEntry,
)
from envbundle.store.protocol import MAX_BLOB

from .registry import TAG, Reference, Registry, credentials_of, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .options import TransferOptions

ASKING = 8


def open_oci(path: str, create: bool, _options: TransferOptions) -> OciStore:
    """Return the repository at an ``oci://`` location, ``path`` being what follows the scheme.

    A registry makes repositories by itself. Raises ``UserInputError`` (E-LOCATION) for a digest to write to.
    """
    reference = parse_reference(path)
    if create and reference.digest is not None:
        raise UserInputError("E-LOCATION", str(reference), expected="a tag or none", found="a digest")
    web = Web()
    return OciStore(Registry(reference, web, credentials_of(reference.registry, os.environ)), web)


def registry_tag(tag: str) -> str:
    """Return the registry's form of a bundle's tag."""
    text = re.sub(r"[^A-Za-z0-9._-]", "_", tag)[:128]
    return text if TAG.fullmatch(text) else f"_{text}"[:128]


class OciStore:
    """The repository that ``registry`` speaks to."""

    def __init__(self, registry: Registry, web: Web) -> None:
        self.registry = registry
        self.name = registry.name
        self._web = web
        self._lock = threading.RLock()
        self._manifests: dict[Digest, bytes] = {}
        self._index: ImageIndex | None = None

    @property
    def reference(self) -> Reference:
        """What the location named."""
        return self.registry.reference

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``."""
        held = self._manifests.get(digest)
        if held is not None:
            return len(held) == size
        return self.registry.blob_size(digest) == size

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``: registries know no batch, so several requests run at once."""
        asked = list(blobs)
        with ThreadPoolExecutor(ASKING) as pool:
            there = list(pool.map(lambda item: self.has(*item), asked))
        return frozenset(digest for (digest, _), held in zip(asked, there, strict=True) if not held)

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        held = self._manifests.get(digest)
        if held is not None:
            if len(held) != size:
                raise wrong_size(digest, self.name, size, str(len(held)))
            return held
        if size > MAX_BLOB:
            raise wrong_size(digest, self.name, MAX_BLOB, str(size))
        found = self.registry.blob_size(digest)
        if found is None:
            raise missing_blob(digest, self.name)
        if found not in (size, -1):
            raise wrong_size(digest, self.name, size, str(found))
        return self.registry.get_blob(digest, size)

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``; what is larger than any blob is refused."""
        held = self._manifests.get(digest)
        if held is not None:
            return Digest.of(held)
        url = f"{self.reference.base}/blobs/{digest}"
        answer = self.registry.ask("GET", url, limit=MAX_BLOB)
        if answer.status != 200:
            raise missing_blob(digest, self.name)
        return Digest.of(answer.body)

    def put(self, data: bytes) -> Digest:
        """See ``Store.put``; a manifest waits for the index that names it."""
        digest = Digest.of(data)
        if _is_manifest(data):
            with self._lock:
                self._manifests[digest] = data
        elif not self.has(digest, len(data)):
            self.registry.put_blob(digest, data)
        return digest

    def put_checked(self, digest: Digest, data: bytes) -> None:
        """Keep ``data``, which has ``digest`` and is not there yet; the registry hashes it as well."""
        if _is_manifest(data):
            self.put(data)
        else:
            self.registry.put_blob(digest, data)

    def take_from(self, source: object, digest: Digest) -> bool:
        """Mount a blob of another repository of the same registry; False where its bytes must go."""
        if not isinstance(source, OciStore) or source.reference.registry != self.reference.registry:
            return False
        return self.registry.mount(digest, source.reference.repository)

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``: a registry lists none, so these are what the tags reach."""
        found: dict[Digest, int] = {}
        for entry in self.tags():
            found[entry.manifest] = entry.size
            image = ImageManifest.from_bytes(self._manifests[entry.manifest], entry.tag)
            found.update((item.digest, item.size) for item in image.items())
        yield from sorted(found.items())

    def remove(self, digest: Digest) -> None:
        """See ``Store.remove``; raises ``TransferError`` where the registry does not delete."""
        self.registry.delete(f"blobs/{digest}")

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``; asked once, and again after a change of ours."""
        with self._lock:
            if self._index is None:
                reference = self.reference
                named = str(reference.digest) if reference.digest else reference.tag
                names = (named,) if named else self.registry.tags()
                with ThreadPoolExecutor(ASKING) as pool:
                    entries = list(pool.map(self._entry, names))
                found = {entry.tag: entry for entry in entries if entry is not None}
                self._index = ImageIndex(entries=tuple(found.values()))
            return self._index

    def _entry(self, name: str) -> TagEntry | None:
        """Return the entry of a registry's tag; None for what is no single image."""
        data = self.registry.get_manifest(name)
        if data is None:
            return None
        digest = Digest.of(data)
        if self.reference.digest not in (None, digest):
            raise FormatError("E-MANIFEST", self.name, expected=str(self.reference.digest), found=str(digest))
        try:
            image = ImageManifest.from_bytes(data, f"{self.name}:{name}")
        except FormatError:
            if self.reference.tag or self.reference.digest:
                raise
            return None  # one of many tags, of another program
        tag = image.annotations.get(REF_NAME, name)
        if image.artifact == ARTIFACT_BUNDLE and image.config.size <= MAX_DESCRIPTOR:
            with contextlib.suppress(EnvbundleError):  # who reads the bundle says what is wrong with it
                tag = parse_descriptor(self.read(image.config.digest, image.config.size)).tag
        self._manifests[digest] = data
        return TagEntry(
            tag=tag, manifest=digest, size=len(data), media=MEDIA_MANIFEST, artifact=image.artifact
        )

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """See ``Store.write_index``; a registry changes tag by tag, each at once."""
        with self._lock:
            before = self.read_index()
            after = ImageIndex.from_bytes(change(before).to_bytes())
            old = {entry.tag: entry for entry in before.entries}
            new = [entry for entry in after.entries if old.get(entry.tag) != entry]
            if self.reference.tag and len(after.entries) > 1:
                raise UserInputError(
                    "E-LOCATION",
                    str(self.reference),
                    expected="one bundle for one tag",
                    found=", ".join(entry.tag for entry in after.entries)[:200],
                    hint="leave the tag out: each bundle goes under its own, or choose one with --arch",
                )
            for entry in new:
                data = self._manifests.get(entry.manifest)
                if data is None:
                    raise missing_blob(entry.manifest, self.name)
                self.registry.put_manifest(self.reference.tag or registry_tag(entry.tag), data)
            for tag in set(old) - {entry.tag for entry in after.entries}:
                self.registry.delete(f"manifests/{old[tag].manifest}")
            self._index = after
            return after

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``: as a layout of these tags would have them."""
        return ((LAYOUT_FILE, canonical(LAYOUT)), (INDEX_FILE, self.read_index().to_bytes()))

    def extras(self) -> tuple[str, ...]:
        """See ``Store.extras``: a registry has no such files."""
        return ()

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        raise HostError("E-NOT-FOUND", f"{self.name}: {name}", expected="a file", found="a registry")

    def put_extra(self, name: str, data: bytes) -> None:
        """Refuse: a registry has no place for it."""
        found = f"a registry, and {len(data)} bytes"
        raise HostError("E-READ-ONLY", f"{self.name}: {name}", expected="a folder", found=found)

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``."""
        return ()

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """See ``Store.alone``: registries collect by their own rules."""
        return contextlib.nullcontext()

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """See ``Store.writing``."""
        return contextlib.nullcontext()

    def free(self) -> int | None:
        """See ``Store.free``."""
        return None

    def close(self) -> None:
        """Close the connections."""
        self._web.close()


def _is_manifest(data: bytes) -> bool:
    if not data.startswith(b"{") or MEDIA_MANIFEST.encode() not in data:
        return False
    try:
        ImageManifest.from_bytes(data)
    except EnvbundleError:
        return False
    return True
