"""Bundles in a store: the OCI manifest that carries a descriptor, its blobs and its signatures.

* The manifest is transport and unsigned: ``read_bundle`` trusts nothing in it but shapes and bounds;
  ``check_bundle`` demands, once the descriptor is trusted, that it holds exactly what the descriptor names.
* Writing: config, signatures, manifest, then the index entry, in this order; equal content, equal bytes.
* A tag has one entry; committing it again replaces it in one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import FormatError, IntegrityError, UserInputError
from envbundle.spec.descriptor import (
    ARTIFACT_BUNDLE,
    MAX_DESCRIPTOR,
    MEDIA_CHUNK,
    MEDIA_DESCRIPTOR,
    MEDIA_LAYER_LIST,
    MEDIA_LOCK,
    MEDIA_MANIFEST,
    MEDIA_SIGNATURE,
    Descriptor,
)
from envbundle.spec.digest import Digest

from .blob import missing_blob
from .oci import MAX_MANIFEST, ImageIndex, ImageManifest, Item, TagEntry
from .oci import MEDIA_MANIFEST as MEDIA_OCI_MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .protocol import Store

MAX_SIGNATURE = 64 * 1024
MAX_SIGNATURES = 64
#: The order of layers in an OCI manifest: by role, then by digest.
ROLES: tuple[str, ...] = (MEDIA_LOCK, MEDIA_MANIFEST, MEDIA_LAYER_LIST, MEDIA_CHUNK, MEDIA_SIGNATURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSummary:
    """A bundle that a store's index names; nothing of it has been judged."""

    tag: str
    manifest: Digest
    descriptor: Digest
    descriptor_size: int
    signatures: int
    blobs: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRef:
    """A bundle as it stands in a store: bytes whose hashes are right, and that nobody has vouched for yet.

    ``manifest`` is the digest of the OCI manifest ``image``; ``descriptor`` and ``signatures`` are bytes.
    """

    tag: str
    manifest: Digest
    image: ImageManifest
    descriptor: bytes
    signatures: tuple[bytes, ...]

    @property
    def bundle_id(self) -> Digest:
        """The digest of the descriptor's bytes."""
        return self.image.config.digest


def find_bundles(store: Store) -> tuple[BundleSummary, ...]:
    """Return every bundle that the store's index names, in the order of tags; no other artifact."""
    found = []
    for entry in store.tags():
        if entry.media != MEDIA_OCI_MANIFEST or not entry.tag:
            continue
        image = read_image(store, entry)
        if image.artifact == ARTIFACT_BUNDLE:
            found.append(
                BundleSummary(
                    tag=entry.tag,
                    manifest=entry.manifest,
                    descriptor=image.config.digest,
                    descriptor_size=image.config.size,
                    signatures=sum(layer.media == MEDIA_SIGNATURE for layer in image.layers),
                    blobs=len(image.layers),
                    stored_bytes=sum(layer.size for layer in image.layers),
                )
            )
    return tuple(found)


def find_entry(store: Store, tag: str) -> TagEntry:
    """Return the index entry of ``tag``; raises ``UserInputError`` (E-NO-BUNDLE) naming those there are."""
    index = store.read_index()
    entry = index.find(tag)
    if entry is None:
        there = ", ".join(sorted(e.tag for e in index.entries if e.tag)) or "nothing"
        raise UserInputError(
            "E-NO-BUNDLE", tag, expected=f"a tag of {store.name}", found=f"it holds {there}"[:400]
        )
    return entry


def read_image(store: Store, entry: TagEntry) -> ImageManifest:
    """Return the OCI manifest of an index entry; raises ``IntegrityError``."""
    if entry.size > MAX_MANIFEST:
        raise FormatError(
            "E-MANIFEST", entry.tag, expected=f"at most {MAX_MANIFEST} bytes", found=str(entry.size)
        )
    return ImageManifest.from_bytes(store.read(entry.manifest, entry.size), f"OCI manifest of {entry.tag}")


