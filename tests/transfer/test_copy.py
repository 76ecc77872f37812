from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, IntegrityError, TrustError, UserInputError
from envbundle.progress import Silent
from envbundle.store.bundle import add_signature, find_bundles, read_bundle
from envbundle.store.layout import DirectoryStore, MemoryStore, TagEntry
from envbundle.store.verify import verify_store
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.plan import plan_copy
from tests.store.builders import FILES, SIGNATURES, noise, put_bundle, target

if TYPE_CHECKING:
    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.digest import Digest
    from envbundle.store.bundle import BundleRef

TAG = "demo-1.0-sm_90"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "source", create=True)
    put_bundle(store)
    return store


@pytest.fixture
def destination(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "destination", create=True)


@pytest.mark.parametrize("streams", [1, 2, 8])
def test_a_copy_is_the_same_bundle(source: DirectoryStore, destination: DirectoryStore, streams: int) -> None:
    result = copy_bundle(source, destination, TAG, streams=streams)
    assert read_bundle(destination, TAG) == read_bundle(source, TAG)
    assert list(destination.blobs()) == list(source.blobs())
    assert dict(destination.documents()) == dict(source.documents())
    assert verify_store(destination, workers=1) == []
    sent = [item for item in source.blobs() if item[0] != read_bundle(source, TAG).manifest]
    assert result.to_dict() == {
        "via": "dir",
        "tag": TAG,
        "bundle": str(read_bundle(source, TAG).bundle_id),
        "sent": {"blobs": len(sent), "bytes": sum(size for _, size in sent)},
        "skipped": {"blobs": 0, "bytes": 0},
    }


def test_copying_again_sends_nothing(source: DirectoryStore, destination: DirectoryStore) -> None:
    first = copy_bundle(source, destination, TAG)
    again = copy_bundle(source, destination, TAG)
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)
    assert (again.skipped_blobs, again.skipped_bytes) == (first.sent_blobs, first.sent_bytes)


def test_a_second_target_sends_only_what_differs(source: DirectoryStore, destination: DirectoryStore) -> None:
    put_bundle(source, target=target("sm_103"))
    copy_bundle(source, destination, TAG)
    assert copy_bundle(source, destination, "demo-1.0-sm_103").sent_blobs == 1  # its descriptor
    assert [b.tag for b in find_bundles(destination)] == ["demo-1.0-sm_103", TAG]
    assert verify_store(destination, workers=1) == []


def test_signatures_at_the_destination_stay(source: DirectoryStore, destination: DirectoryStore) -> None:
    copy_bundle(source, destination, TAG)
    add_signature(destination, TAG, b"of another team")
    add_signature(source, TAG, b"of the release")
    copy_bundle(source, destination, TAG)
    signatures = set(read_bundle(destination, TAG).signatures)
    assert signatures == {*SIGNATURES, b"of another team", b"of the release"}


