"""What every ``Store`` must do. A test class for a new store derives from this one and gives a fixture."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import ImageIndex, Store, TagEntry

from .builders import put_bundle


def entry(tag: str, data: bytes = b"{}") -> TagEntry:
    return TagEntry(tag=tag, manifest=Digest.of(data), size=len(data))


class StoreConformance:
    """Derive, and give a ``store`` fixture: an empty store."""

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        """Put ``data`` under the name ``digest``, behind the store's back."""
        raise NotImplementedError

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.tags() == ()
        assert list(store.blobs()) == []
        assert store.extras() == store.leftovers() == ()

    @pytest.mark.parametrize("data", [b"", b"x", bytes(1 << 20)], ids=["empty", "one byte", "1 MiB"])
    def test_what_is_put_is_read(self, store: Store, data: bytes) -> None:
        digest = store.put(data)
        assert digest == Digest.of(data)
        assert store.read(digest, len(data)) == data
        assert store.rehash(digest) == digest
        assert list(store.blobs()) == [(digest, len(data))]

    def test_putting_twice_is_putting_once(self, store: Store) -> None:
        assert store.put(b"same") == store.put(b"same")
        assert len(list(store.blobs())) == 1
        assert store.leftovers() == ()

    def test_has_means_the_name_and_the_size(self, store: Store) -> None:
        digest = store.put(b"1234")
        assert store.has(digest, 4)
        assert not store.has(digest, 3)
        assert not store.has(Digest.of(b"other"), 4)
        absent = Digest.of(b"absent")
        assert store.lacking([(digest, 4), (absent, 1)]) == {absent}

    def test_blobs_come_in_the_order_of_digests(self, store: Store) -> None:
        put = {store.put(bytes([n])) for n in range(20)}
        assert [digest for digest, _ in store.blobs()] == sorted(put)

    def test_a_missing_blob(self, store: Store) -> None:
        for read in (lambda d: store.read(d, 1), store.rehash):
            with pytest.raises(IntegrityError) as caught:
                read(Digest.of(b"absent"))
            assert caught.value.code == "E-BLOB-MISSING"

    @pytest.mark.parametrize(
        ("stands", "code"),
        [(b"12x4", "E-BLOB-HASH"), (b"123", "E-BLOB-SIZE"), (b"12345", "E-BLOB-SIZE"), (b"", "E-BLOB-SIZE")],
    )
    def test_damage_is_found_before_bytes_are_returned(self, store: Store, stands: bytes, code: str) -> None:
        digest = store.put(b"1234")
        self.damage(store, digest, stands)
        with pytest.raises(IntegrityError) as caught:
            store.read(digest, 4)
        assert caught.value.code == code
        assert store.rehash(digest) == Digest.of(stands)

    def test_removing(self, store: Store) -> None:
        digest = store.put(b"gone")
        store.remove(digest)
        store.remove(digest)
        assert not store.has(digest, 4)

    def test_a_tag_is_replaced_and_others_stay(self, store: Store) -> None:
        store.write_index(lambda index: index.with_entry(entry("b")))
        store.write_index(lambda index: index.with_entry(entry("a")))
        store.write_index(lambda index: index.with_entry(entry("b", b"new")))
        assert store.tags() == (entry("a"), entry("b", b"new"))

    def test_a_change_that_fails_changes_nothing(self, store: Store) -> None:
        store.write_index(lambda index: index.with_entry(entry("a")))

        def fail(index: ImageIndex) -> ImageIndex:
            raise ValueError(index)

        with pytest.raises(ValueError, match="ImageIndex"):
            store.write_index(fail)
        assert store.tags() == (entry("a"),)

    def test_two_writers_both_land(self, store: Store) -> None:
        gate = threading.Barrier(8)

        def add(number: int) -> None:
            gate.wait()
            store.write_index(lambda index: index.with_entry(entry(f"t{number}")))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(8)))
        assert [e.tag for e in store.tags()] == [f"t{n}" for n in range(8)]

    def test_threads_may_put_and_read_at_once(self, store: Store) -> None:
        datas = [bytes([n % 7]) * 5000 for n in range(60)]
        with ThreadPoolExecutor(8) as pool:
            digests = list(pool.map(store.put, datas))
            assert list(pool.map(lambda d: store.read(d, 5000), digests)) == datas
        assert len(list(store.blobs())) == 7
        assert store.leftovers() == ()

    def test_files_beside_the_layout(self, store: Store) -> None:
        store.put_extra("install.pyz", b"zip")
        assert store.extras() == ("install.pyz",)
        assert store.rehash_extra("install.pyz") == Digest.of(b"zip")
        for name in ("../x", "a/b", ".hidden", "index.json", "oci-layout", "blobs", "", "a\n"):
            with pytest.raises(IntegrityError) as caught:
                store.put_extra(name, b"")
            assert caught.value.code == "E-PATH"

    def test_documents_are_what_the_index_reads(self, store: Store) -> None:
        store.write_index(lambda index: index.with_entry(entry("a")))
        documents = dict(store.documents())
        assert set(documents) == {"oci-layout", "index.json"}
        assert ImageIndex.from_bytes(documents["index.json"]) == store.read_index()

    def test_a_whole_bundle(self, store: Store) -> None:
        descriptor = put_bundle(store)
        assert read_bundle(store, descriptor.tag).descriptor == descriptor.to_bytes()

    def test_nobody_is_alone_while_somebody_writes(self, store: Store) -> None:
        with store.writing(), store.writing():
            store.put(b"x")
        with store.alone():
            pass
