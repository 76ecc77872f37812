from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, IntegrityError, UserInputError
from envbundle.spec.descriptor import Descriptor
from envbundle.spec.digest import Digest
from envbundle.spec.finding import errors_in
from envbundle.store.artifact import ArtifactFile, commit_artifact
from envbundle.store.bundle import commit_bundle, read_bundle, remove_bundle
from envbundle.store.gc import collect
from envbundle.store.layout import DirectoryStore, MemoryStore
from envbundle.store.oci import ImageIndex
from envbundle.store.verify import verify_store

from .builders import FILES, SIGNATURES, Packer, make_layer, noise, put_bundle, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from envbundle.store.layout import Store

BOOTSTRAP = "application/vnd.envbundle.bootstrap.v1"


def codes(store: Store, tag: str | None = None, *, workers: int = 1) -> set[str]:
    return {finding.code for finding in verify_store(store, tag, workers=workers)}


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "s", create=True)
    put_bundle(store)
    put_bundle(store, target=target("sm_103"))
    file = ArtifactFile(name="install.pyz", media="application/zip", data=b"a small zip")
    commit_artifact(store, tag="install.pyz", artifact=BOOTSTRAP, files=[file])
    store.put_extra("install.pyz", file.data)
    return store


@pytest.mark.parametrize("workers", [1, 3])
def test_a_good_store_has_no_findings(store: DirectoryStore, workers: int) -> None:
    assert verify_store(store, workers=workers) == []
    assert verify_store(store, "demo-1.0-sm_90", workers=workers) == []


def files_of(store: DirectoryStore) -> list[Path]:
    return sorted(p for p in store.path.rglob("*") if p.is_file() and ".incoming" not in p.parts)


def skopeo_form(store: DirectoryStore) -> None:
    """Write the two documents as skopeo 1.9 does (seen with its `copy oci:A:T oci:B:T`)."""
    manifests = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": str(entry.manifest),
            "size": entry.size,
            "annotations": {"org.opencontainers.image.ref.name": entry.tag},
        }
        for entry in store.tags()
    ]
    value = {"schemaVersion": 2, "manifests": manifests}
    (store.path / "index.json").write_text(json.dumps(value, separators=(",", ":")))
    (store.path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


@pytest.mark.parametrize("form", ["ours", "skopeo's"])
def test_every_flipped_byte_is_an_error(store: DirectoryStore, form: str) -> None:
    """All bytes of the two documents, each changed in two ways, and two bytes of every other file."""
    remove_bundle(store, "demo-1.0-sm_103")
    collect(store)
    if form != "ours":
        skopeo_form(store)
        assert verify_store(store, workers=1) == []
    generator = random.Random(7)
    tried = 0
    for path in files_of(store):
        data = path.read_bytes()
        document = path.suffix == ".json" or path.name == "oci-layout"
        positions = range(len(data)) if document else generator.sample(range(len(data)), min(2, len(data)))
        for position in positions:
            flips = (0x01, generator.randrange(1, 256)) if document else (generator.randrange(1, 256),)
            for flip in flips:
                changed = bytearray(data)
                changed[position] ^= flip
                path.write_bytes(changed)
                assert errors_in(verify_store(store, workers=1)), (path.name, position, flip)
                tried += 1
        path.write_bytes(data)
    assert tried > 1000
    assert verify_store(store, workers=1) == []


def test_every_cut_or_lost_file_is_an_error(store: DirectoryStore) -> None:
    for path in files_of(store):
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert errors_in(verify_store(store, workers=1)), path
        if path.parent != store.path or path.name != "install.pyz":
            path.unlink()
            assert errors_in(verify_store(store, workers=1)), path
        path.write_bytes(data)
    assert verify_store(store, workers=1) == []


def test_all_faults_are_found_in_one_run(store: DirectoryStore) -> None:
    descriptor = Descriptor.from_bytes(read_bundle(store, "demo-1.0-sm_90").descriptor)
    plains = sorted(descriptor.blobs)
    for plain in plains:
        store.remove(descriptor.blobs[plain].blob)
    missing = {f.subject for f in verify_store(store, workers=2) if f.code == "E-BLOB-MISSING"}
    assert missing == {str(descriptor.blobs[plain].blob) for plain in plains}


def test_what_is_superfluous_is_a_warning(store: DirectoryStore) -> None:
    store.put(b"nobody names me")
    (store.path / "notes.txt").touch()
    (store.path / "blobs" / "sha256" / "README").touch()
    (store.path / "blobs" / "md5").mkdir()
    (store.path / ".incoming" / "half").touch()
    found = verify_store(store, workers=1)
    assert {f.code for f in found} == {"W-STORE-EXTRA"}
    text = " ".join(f.subject for f in found)
    for name in (Digest.of(b"nobody names me").hex, "notes.txt", "README", "md5", ".incoming/half"):
        assert name in text
    assert verify_store(store, "demo-1.0-sm_90", workers=1) == []


def test_a_damaged_blob_that_nothing_names_is_an_error(store: DirectoryStore) -> None:
    digest = store.put(b"nobody names me")
    store.blob_path(digest).write_bytes(b"nobody names it")
    assert "E-BLOB-HASH" in codes(store)


def test_one_tag_leaves_other_bundles_alone(store: DirectoryStore) -> None:
    read = read_bundle(store, "demo-1.0-sm_103")
    store.blob_path(read.bundle_id).write_bytes(b"")
    assert codes(store, "demo-1.0-sm_90") == set()
    assert "E-BLOB-SIZE" in codes(store, "demo-1.0-sm_103")
    with pytest.raises(UserInputError):
        verify_store(store, "demo-3")


def write_index(store: DirectoryStore, change: Callable[[ImageIndex], ImageIndex]) -> None:
    (store.path / "index.json").write_bytes(change(store.read_index()).to_bytes())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda i: ImageIndex(entries=(*i.entries, i.entries[0])), "E-STORE-INDEX"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], tag=""),)), "E-STORE-INDEX"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], annotations={"a": "b"}),)), "E-STORE-INDEX"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], media="x/y"),)), "E-STORE-INDEX"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], artifact="x/y"),)), "E-STORE-INDEX"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], size=1),)), "E-BLOB-SIZE"),
        (lambda i: ImageIndex(entries=(replace(i.entries[0], tag="demo-1.1-sm_90"),)), "E-TAG-MISMATCH"),
    ],
    ids=["a tag twice", "no tag", "annotation", "media type", "artifact type", "size", "renamed"],
)
def test_an_index_that_disagrees(
    store: DirectoryStore, change: Callable[[ImageIndex], ImageIndex], code: str
) -> None:
    write_index(store, change)
    assert code in {f.code for f in errors_in(verify_store(store, workers=1))}


