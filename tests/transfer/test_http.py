from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import EnvbundleError, HostError, IntegrityError, TransferError, UserInputError
from envbundle.spec.digest import Digest
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.verify import verify_store
from envbundle.transfer.copy import copy_bundle
from envbundle.transfer.http import HttpStore
from envbundle.transfer.location import open_location, parse_location
from envbundle.transfer.oci import registry_tag
from envbundle.transfer.registry import Reference, credentials_of, parse_reference
from tests.store.builders import noise, put_bundle

from .web_server import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator

TAG = "demo-1.0-sm_90"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    (tmp_path / "www" / "a b").mkdir(parents=True)
    store = DirectoryStore(tmp_path / "www" / "a b" / "store", create=True)
    put_bundle(store, files={"purelib/big.bin": noise(300_000, 3), "purelib/x.py": b"x"}, piece=100_000)
    found = WebServer(tmp_path / "www")
    yield found
    found.close()


@pytest.fixture
def store(server: WebServer) -> Iterator[HttpStore]:
    found = HttpStore(f"{server.url}/a%20b/store")
    yield found
    found.close()


def origin(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "www" / "a b" / "store")


def test_a_bundle_comes_over_http(tmp_path: Path, store: HttpStore) -> None:
    destination = DirectoryStore(tmp_path / "d", create=True)
    copy_bundle(store, destination, TAG, streams=4)
    assert verify_store(destination, workers=1) == []
    assert read_bundle(store, TAG) == read_bundle(origin(tmp_path), TAG) == read_bundle(destination, TAG)
    assert list(store.blobs()) == list(origin(tmp_path).blobs())
    assert verify_store(store, workers=1) == []


def test_a_cut_goes_on_from_there(tmp_path: Path, server: WebServer, store: HttpStore) -> None:
    digest, size = max(origin(tmp_path).blobs(), key=lambda item: item[1])
    server.cuts = 3
    assert len(store.read(digest, size)) == size
    ranges = [asked.rpartition(" ")[2] for asked in server.asked if "bytes=" in asked]
    assert ranges == [f"bytes={size // 2}-", f"bytes={size // 2 + (size - size // 2) // 2}-", ranges[2]]
    server.cuts = 9
    with pytest.raises(TransferError) as caught:
        store.read(digest, size)
    assert caught.value.code == "E-HTTP-CUT"


def test_a_server_without_ranges_sends_it_anew(tmp_path: Path, server: WebServer, store: HttpStore) -> None:
    digest, size = max(origin(tmp_path).blobs(), key=lambda item: item[1])
    server.ranges, server.cuts = False, 2
    assert Digest.of(store.read(digest, size)) == digest


def test_a_flipped_byte_is_caught_before_it_is_kept(
    tmp_path: Path, server: WebServer, store: HttpStore
) -> None:
    server.flip = True
    destination = DirectoryStore(tmp_path / "d", create=True)
    with pytest.raises(IntegrityError) as caught:
        copy_bundle(store, destination, TAG)
    assert caught.value.code == "E-BLOB-HASH"
    assert destination.tags() == ()
    assert all(destination.rehash(digest) == digest for digest, _ in destination.blobs())


def test_what_is_missing_longer_or_no_store(tmp_path: Path, server: WebServer, store: HttpStore) -> None:
    digest, size = max(origin(tmp_path).blobs(), key=lambda item: item[1])
    path = origin(tmp_path).blob_path(digest)
    assert store.lacking([(digest, size), (Digest.of(b"no"), 2)]) == {Digest.of(b"no")}
    with pytest.raises(IntegrityError) as caught:
        store.read(Digest.of(b"no"), 2)
    assert caught.value.code == "E-BLOB-MISSING"
    path.write_bytes(path.read_bytes() + b"more" * 1000)
    with pytest.raises(IntegrityError) as caught:
        store.read(digest, size)
    assert caught.value.code in ("E-SIZE", "E-BLOB-SIZE")
    nothing = HttpStore(f"{server.url}/nothing")
    with pytest.raises(IntegrityError) as caught:
        nothing.tags()
    assert caught.value.code == "E-STORE-LAYOUT"
    nothing.close()


