from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from envbundle.errors import FormatError, IntegrityError, UserInputError
from envbundle.spec.descriptor import MEDIA_SIGNATURE, Blob, Descriptor
from envbundle.spec.digest import Digest
from envbundle.store.artifact import ArtifactFile, commit_artifact, read_artifact
from envbundle.store.bundle import (
    BundleRef,
    add_signature,
    bundle_image,
    check_bundle,
    check_manifest,
    commit_bundle,
    find_bundles,
    parse_descriptor,
    read_bundle,
    remove_bundle,
)
from envbundle.store.layout import MemoryStore, TagEntry
from envbundle.store.oci import ImageManifest, Item
from envbundle.store.read import read_ahead, read_layer, read_plain

from .builders import FILES, SIGNATURES, put_bundle, target

if TYPE_CHECKING:
    from collections.abc import Callable

TAG = "demo-1.0-sm_90"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def descriptor(store: MemoryStore) -> Descriptor:
    return put_bundle(store)


def test_a_committed_bundle_is_read(store: MemoryStore, descriptor: Descriptor) -> None:
    ref = read_bundle(store, TAG)
    assert descriptor.tag == ref.tag == TAG
    assert parse_descriptor(ref.descriptor) == descriptor
    assert ref.bundle_id == descriptor.bundle_id
    assert set(ref.signatures) == set(SIGNATURES)
    check_bundle(ref, descriptor)
    (summary,) = find_bundles(store)
    assert (summary.tag, summary.descriptor, summary.signatures) == (TAG, descriptor.bundle_id, 2)


def test_equal_content_equal_bytes() -> None:
    stores = MemoryStore("one"), MemoryStore("two")
    for store, signatures in zip(stores, (SIGNATURES, SIGNATURES[::-1]), strict=True):
        put_bundle(store, signatures=signatures)
    assert dict(stores[0].documents()) == dict(stores[1].documents())
    assert list(stores[0].blobs()) == list(stores[1].blobs())


def test_the_manifest_is_ordered_by_role_then_digest(store: MemoryStore, descriptor: Descriptor) -> None:
    image = read_bundle(store, TAG).image
    roles = [layer.media.split(".")[2] for layer in image.layers]
    assert list(dict.fromkeys(roles)) == ["lock", "manifest", "layer", "chunk", "signature"]
    for role in set(roles):
        digests = [x.digest for x, r in zip(image.layers, roles, strict=True) if r == role]
        assert digests == sorted(digests)


def test_bundles_share_blobs_and_tags_stand_apart(store: MemoryStore, descriptor: Descriptor) -> None:
    before = len(list(store.blobs()))
    put_bundle(store, target=target("sm_103"))
    assert [bundle.tag for bundle in find_bundles(store)] == ["demo-1.0-sm_103", TAG]
    assert len(list(store.blobs())) - before == 2  # a descriptor and a manifest
    remove_bundle(store, TAG)
    assert [bundle.tag for bundle in find_bundles(store)] == ["demo-1.0-sm_103"]


def test_a_tag_that_is_not_there_names_those_that_are(store: MemoryStore, descriptor: Descriptor) -> None:
    for use in (read_bundle, remove_bundle, lambda s, t: add_signature(s, t, b"x")):
        with pytest.raises(UserInputError) as caught:
            use(store, "nope")
        assert caught.value.code == "E-NO-BUNDLE"
        assert TAG in caught.value.found


def test_a_bundle_without_its_blobs_is_not_committed(store: MemoryStore, descriptor: Descriptor) -> None:
    remove_bundle(store, TAG)
    store.remove(next(iter(descriptor.blobs.values())).blob)
    with pytest.raises(IntegrityError) as caught:
        commit_bundle(store, descriptor, SIGNATURES)
    assert caught.value.code == "E-BLOB-MISSING"
    assert store.tags() == ()


def test_signatures_are_added_once(store: MemoryStore, descriptor: Descriptor) -> None:
    add_signature(store, TAG, b"third")
    before = store.tags()
    add_signature(store, TAG, b"third")
    assert store.tags() == before
    ref = read_bundle(store, TAG)
    assert set(ref.signatures) == {*SIGNATURES, b"third"}
    assert ref.image == bundle_image(descriptor, [b"third", *SIGNATURES])
    check_bundle(ref, descriptor)