def test_a_dry_run_says_what_a_run_does_and_writes_nothing(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    before = sorted(destination.path.rglob("*"))
    shown = copy_bundle(source, destination, TAG, dry_run=True)
    assert sorted(destination.path.rglob("*")) == before
    assert copy_bundle(source, destination, TAG) == shown


def test_who_judges_is_asked_before_anything_is_written(
    source: DirectoryStore, destination: DirectoryStore
) -> None:
    def judge(ref: BundleRef) -> Descriptor:
        raise TrustError("E-UNTRUSTED", ref.tag)

    with pytest.raises(TrustError):
        copy_bundle(source, destination, TAG, judge=judge)
    assert list(destination.blobs()) == []


def test_a_tag_that_is_not_there(source: DirectoryStore, destination: DirectoryStore) -> None:
    with pytest.raises(UserInputError) as caught:
        copy_bundle(source, destination, "demo-2.0-sm_90")
    assert caught.value.code == "E-NO-BUNDLE"


def _blobs(store: DirectoryStore) -> list[tuple[Digest, int]]:
    ref = read_bundle(store, TAG)
    first = {ref.manifest, ref.image.config.digest}
    return [item for item in store.blobs() if item[0] not in first]


@pytest.mark.parametrize("damage", ["flipped", "missing", "longer"])
def test_a_damaged_source_is_no_bundle_at_the_destination(
    source: DirectoryStore, destination: DirectoryStore, damage: str
) -> None:
    digest = _blobs(source)[3][0]
    path = source.blob_path(digest)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data + b"x" if damage == "longer" else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(IntegrityError):
        copy_bundle(source, destination, TAG)
    assert destination.tags() == ()
    assert not destination.blob_path(digest).exists()
    path.write_bytes(data)
    copy_bundle(source, destination, TAG)
    assert verify_store(destination, workers=1) == []


def test_check_finds_what_a_size_cannot_show(source: DirectoryStore, destination: DirectoryStore) -> None:
    copy_bundle(source, destination, TAG)
    digest, size = _blobs(source)[2]
    destination.blob_path(digest).write_bytes(bytes(size))
    assert copy_bundle(source, destination, TAG).sent_blobs == 0
    checked = copy_bundle(source, destination, TAG, check=True)
    assert (checked.sent_blobs, checked.sent_bytes) == (1, size)
    assert verify_store(destination, workers=1) == []


def test_a_blob_of_another_size_is_sent_again(source: DirectoryStore, destination: DirectoryStore) -> None:
    copy_bundle(source, destination, TAG)
    digest, _ = _blobs(source)[2]
    destination.blob_path(digest).write_bytes(b"")
    assert copy_bundle(source, destination, TAG).sent_blobs == 1
    assert verify_store(destination, workers=1) == []


def test_a_manifest_that_hides_a_blob_is_refused(source: DirectoryStore, destination: DirectoryStore) -> None:
    image = read_bundle(source, TAG).image
    data = replace(image, layers=image.layers[1:]).to_bytes()
    entry = TagEntry(tag=TAG, manifest=source.put(data), size=len(data))
    source.write_index(lambda index: index.with_entry(entry))
    with pytest.raises(IntegrityError) as caught:
        copy_bundle(source, destination, TAG)
    assert caught.value.code == "E-MANIFEST-MISMATCH"
    assert list(destination.blobs()) == []


class FullStore(MemoryStore):
    """A store with little room: a real one would need a small file system."""

    def free(self) -> int | None:
        return 1000


def test_space_is_asked_for_before_anything_is_sent(source: DirectoryStore) -> None:
    full = FullStore()
    with pytest.raises(HostError) as caught:
        copy_bundle(source, full, TAG)
    assert caught.value.code == "E-SPACE"
    assert list(full.blobs()) == []


def test_what_is_sent_comes_descriptor_and_signatures_first(source: DirectoryStore) -> None:
    ref = read_bundle(source, TAG)
    descriptor = put_bundle(MemoryStore())
    plan = plan_copy(ref, descriptor, MemoryStore())
    order = [digest for digest, _ in plan.send]
    assert order[0] == ref.bundle_id
    assert {source.read(d, s) for d, s in plan.send[1:3]} == set(SIGNATURES)
    assert len(order) == len(set(order)) == len(ref.image.layers) + 1


class Counting(Silent):
    def __init__(self) -> None:
        self.total: int | None = None
        self.done = 0

    def start(self, task: str, *, total: int | None = None, unit: str = "bytes") -> None:  # noqa: ARG002
        self.total = total

    def advance(self, task: str, amount: int = 1) -> None:  # noqa: ARG002
        self.done += amount


def test_progress_adds_up(source: DirectoryStore, destination: DirectoryStore) -> None:
    reporter = Counting()
    result = copy_bundle(source, destination, TAG, streams=1, reporter=reporter)
    assert reporter.total == reporter.done == result.sent_bytes


SCRIPT = textwrap.dedent(
    """
    import os, signal, sys
    from envbundle.progress import Silent
    from envbundle.store.layout import DirectoryStore
    from envbundle.transfer.copy import copy_bundle

    class Fuse(Silent):
        left = int(sys.argv[4])

        def advance(self, task, amount=1):
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)

    source, destination = DirectoryStore(sys.argv[1]), DirectoryStore(sys.argv[2], create=True)
    print("ready", flush=True)
    copy_bundle(source, destination, sys.argv[3], reporter=Fuse())
    """
)


def start(source: Path, destination: Path, tag: str = TAG, fuse: int = -1) -> subprocess.Popen[str]:
    """Begin a copy in a process of its own that kills itself after ``fuse`` blobs."""
    words = [sys.executable, "-c", SCRIPT, str(source), str(destination), tag, str(fuse)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def finish(source: DirectoryStore, destination: DirectoryStore) -> None:
    """A cut copy is no bundle, what arrived is whole, and a second run sends the rest."""
    assert destination.tags() == ()
    there = dict(destination.blobs())
    assert all(destination.rehash(digest) == digest for digest in there)
    there.pop(read_bundle(source, TAG).manifest, None)
    assert copy_bundle(source, destination, TAG).skipped_blobs == len(there)
    assert [b.tag for b in find_bundles(destination)] == [TAG]
    found = verify_store(destination, workers=1)
    leftovers = len(destination.leftovers())
    assert [f.code for f in found] == (["W-STORE-EXTRA"] if leftovers else [])
    assert leftovers <= 2  # one for each stream


@pytest.mark.parametrize("blobs", [1, 2, 7, 13])
def test_a_copy_killed_after_some_blobs(source: DirectoryStore, tmp_path: Path, blobs: int) -> None:
    process = start(source.path, tmp_path / "d", fuse=blobs)
    assert process.wait(60) == -signal.SIGKILL
    finish(source, DirectoryStore(tmp_path / "d"))


def test_a_copy_killed_at_any_moment(tmp_path: Path) -> None:
    source = DirectoryStore(tmp_path / "source", create=True)
    put_bundle(source, files={**FILES, **{f"data/{n:03}": noise(60_000, n) for n in range(20)}})
    generator = random.Random(3)
    cut = 0
    for attempt in range(8):
        process = start(source.path, tmp_path / f"d{attempt}")
        time.sleep(generator.uniform(0.0, 0.05))
        process.kill()
        process.wait(60)
        destination = DirectoryStore(tmp_path / f"d{attempt}")
        if destination.tags():  # it was too late to cut this one
            assert verify_store(destination, TAG, workers=1) == []
        else:
            cut += 1
            finish(source, destination)
    assert cut > 0


def test_two_copies_into_one_store_at_once(tmp_path: Path) -> None:
    sources = []
    for name in ("sm_90", "sm_103", "sm_120"):
        source = DirectoryStore(tmp_path / name, create=True)
        put_bundle(source, target=target(name))
        sources.append((source, f"demo-1.0-{name}"))
    running = [start(source.path, tmp_path / "d", tag) for source, tag in sources]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    destination = DirectoryStore(tmp_path / "d")
    assert len(find_bundles(destination)) == 3
    assert verify_store(destination, workers=1) == []