def _repacked(store: MemoryStore, descriptor: Descriptor, edit: Callable[[Packer], Digest]) -> None:
    """Commit ``descriptor`` with a first layer whose list ``edit`` wrote."""
    packer = Packer(store, dict(descriptor.blobs))
    digest = edit(packer)
    first, *rest = descriptor.content.layers
    size = packer.blobs[digest].plain_size
    layers = (replace(first, list=digest, list_size=size), *rest)
    commit_bundle(
        store,
        replace(descriptor, content=replace(descriptor.content, layers=layers), blobs=packer.blobs),
        SIGNATURES,
    )


def test_a_file_that_its_chunks_do_not_give() -> None:
    store = MemoryStore()
    descriptor = put_bundle(store)

    def edit(packer: Packer) -> Digest:
        from envbundle.store.read import read_layer

        layer = read_layer(store, descriptor, descriptor.content.layers[0])
        entries = tuple(
            replace(e, sha256=Digest.of(b"other")) if e.path.endswith("twin.py") else e for e in layer.entries
        )
        return packer.put(replace(layer, entries=entries).to_bytes())

    _repacked(store, descriptor, edit)
    (finding,) = errors_in(verify_store(store, workers=1))
    assert (finding.code, finding.subject) == ("E-FILE-HASH", "pkg: purelib/pkg/twin.py")


def test_files_that_come_back_to_a_chunk() -> None:
    store = MemoryStore()
    a, b = noise(4096, 1), bytes(4096)
    files = {
        "data/aba": a + b + a + b + a + b"end",
        "data/bbb": b * 5,
        "data/bab": b + a + b,
        "data/small": b"small",
    }
    put_bundle(store, files=files)
    for workers in (1, 2):
        assert verify_store(store, workers=workers) == []


def test_memory_store_is_verified_too() -> None:
    store = MemoryStore()
    descriptor = put_bundle(store)
    assert verify_store(store) == []
    store._blobs[descriptor.bundle_id] = descriptor.to_bytes()[:-1] + b" "
    assert "E-BLOB-HASH" in codes(store)


def test_collecting(store: DirectoryStore) -> None:
    junk = store.put(b"junk")
    (store.path / ".incoming" / f"{junk.hex}.0123").write_bytes(b"ju")
    before = files_of(store)
    shown = collect(store, dry_run=True)
    assert (shown.blobs, shown.bytes) == ((junk,), 4)
    assert shown.leftovers == (f".incoming/{junk.hex}.0123",)
    assert files_of(store) == before
    assert collect(store) == shown
    assert collect(store).blobs == ()
    assert verify_store(store, workers=1) == []
    remove_bundle(store, "demo-1.0-sm_103")
    assert len(collect(store).blobs) == 2
    assert verify_store(store, workers=1) == []


def test_collecting_never_follows_damage(store: DirectoryStore) -> None:
    entry = store.tags()[0]
    store.blob_path(entry.manifest).write_bytes(b"{}")
    before = files_of(store)
    with pytest.raises(IntegrityError):
        collect(store)
    write_index(store, lambda i: ImageIndex(entries=(replace(i.entries[0], media="x/y"), *i.entries[1:])))
    with pytest.raises(IntegrityError):
        collect(store)
    assert files_of(store) == before


def test_collecting_waits_for_nobody(store: DirectoryStore) -> None:
    other = DirectoryStore(store.path)
    with other.writing():
        other.put(b"of a pack in progress")
        with pytest.raises(HostError) as caught:
            collect(store)
    assert caught.value.code == "E-STORE-BUSY"
    assert store.has(Digest.of(b"of a pack in progress"), 21)


def test_a_copy_of_the_folder_is_the_same_store(store: DirectoryStore, tmp_path: Path) -> None:
    shutil.copytree(store.path, tmp_path / "copied")
    assert verify_store(DirectoryStore(tmp_path / "copied"), workers=1) == []


def test_files_are_what_was_packed() -> None:
    store = MemoryStore()
    ref = make_layer(Packer(store, {}), "pkg", FILES)
    assert ref.files == len(FILES) + 1  # and an entry point
    assert ref.bytes == sum(map(len, FILES.values()))
