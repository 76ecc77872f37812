"""``oci://`` with a real registry: tokens, mounts, pieces that are cut, wrong bytes, and skopeo on the other side."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import IntegrityError, TransferError
from envbundle.host.fetch import Web
from envbundle.spec.digest import Digest
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import DirectoryStore, Store
from envbundle.store.oci import ImageIndex
from envbundle.store.verify import verify_store
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.location import open_location, parse_location
from envbundle.transfer.oci import OciStore
from envbundle.transfer.registry import Registry, parse_reference
from tests.store.builders import noise, put_bundle, target
from tests.store.conformance import StoreConformance, entry

from .hosts import ENVBUNDLE
from .registry import LOGIN, DockerRegistry, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e
TAG = "demo-1.0-sm_90"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    found = DockerRegistry(tmp_path_factory.mktemp("registry"))
    yield found
    found.stop()


@pytest.fixture
def repository(registry: DockerRegistry, request: pytest.FixtureRequest) -> str:
    return f"127.0.0.1:{registry.port}/{Digest.of(request.node.name.encode()).hex[:16]}"


@pytest.fixture
def proxy(registry: DockerRegistry) -> Iterator[Proxy]:
    found = Proxy(registry.port)
    yield found
    found.close()


def opened(reference: str, login: str | None = None) -> OciStore:
    web = Web()
    return OciStore(Registry(parse_reference(reference), web, login), web)


class TestOciStore(StoreConformance):
    """A registry lists manifests by tags only, so what concerns loose blobs and files beside is tried otherwise."""

    @pytest.fixture
    def store(self, repository: str) -> Iterator[OciStore]:
        found = opened(repository)
        yield found
        found.close()

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:  # noqa: ARG002
        raise AssertionError("the registry caches sizes: see test_wrong_bytes")

    @pytest.mark.parametrize("data", [b"some bytes"])
    def test_what_is_put_is_read(self, store: Store, data: bytes) -> None:
        for body in (data, b"", bytes(MIB)):
            digest = store.put(body)
            assert store.read(digest, len(body)) == body
            assert store.rehash(digest) == digest

    def test_putting_twice_is_putting_once(self, store: Store) -> None:
        assert store.put(b"same") == store.put(b"same")

    def test_blobs_come_in_the_order_of_digests(self, store: Store) -> None:
        descriptor = put_bundle(store)
        found = [digest for digest, _ in store.blobs()]
        assert found == sorted(found)
        assert {blob.blob for blob in descriptor.blobs.values()} <= set(found)

    def test_damage_is_found_before_bytes_are_returned(self, store: Store) -> None:  # type: ignore[override]
        digest = store.put(b"1234")
        with pytest.raises(IntegrityError) as caught:
            store.read(digest, 3)
        assert caught.value.code == "E-BLOB-SIZE"

    def test_a_tag_is_replaced_and_others_stay(self, store: Store) -> None:
        put_bundle(store, target=target("a"))
        put_bundle(store, target=target("b"))
        put_bundle(store, target=target("b"), files={"purelib/new.py": b"new"})
        assert isinstance(store, OciStore)
        store._index = None
        assert [e.tag for e in store.tags()] == ["demo-1.0-a", "demo-1.0-b"]

    def test_a_change_that_fails_changes_nothing(self, store: Store) -> None:
        def fail(index: ImageIndex) -> ImageIndex:
            raise ValueError(index)

        with pytest.raises(ValueError, match="ImageIndex"):
            store.write_index(fail)
        with pytest.raises(IntegrityError):
            store.write_index(lambda index: index.with_entry(entry("a")))
        assert isinstance(store, OciStore)
        store._index = None
        assert store.tags() == ()

    def test_two_writers_both_land(self, store: Store) -> None:
        assert isinstance(store, OciStore)
        other = opened(f"{store.reference.registry}/{store.reference.repository}")
        assert store.tags() == other.tags() == ()
        put_bundle(store, target=target("a"))
        put_bundle(other, target=target("b"))
        store._index = None
        assert [e.tag for e in store.tags()] == ["demo-1.0-a", "demo-1.0-b"]
        other.close()

    def test_threads_may_put_and_read_at_once(self, store: Store) -> None:
        put_bundle(store)
        assert verify_store(store, workers=3) == []

    def test_files_beside_the_layout(self, store: Store) -> None:
        assert store.extras() == ()

    def test_documents_are_what_the_index_reads(self, store: Store) -> None:
        put_bundle(store)
        assert ImageIndex.from_bytes(dict(store.documents())["index.json"]) == store.read_index()


@pytest.fixture
def source(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path / "source", create=True)
    files = {f"purelib/f{n}.bin": noise(100_000, n) for n in range(6)} | {
        "purelib/big.bin": noise(20 * MIB, 9)
    }
    put_bundle(store, files=files, signatures=(), piece=32 * MIB)
    return store


def test_push_pull_and_skopeo_both_ways(tmp_path: Path, source: DirectoryStore, repository: str) -> None:
    store = opened(repository)
    result = copy_bundle(source, store, TAG, via="oci")
    assert result.sent_blobs > 3
    assert copy_bundle(source, store, TAG, via="oci").sent_blobs == 0
    store.close()
    pulled = DirectoryStore(tmp_path / "pulled", create=True)
    again = opened(f"{repository}:{TAG}")
    copy_bundle(again, pulled, TAG)
    again.close()
    assert dict(pulled.documents()) == dict(source.documents())
    assert verify_store(pulled, workers=2) == []
    plain = ["--src-tls-verify=false", "--dest-tls-verify=false"]
    subprocess.run(
        ["skopeo", "copy", "-q", *plain, f"docker://{repository}:{TAG}", f"oci:{tmp_path}/by:{TAG}"],
        check=True,
    )
    assert read_bundle(DirectoryStore(tmp_path / "by"), TAG) == read_bundle(source, TAG)
    subprocess.run(
        ["skopeo", "copy", "-q", *plain, f"oci:{source.path}:{TAG}", f"docker://{repository}-two:{TAG}"],
        check=True,
    )
    other = opened(f"{repository}-two")
    assert read_bundle(other, TAG) == read_bundle(source, TAG)
    other.close()


def test_another_tag_is_only_another_name(source: DirectoryStore, repository: str) -> None:
    store = opened(f"{repository}:stable")
    copy_bundle(source, store, TAG)
    store.close()
    again = opened(f"{repository}:stable")
    assert [e.tag for e in again.tags()] == [TAG]
    assert read_bundle(again, TAG).bundle_id == read_bundle(source, TAG).bundle_id
    again.close()


def test_a_token_is_fetched_with_the_login(source: DirectoryStore, repository: str, proxy: Proxy) -> None:
    proxy.token = True
    name = f"{proxy.host}/{repository.partition('/')[2]}"
    without = opened(name)
    with pytest.raises(TransferError) as caught:
        without.tags()
    assert caught.value.code == "E-HTTP-STATUS"
    without.close()
    proxy.asked.clear()
    store = opened(name, LOGIN)
    copy_bundle(source, store, TAG, streams=4)
    assert read_bundle(store, TAG) == read_bundle(source, TAG)
    assert sum(asked.startswith("GET /token") for asked in proxy.asked) == 1
    store.close()


@pytest.mark.parametrize("forwarding", [False, True])
def test_a_piece_that_is_cut_goes_on(
    source: DirectoryStore, repository: str, proxy: Proxy, forwarding: bool
) -> None:
    proxy.cuts, proxy.forwarding = 2, forwarding
    store = opened(f"{proxy.host}/{repository.partition('/')[2]}")
    copy_bundle(source, store, TAG)
    assert read_bundle(store, TAG) == read_bundle(source, TAG)
    assert verify_store(store, workers=2) == []
    total = sum(size for _, size in source.blobs())
    again = 20 * MIB if forwarding else 8 * MIB  # one blob at most for each cut, mostly one piece
    assert proxy.received < total + 2 * again
    store.close()


def test_wrong_bytes_are_caught(
    tmp_path: Path, source: DirectoryStore, repository: str, proxy: Proxy
) -> None:
    name = f"{proxy.host}/{repository.partition('/')[2]}"
    store = opened(name)
    copy_bundle(source, store, TAG)
    proxy.flip = True
    pulled = DirectoryStore(tmp_path / "pulled", create=True)
    with pytest.raises(IntegrityError) as caught:
        copy_bundle(store, pulled, TAG)
    assert caught.value.code == "E-BLOB-HASH"
    assert pulled.tags() == ()
    assert all(pulled.rehash(digest) == digest for digest, _ in pulled.blobs())
    store.close()


def test_the_registry_itself_serves_wrong_bytes(
    tmp_path: Path, source: DirectoryStore, repository: str, registry: DockerRegistry
) -> None:
    store = opened(repository)
    copy_bundle(source, store, TAG)
    digest, size = max(source.blobs(), key=lambda item: item[1])
    file = registry.blob_file(digest.hex)
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    try:
        with pytest.raises(IntegrityError) as caught:
            store.read(digest, size)
        assert caught.value.code == "E-BLOB-HASH"
        assert store.rehash(digest) != digest
    finally:
        data[1000] ^= 1
        file.write_bytes(data)
        store.close()


def test_a_neighbour_repository_is_mounted(source: DirectoryStore, repository: str, proxy: Proxy) -> None:
    base = repository.partition("/")[2]
    one, two = opened(f"{proxy.host}/{base}"), opened(f"{proxy.host}/{base}-two")
    copy_bundle(source, one, TAG)
    before = proxy.received
    copy_bundle(one, two, TAG)
    assert proxy.received - before < 200_000
    assert read_bundle(two, TAG) == read_bundle(source, TAG)
    assert verify_store(two, workers=2) == []
    one.close()
    two.close()


def test_the_command_line(tmp_path: Path, source: DirectoryStore, repository: str) -> None:
    def copy(*words: str) -> dict[str, object]:
        done = subprocess.run(
            [ENVBUNDLE, "copy", *words, "--json", "--allow-unsigned"],
            capture_output=True,
            text=True,
            check=True,
        )
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    assert copy(str(source.path), f"oci://{repository}")["via"] == "oci"
    copy(f"oci://{repository}:{TAG}", str(tmp_path / "back"))
    assert verify_store(DirectoryStore(tmp_path / "back"), workers=1) == []
    copy(f"oci://{repository}", str(tmp_path / "x.tar"))
    assert (tmp_path / "x.tar").is_file()


def test_200_blobs_against_skopeo(tmp_path: Path, repository: str) -> None:
    """The same layout to the same registry: at least 0.8 of skopeo's rate."""
    store = DirectoryStore(tmp_path / "many", create=True)
    files = {f"purelib/f{n:03}.bin": noise(MIB // 2, n) for n in range(200)}
    put_bundle(store, files=files, signatures=(), piece=MIB // 2)
    began = time.monotonic()
    ours = open_location(parse_location(f"oci://{repository}"), create=True)
    copy_bundle(store, ours, TAG, streams=4)
    own = time.monotonic() - began
    assert isinstance(ours, OciStore)
    ours.close()
    began = time.monotonic()
    subprocess.run(
        [
            "skopeo",
            "copy",
            "-q",
            "--dest-tls-verify=false",
            f"oci:{store.path}:{TAG}",
            f"docker://{repository}-s:{TAG}",
        ],
        check=True,
    )
    theirs = time.monotonic() - began
    assert own < theirs / 0.8, f"{own:.1f} s, skopeo {theirs:.1f} s"