def test_it_is_read_only(store: HttpStore) -> None:
    for write in (
        lambda: store.put(b"x"),
        lambda: store.remove(Digest.of(b"x")),
        lambda: store.write_index(lambda index: index),
        lambda: store.put_extra("x", b""),
        store.alone,
        store.writing,
        lambda: open_location(parse_location("https://host/x"), create=True),
    ):
        with pytest.raises(HostError) as caught:
            write()
        assert caught.value.code == "E-READ-ONLY"


def test_credentials_of_the_url_go_there_and_are_not_shown(server: WebServer) -> None:
    server.authorization = "Basic " + base64.b64encode(b"me:secret").decode()
    store = HttpStore(server.url.replace("://", "://me:secret@") + "/a%20b/store")
    assert [entry.tag for entry in store.tags()] == [TAG]
    assert "secret" not in store.name
    assert "secret" not in str(parse_location("https://me:secret@host/x"))
    store.close()
    without = HttpStore(server.url + "/a%20b/store")
    with pytest.raises(TransferError) as caught:
        without.tags()
    assert caught.value.code == "E-HTTP-STATUS"
    without.close()


def test_nothing_listens() -> None:
    store = HttpStore("http://127.0.0.1:1/x")
    with pytest.raises(TransferError) as caught:
        store.tags()
    assert caught.value.code == "E-HTTP-UNREACHABLE"
    store.close()


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "base"),
    [
        ("localhost:5000/a/b:1.0", "localhost:5000", "a/b", "1.0", "http://localhost:5000/v2/a/b"),
        ("127.0.0.1:5000/a", "127.0.0.1:5000", "a", "", "http://127.0.0.1:5000/v2/a"),
        (
            "reg.example/team/env-1:x_Y.z",
            "reg.example",
            "team/env-1",
            "x_Y.z",
            "https://reg.example/v2/team/env-1",
        ),
        ("[::1]:5000/a", "[::1]:5000", "a", "", "http://[::1]:5000/v2/a"),
    ],
)
def test_a_reference(text: str, registry: str, repository: str, tag: str, base: str) -> None:
    reference = parse_reference(text)
    assert reference == Reference(registry=registry, repository=repository, tag=tag)
    assert reference.base == base
    assert parse_reference(str(reference).removeprefix("oci://")) == reference


def test_a_reference_by_digest() -> None:
    digest = Digest.of(b"x")
    assert parse_reference(f"r/a@{digest}").digest == digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "reg",
        "reg/",
        "reg/A",
        "reg/a:",
        "reg/a:b c",
        "re g/a",
        "reg/../a",
        "reg/a@sha256:1",
        "u@reg/a",
        "reg/a?x",
        "reg:99999999/a",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_location(f"oci://{text}")
    assert caught.value.code == "E-LOCATION"


def test_tags_fit_a_registry() -> None:
    assert registry_tag("demo-1.0+cu130-sm_90") == "demo-1.0_cu130-sm_90"
    assert registry_tag("-x") == "_-x"
    assert len(registry_tag("x" * 300)) == 128


def test_credentials_are_those_of_a_login(tmp_path: Path) -> None:
    found = base64.b64encode(b"me:pw").decode()
    (tmp_path / "config.json").write_text('{"auths":{"reg:5000":{"auth":"' + found + '"},"bad":{"auth":7}}}')
    assert credentials_of("reg:5000", {"DOCKER_CONFIG": str(tmp_path)}) == found
    assert credentials_of("reg:5000", {"REGISTRY_AUTH_FILE": str(tmp_path / "config.json")}) == found
    assert credentials_of("other", {"DOCKER_CONFIG": str(tmp_path)}) is None
    assert credentials_of("bad", {"DOCKER_CONFIG": str(tmp_path)}) is None
    (tmp_path / "config.json").write_text("[")
    assert credentials_of("reg:5000", {"DOCKER_CONFIG": str(tmp_path)}) is None


def test_every_error_of_a_web_store_is_ours(tmp_path: Path, server: WebServer, store: HttpStore) -> None:
    (tmp_path / "www" / "a b" / "store" / "index.json").write_text("{}")
    with pytest.raises(EnvbundleError):
        store.tags()
