from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from envbundle.errors import FormatError, HostError, IntegrityError
from envbundle.spec.digest import Digest
from envbundle.store.layout import DirectoryStore, MemoryStore, Store

from .conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        assert isinstance(store, MemoryStore)
        store._blobs[digest] = data


class TestDirectoryStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DirectoryStore:
        return DirectoryStore(tmp_path / "store", create=True)

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        assert isinstance(store, DirectoryStore)
        store.blob_path(digest).write_bytes(data)


def test_a_new_folder_is_an_oci_layout(tmp_path: Path) -> None:
    DirectoryStore(tmp_path / "a" / "b", create=True)
    root = tmp_path / "a" / "b"
    assert (root / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    assert (root / "blobs" / "sha256").is_dir()
    assert DirectoryStore(root, create=True).tags() == DirectoryStore(root).tags() == ()


@pytest.mark.parametrize(
    ("prepare", "create", "code"),
    [
        (lambda _: None, False, "E-NOT-FOUND"),
        (lambda p: p.mkdir(), False, "E-NOT-A-STORE"),
        (lambda p: (p.mkdir(), (p / "thesis.txt").touch()), True, "E-NOT-A-STORE"),
        (lambda p: p.touch(), True, "E-EXISTS"),
        (lambda p: p.touch(), False, "E-NOT-FOUND"),
    ],
    ids=["missing", "empty", "other content", "a file, create", "a file"],
)
def test_what_is_no_store(tmp_path: Path, prepare: object, create: bool, code: str) -> None:
    path = tmp_path / "x"
    prepare(path)  # type: ignore[operator]
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(HostError) as caught:
        DirectoryStore(path, create=create)
    assert caught.value.code == code
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_store_that_lost_its_marker_is_damaged_and_not_unknown(tmp_path: Path) -> None:
    DirectoryStore(tmp_path / "s", create=True)
    (tmp_path / "s" / "oci-layout").unlink()
    with pytest.raises(FormatError) as caught:
        DirectoryStore(tmp_path / "s").read_index()
    assert caught.value.code == "E-STORE-LAYOUT"


def test_reading_a_store_writes_nothing(tmp_path: Path) -> None:
    digest = DirectoryStore(tmp_path / "s", create=True).put(b"data")
    for path in sorted((tmp_path / "s" / ".incoming").iterdir()):
        path.unlink()
    (tmp_path / "s" / ".incoming").rmdir()
    before = sorted(tmp_path.rglob("*"))
    store = DirectoryStore(tmp_path / "s")
    store.read(digest, 4)
    store.tags()
    store.rehash(digest)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_a_blob_that_is_no_regular_file_does_not_exist(tmp_path: Path, kind: str) -> None:
    store = DirectoryStore(tmp_path / "s", create=True)
    (tmp_path / "secret").write_bytes(b"data")
    digest = Digest.of(b"data")
    path = store.blob_path(digest)
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert not store.has(digest, 4)
    assert list(store.blobs()) == []
    assert store.extras() == (f"blobs/sha256/{digest.hex}",)
    with pytest.raises(IntegrityError) as caught:
        store.read(digest, 4)
    assert caught.value.code == "E-BLOB-MISSING"


def test_a_size_that_nobody_can_hold_is_refused_before_reading(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "s", create=True)
    digest = Digest.of(b"sparse")
    with store.blob_path(digest).open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(IntegrityError) as caught:
        store.read(digest, 1 << 40)
    assert caught.value.code == "E-BLOB-SIZE"


def test_the_umask_of_the_writer_holds_for_blobs(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = DirectoryStore(tmp_path / "s", create=True)
        digest = store.put(b"private")
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.blob_path(digest).stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "s", create=True)
    blobs = tmp_path / "s" / "blobs" / "sha256"
    blobs.rmdir()
    blobs.touch()
    with pytest.raises(HostError) as caught:
        store.put(b"data")
    assert caught.value.code == "E-NOT-FOUND"
    assert store.leftovers() == ()


def test_alone_is_refused_while_another_writes(tmp_path: Path) -> None:
    store, other = (DirectoryStore(tmp_path / "s", create=True) for _ in range(2))
    with other.writing():
        with pytest.raises(HostError) as caught, store.alone():
            pass
        assert caught.value.code == "E-STORE-BUSY"
    with store.alone():
        pass


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("oci-layout", b'{"imageLayoutVersion":"2.0.0"}', "E-STORE-LAYOUT"),
        ("oci-layout", b"[]", "E-STORE-LAYOUT"),
        ("oci-layout", b"\xff", "E-STORE-LAYOUT"),
        ("index.json", b"", "E-STORE-INDEX"),
        ("index.json", b"null", "E-STORE-INDEX"),
        ("index.json", b'{"schemaVersion":1,"manifests":[]}', "E-STORE-INDEX"),
        ("index.json", b'{"schemaVersion":2}', "E-STORE-INDEX"),
        ("index.json", b'{"schemaVersion":2,"manifests":[],"manifests":[]}', "E-STORE-INDEX"),
        ("index.json", b'{"schemaVersion":2,"manifests":[{}]}', "E-STORE-INDEX"),
        ("index.json", b"[" * 100_000, "E-STORE-INDEX"),
        ("index.json", b"[" + b" " * (4 << 20) + b"]", "E-STORE-INDEX"),
        ("index.json", None, "E-STORE-LAYOUT"),
    ],
)
def test_a_damaged_index(tmp_path: Path, name: str, data: bytes | None, code: str) -> None:
    store = DirectoryStore(tmp_path / "s", create=True)
    if data is None:
        (tmp_path / "s" / name).unlink()
    else:
        (tmp_path / "s" / name).write_bytes(data)
    with pytest.raises(FormatError) as caught:
        store.read_index()
    assert caught.value.code == code


def test_two_processes_that_pack_into_one_store_both_land(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.store.builders import put_bundle, target
        from envbundle.store.layout import DirectoryStore
        for number in range(5):
            store = DirectoryStore(Path(sys.argv[1]), create=True)
            put_bundle(store, target=target(f"{sys.argv[2]}{number}"))
        """
    )
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "s"), name], cwd=root)
        for name in ("one", "two", "three")
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    store = DirectoryStore(tmp_path / "s")
    assert len(store.tags()) == 15
    assert store.leftovers() == ()