def read_bundle(store: Store, tag: str) -> BundleRef:
    """Return the bundle tagged ``tag``: descriptor bytes and signatures, bounded and with right hashes.

    The descriptor is not parsed here: first somebody must vouch for it, then ``check_bundle``. Raises
    ``UserInputError`` (E-NO-BUNDLE) or ``IntegrityError``.
    """
    entry = find_entry(store, tag)
    image = read_image(store, entry)
    check_image(image, tag)
    return BundleRef(
        tag=tag,
        manifest=entry.manifest,
        image=image,
        descriptor=store.read(image.config.digest, image.config.size),
        signatures=tuple(store.read(s.digest, s.size) for s in signature_items(image)),
    )


def parse_descriptor(data: bytes) -> Descriptor:
    """Return the descriptor in ``data``; raises ``FormatError`` whatever the bytes are."""
    try:
        return Descriptor.from_bytes(data)
    except (TypeError, ValueError, RecursionError) as fault:  # values that no canonical form can hold
        raise FormatError(
            "E-FORMAT", "descriptor", expected="canonical JSON", found=str(fault)[:200]
        ) from fault


def check_image(image: ImageManifest, tag: str) -> None:
    """Raise ``IntegrityError`` (E-MANIFEST-MISMATCH) unless ``image`` has a bundle's shape and bounds."""
    if image.artifact != ARTIFACT_BUNDLE:
        raise _mismatch(f"{tag}: artifactType", ARTIFACT_BUNDLE, repr(image.artifact[:100]))
    if image.config.media != MEDIA_DESCRIPTOR:
        raise _mismatch(f"{tag}: config", MEDIA_DESCRIPTOR, repr(image.config.media[:100]))
    if image.config.size > MAX_DESCRIPTOR:
        raise _mismatch(f"{tag}: config", f"at most {MAX_DESCRIPTOR} bytes", f"{image.config.size} bytes")
    for layer in image.layers:
        if layer.media not in ROLES:
            raise _mismatch(
                f"{tag}: layer {layer.digest}", "a media type of a bundle", repr(layer.media[:100])
            )
    signatures = signature_items(image)
    if len(signatures) > MAX_SIGNATURES or any(item.size > MAX_SIGNATURE for item in signatures):
        raise _mismatch(f"{tag}: signatures", f"at most {MAX_SIGNATURES} of {MAX_SIGNATURE} bytes", "more")


def signature_items(image: ImageManifest) -> tuple[Item, ...]:
    """Return the signature layers of a manifest."""
    return tuple(layer for layer in image.layers if layer.media == MEDIA_SIGNATURE)


def check_bundle(ref: BundleRef, descriptor: Descriptor) -> None:
    """Raise unless the bundle stands under its descriptor's tag and holds exactly what that names."""
    if ref.tag != descriptor.tag:
        raise IntegrityError(
            "E-TAG-MISMATCH",
            f"tag {ref.tag!r}",
            expected=repr(descriptor.tag),
            found=f"the bundle {descriptor.tag!r} under another name",
            hint="copy it under its own tag: a tag is not signed, another name would hide what it is",
        )
    check_manifest(ref.image, descriptor)


def check_manifest(image: ImageManifest, descriptor: Descriptor) -> None:
    """Raise ``IntegrityError`` (E-MANIFEST-MISMATCH) unless config and layers are what ``descriptor`` names.

    Both ways and with sizes and media types; signatures may be added. ``descriptor`` should be trusted.
    """
    data = descriptor.to_bytes()
    if (image.config.digest, image.config.size) != (Digest.of(data), len(data)):
        raise _mismatch("config", str(Digest.of(data)), str(image.config.digest))
    wanted = {item.digest: (item.size, item.media) for item in blob_items(descriptor)}
    held: dict[Digest, tuple[int, str]] = {}
    for layer in image.layers:
        if layer.media == MEDIA_SIGNATURE:
            continue
        if layer.digest in held:
            raise _mismatch(f"layer {layer.digest}", "once", "twice")
        held[layer.digest] = (layer.size, layer.media)
    for digest in sorted(set(wanted) | set(held)):
        if wanted.get(digest) != held.get(digest):
            raise _mismatch(f"layer {digest}", _said(wanted.get(digest)), _said(held.get(digest)))


def _said(value: tuple[int, str] | None) -> str:
    return "none, as the descriptor names none" if value is None else f"{value[0]} bytes of {value[1][:100]}"


def _mismatch(subject: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        "E-MANIFEST-MISMATCH",
        subject,
        expected=expected,
        found=found,
        hint="the OCI manifest is not the one of this descriptor: copy the bundle again",
    )