@pytest.mark.parametrize(("keep", "expected"), [(False, {b"new"}), (True, {b"new", *SIGNATURES})])
def test_committing_again(
    store: MemoryStore, descriptor: Descriptor, keep: bool, expected: set[bytes]
) -> None:
    commit_bundle(store, descriptor, [b"new"], keep=keep)
    assert set(read_bundle(store, TAG).signatures) == expected


def test_signatures_of_another_descriptor_are_not_kept(store: MemoryStore, descriptor: Descriptor) -> None:
    other = replace(descriptor, codec="another line")
    commit_bundle(store, other, [b"new"], keep=True)
    assert read_bundle(store, TAG).signatures == (b"new",)


def test_too_many_or_too_large_signatures(store: MemoryStore, descriptor: Descriptor) -> None:
    for signatures in ([bytes(100_000)], [bytes([n]) for n in range(65)]):
        with pytest.raises(IntegrityError) as caught:
            commit_bundle(store, descriptor, signatures)
        assert caught.value.code == "E-MANIFEST-MISMATCH"


def retag(store: MemoryStore, image: ImageManifest, tag: str = TAG) -> BundleRef:
    data = image.to_bytes()
    store.write_index(
        lambda index: index.with_entry(TagEntry(tag=tag, manifest=store.put(data), size=len(data)))
    )
    return read_bundle(store, tag)


def drop(image: ImageManifest) -> ImageManifest:
    return replace(image, layers=image.layers[1:])


def grow(image: ImageManifest) -> ImageManifest:
    return replace(image, layers=(replace(image.layers[0], size=image.layers[0].size + 1), *image.layers[1:]))


def add(image: ImageManifest) -> ImageManifest:
    extra = Item(media=image.layers[0].media, digest=Digest.of(b"extra"), size=5)
    return replace(image, layers=(extra, *image.layers))


def swap(image: ImageManifest) -> ImageManifest:
    first, *rest = image.layers
    return replace(image, layers=(replace(first, media=rest[0].media), *rest))


def twice(image: ImageManifest) -> ImageManifest:
    return replace(image, layers=(*image.layers, image.layers[0]))


def config(image: ImageManifest) -> ImageManifest:
    return replace(image, config=replace(image.config, digest=image.layers[0].digest))


@pytest.mark.parametrize("change", [drop, grow, add, swap, twice, config])
def test_a_manifest_that_is_not_the_descriptor_s(
    store: MemoryStore, descriptor: Descriptor, change: Callable[[ImageManifest], ImageManifest]
) -> None:
    image = read_bundle(store, TAG).image
    check_manifest(image, descriptor)
    with pytest.raises(IntegrityError) as caught:
        check_manifest(change(image), descriptor)
    assert caught.value.code == "E-MANIFEST-MISMATCH"


def no_artifact(image: ImageManifest) -> ImageManifest:
    return replace(image, artifact="application/vnd.other")


def other_config(image: ImageManifest) -> ImageManifest:
    return replace(image, config=replace(image.config, media="application/vnd.oci.image.config.v1+json"))


def large_config(image: ImageManifest) -> ImageManifest:
    return replace(image, config=replace(image.config, size=1 << 40))


def other_layer(image: ImageManifest) -> ImageManifest:
    return replace(image, layers=(replace(image.layers[0], media="application/x-tar"), *image.layers))


def large_signature(image: ImageManifest) -> ImageManifest:
    item = Item(media=MEDIA_SIGNATURE, digest=Digest.of(b""), size=1 << 40)
    return replace(image, layers=(*image.layers, item))


@pytest.mark.parametrize("change", [no_artifact, other_config, large_config, other_layer, large_signature])
def test_a_manifest_without_a_bundle_s_shape(
    store: MemoryStore, descriptor: Descriptor, change: Callable[[ImageManifest], ImageManifest]
) -> None:
    with pytest.raises(IntegrityError) as caught:
        retag(store, change(read_bundle(store, TAG).image))
    assert caught.value.code == "E-MANIFEST-MISMATCH"


def test_a_bundle_under_another_name_is_refused(store: MemoryStore, descriptor: Descriptor) -> None:
    ref = retag(store, read_bundle(store, TAG).image, "demo-2.0-sm_90")
    with pytest.raises(IntegrityError) as caught:
        check_bundle(ref, descriptor)
    assert caught.value.code == "E-TAG-MISMATCH"