def blob_items(descriptor: Descriptor) -> tuple[Item, ...]:
    """Return one OCI item per stored blob of a descriptor, by role, then by digest.

    A blob that serves several plain digests has the first role of ``ROLES``.
    """
    lists = {layer.list for layer in descriptor.content.layers}
    found: dict[Digest, Item] = {}
    for plain, blob in descriptor.blobs.items():
        if plain == descriptor.content.lock:
            media = MEDIA_LOCK
        elif plain == descriptor.manifest:
            media = MEDIA_MANIFEST
        else:
            media = MEDIA_LAYER_LIST if plain in lists else MEDIA_CHUNK
        item = Item(media=media, digest=blob.blob, size=blob.size)
        known = found.get(blob.blob)
        if known is None or ROLES.index(media) < ROLES.index(known.media):
            found[blob.blob] = item
    return tuple(sorted(found.values(), key=_order))


def _order(item: Item) -> tuple[int, Digest]:
    return ROLES.index(item.media), item.digest


def bundle_image(descriptor: Descriptor, signatures: Iterable[bytes]) -> ImageManifest:
    """Return the one OCI manifest of a descriptor with these signatures."""
    data = descriptor.to_bytes()
    signed = {Digest.of(s): Item(media=MEDIA_SIGNATURE, digest=Digest.of(s), size=len(s)) for s in signatures}
    return ImageManifest(
        artifact=ARTIFACT_BUNDLE,
        config=Item(media=MEDIA_DESCRIPTOR, digest=Digest.of(data), size=len(data)),
        layers=(*blob_items(descriptor), *sorted(signed.values(), key=_order)),
    )


def commit_bundle(
    store: Store, descriptor: Descriptor, signatures: Iterable[bytes], *, keep: bool = False
) -> str:
    """Make the bundle visible under its tag, which is returned; its blobs must be there already.

    The same tag is replaced in one step; with ``keep``, signatures that the store has of the very same
    descriptor stay. Raises ``IntegrityError`` (E-BLOB-MISSING) if a blob is not there.
    """
    signed = tuple(signatures)
    image = bundle_image(descriptor, signed)
    check_image(image, descriptor.tag)

    def change(index: ImageIndex) -> ImageIndex:
        missing = store.lacking((item.digest, item.size) for item in blob_items(descriptor))
        if missing:
            raise missing_blob(min(missing), store.name)
        there = index.find(descriptor.tag)
        held = read_image(store, there) if keep and there is not None else image
        same = held.config.digest == image.config.digest
        added = _with_signatures(image, signature_items(held) if same else ())
        return index.with_entry(_put_image(store, added, descriptor.tag))

    store.put(descriptor.to_bytes())
    for signature in signed:
        store.put(signature)
    store.write_index(change)
    return descriptor.tag


def _put_image(store: Store, image: ImageManifest, tag: str) -> TagEntry:
    data = image.to_bytes()
    return TagEntry(tag=tag, manifest=store.put(data), size=len(data), artifact=image.artifact)


def _with_signatures(image: ImageManifest, more: Iterable[Item]) -> ImageManifest:
    rest = tuple(layer for layer in image.layers if layer.media != MEDIA_SIGNATURE)
    signed = {item.digest: item for item in (*signature_items(image), *more)}
    return ImageManifest(
        artifact=image.artifact, config=image.config, layers=(*rest, *sorted(signed.values(), key=_order))
    )


def add_signature(store: Store, tag: str, signature: bytes) -> None:
    """Add a signature over the descriptor of the bundle ``tag``; adding one again changes nothing."""

    def change(index: ImageIndex) -> ImageIndex:
        entry = index.find(tag) or find_entry(store, tag)
        image = read_image(store, entry)
        item = Item(media=MEDIA_SIGNATURE, digest=store.put(signature), size=len(signature))
        if item.digest in {known.digest for known in signature_items(image)}:
            return index
        added = _with_signatures(image, (item,))
        check_image(added, tag)
        return index.with_entry(_put_image(store, added, tag))

    store.write_index(change)


def remove_bundle(store: Store, tag: str) -> None:
    """Take the tag out of the index; ``collect`` frees the blobs. Raises ``UserInputError`` (E-NO-BUNDLE)."""
    find_entry(store, tag)
    store.write_index(lambda index: index.without(tag))