def test_other_artifacts_are_no_bundles(store: MemoryStore, descriptor: Descriptor) -> None:
    kind = "application/vnd.envbundle.bootstrap.v1"
    file = ArtifactFile(name="install.pyz", media="application/zip", data=b"zip")
    commit_artifact(store, tag="install.pyz", artifact=kind, files=[file])
    assert [bundle.tag for bundle in find_bundles(store)] == [TAG]
    assert read_artifact(store, "install.pyz", kind) == (file,)
    with pytest.raises(IntegrityError):
        read_bundle(store, "install.pyz")
    with pytest.raises(IntegrityError):
        read_artifact(store, TAG, kind)


def _damaged(change: Callable[[dict[str, Any]], None]) -> bytes:
    value = put_bundle(MemoryStore()).to_dict()
    change(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        _damaged(lambda d: d["content"]["layout"].update(x=1.5)),
        _damaged(lambda d: d["content"]["environment"].update(x="\ud800")),
        _damaged(lambda d: d.update(codec="\ud800")),
        _damaged(lambda d: d["content"]["layout"].update(x=float("nan"))),
    ],
    ids=["empty", "no fields", "deep", "float", "surrogate in content", "surrogate", "NaN"],
)
def test_what_no_descriptor_may_hold_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_descriptor(data)


def test_plain_bytes_and_layers(store: MemoryStore, descriptor: Descriptor) -> None:
    assert read_plain(store, descriptor, descriptor.manifest) == b"[bundle]\nname = 'demo'\n"
    ref = descriptor.content.layers[0]
    layer = read_layer(store, descriptor, ref)
    assert {e.path: e.size for e in layer.entries if e.type == "file"} == {
        p: len(d) for p, d in FILES.items()
    }
    plains = [digest for digest, _ in layer.chunks] * 3
    for workers in (1, 2, 5):
        read = list(read_ahead(store, descriptor, plains, workers=workers))
        assert [digest for digest, _ in read] == plains
        assert all(Digest.of(data) == digest for digest, data in read)
    with pytest.raises(IntegrityError) as caught:
        read_plain(store, descriptor, Digest.of(b"unknown"))
    assert caught.value.code == "E-BLOB-UNNAMED"


def test_reading_ahead_raises_at_the_turn_of_the_damaged_chunk(
    store: MemoryStore, descriptor: Descriptor
) -> None:
    plains = [digest for digest, _ in read_layer(store, descriptor, descriptor.content.layers[0]).chunks]
    store.remove(descriptor.blobs[plains[2]].blob)
    reading = read_ahead(store, descriptor, plains, workers=3)
    assert [next(reading)[0], next(reading)[0]] == plains[:2]
    with pytest.raises(IntegrityError) as caught:
        next(reading)
    assert caught.value.code == "E-BLOB-MISSING"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": "2.0"}, "E-LAYER-MISMATCH"),
        ({"distribution": "other"}, "E-LAYER-MISMATCH"),
        ({"kind": "overlay"}, "E-LAYER-MISMATCH"),
        ({"files": 1}, "E-LAYER-MISMATCH"),
        ({"bytes": 1}, "E-LAYER-MISMATCH"),
        ({"list_size": 1}, "E-LAYER-MISMATCH"),
        ({"list": Digest.of(b"lock-version = '1.0'\n" * 9), "list_size": 189}, "E-FORMAT"),
    ],
)
def test_a_layer_that_is_not_what_its_reference_says(
    store: MemoryStore, descriptor: Descriptor, change: dict[str, Any], code: str
) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_layer(store, descriptor, replace(descriptor.content.layers[0], **change))
    assert caught.value.code == code


def test_a_layer_whose_chunk_the_descriptor_does_not_name(store: MemoryStore, descriptor: Descriptor) -> None:
    ref = descriptor.content.layers[0]
    chunk, size = read_layer(store, descriptor, ref).chunks[0]
    blob = descriptor.blobs[chunk]
    fewer: dict[Digest, Blob] = {k: v for k, v in descriptor.blobs.items() if k != chunk}
    other = {**descriptor.blobs, chunk: replace(blob, plain_size=size + 1)}
    for blobs in (fewer, other):
        with pytest.raises(IntegrityError) as caught:
            read_layer(store, replace(descriptor, blobs=blobs), ref)
        assert caught.value.code == "E-LAYER-MISMATCH"
