from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import EnvbundleError, FormatError, HostError, TrustError
from envbundle.spec.digest import Digest
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import DirectoryStore, MemoryStore, Store
from envbundle.store.verify import verify_store
from envbundle.transfer.archive import ArchiveStore, open_archive
from envbundle.transfer.copy import copy_bundle, parse_unjudged
from envbundle.transfer.options import DEFAULTS
from envbundle.transfer.stream import receive_bundles, send_bundles
from envbundle.transfer.tar import member_header, padding, parse_header, read_members
from tests.store.builders import put_bundle, target
from tests.store.conformance import StoreConformance

TAG = "demo-1.0-sm_90"


class TestArchiveStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ArchiveStore:
        return open_archive(str(tmp_path / "store.tar"), create=True, _options=DEFAULTS)

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        assert isinstance(store, ArchiveStore)
        store._blobs[digest] = store._append(f"blobs/sha256/{digest.hex}", (data,), len(data))


@pytest.fixture
def source() -> MemoryStore:
    store = MemoryStore("source")
    put_bundle(store)
    put_bundle(store, target=target("sm_103"))
    return store


def make_archive(path: Path, source: Store, *tags: str) -> None:
    store = ArchiveStore(path, create=True)
    for tag in tags or (TAG,):
        copy_bundle(source, store, tag)
    store.close()


def sent(source: Store, *tags: str) -> bytes:
    stream = io.BytesIO()
    send_bundles(source, tags or (TAG,), stream, judge=parse_unjudged)
    return stream.getvalue()


def test_an_archive_holds_the_bundle_and_its_index_last(tmp_path: Path, source: MemoryStore) -> None:
    make_archive(tmp_path / "a.tar", source)
    with tarfile.open(tmp_path / "a.tar") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "out", filter="data")
    assert names[-1] == "index.json"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "out"]
    assert verify_store(DirectoryStore(tmp_path / "out"), workers=1) == []
    store = open_archive(str(tmp_path / "a.tar"), create=False, _options=DEFAULTS)
    assert read_bundle(store, TAG) == read_bundle(source, TAG)
    assert verify_store(store, workers=1) == []
    store.close()


def test_gnu_tar_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path, source: MemoryStore) -> None:
    make_archive(tmp_path / "a.tar", source)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "xf", tmp_path / "a.tar", "-C", tmp_path / "out"], check=True)
    for form in ("gnu", "ustar", "posix"):
        again = tmp_path / f"{form}.tar"
        subprocess.run(["tar", "cf", again, f"--format={form}", "-C", tmp_path / "out", "."], check=True)
        store = open_archive(str(again), create=False, _options=DEFAULTS)
        assert verify_store(store, workers=1) == []
        store.close()
        received = MemoryStore()
        with again.open("rb") as stream:
            receive_bundles(stream, received, judge=parse_unjudged)
        assert read_bundle(received, TAG) == read_bundle(source, TAG)


def test_more_bundles_go_into_an_archive_that_is_there(tmp_path: Path, source: MemoryStore) -> None:
    make_archive(tmp_path / "a.tar", source)
    store = ArchiveStore(tmp_path / "a.tar", create=True)
    store.put_extra("install.pyz", b"zip")
    assert copy_bundle(source, store, "demo-1.0-sm_103").sent_blobs == 1
    before = (tmp_path / "a.tar").read_bytes()
    store.abandon()
    assert (tmp_path / "a.tar").read_bytes() == before
    make_archive(tmp_path / "a.tar", source, "demo-1.0-sm_103")
    store = open_archive(str(tmp_path / "a.tar"), create=False, _options=DEFAULTS)
    assert [e.tag for e in store.tags()] == ["demo-1.0-sm_103", TAG]
    assert verify_store(store, workers=1) == []
    store.close()


@pytest.mark.parametrize("cut", [1, 300, 512, 700, 1500, 4000, -1])
def test_a_part_is_taken_up_where_it_was_cut(tmp_path: Path, source: MemoryStore, cut: int) -> None:
    store = ArchiveStore(tmp_path / "a.tar", create=True)
    for digest, size in source.blobs():
        store.put(source.read(digest, size))
    store.abandon()
    part = tmp_path / ".a.tar.part"
    os.truncate(part, part.stat().st_size + cut if cut < 0 else cut)
    resumed = ArchiveStore(tmp_path / "a.tar", create=True)
    whole = list(resumed.blobs())
    assert len(whole) < len(list(source.blobs()))
    assert all(resumed.rehash(digest) == digest for digest, _ in whole)
    result = copy_bundle(source, resumed, TAG)
    resumed.close()
    assert result.skipped_blobs <= len(whole)
    reader = open_archive(str(tmp_path / "a.tar"), create=False, _options=DEFAULTS)
    assert read_bundle(reader, TAG) == read_bundle(source, TAG)
    assert all(reader.rehash(d) == d for d, _ in reader.blobs())
    reader.close()


def test_a_damaged_part_is_not_believed(tmp_path: Path) -> None:
    store = ArchiveStore(tmp_path / "a.tar", create=True)
    first, second = store.put(b"one" * 300), store.put(b"two" * 300)
    store.abandon()
    part = tmp_path / ".a.tar.part"
    data = bytearray(part.read_bytes())
    data[1500 + 512] ^= 1
    part.write_bytes(data)
    store = ArchiveStore(tmp_path / "a.tar", create=True)
    assert store.has(first, 900)
    assert not store.has(second, 900)
    store.abandon()


def test_a_damaged_blob_is_replaced_and_its_bytes_go(tmp_path: Path, source: MemoryStore) -> None:
    make_archive(tmp_path / "a.tar", source)
    big = max(source.blobs(), key=lambda item: item[1])[0]
    reader = ArchiveStore(tmp_path / "a.tar")
    offset = reader._blobs[big].offset
    reader.close()
    data = bytearray((tmp_path / "a.tar").read_bytes())
    data[offset] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    store = ArchiveStore(tmp_path / "a.tar", create=True)
    assert copy_bundle(source, store, TAG, check=True).sent_blobs == 1
    store.close()
    reader = open_archive(str(tmp_path / "a.tar"), create=False, _options=DEFAULTS)
    assert verify_store(reader, workers=1) == []
    reader.close()
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert len(archive.getnames()) == len(set(archive.getnames()))


def test_a_cut_archive_is_no_store(tmp_path: Path, source: MemoryStore) -> None:
    make_archive(tmp_path / "a.tar", source)
    size = (tmp_path / "a.tar").stat().st_size
    for length in (0, 100, 512, size // 2, size - 1024 - 512):
        os.truncate(tmp_path / "a.tar", length)
        with pytest.raises(FormatError) as caught:
            ArchiveStore(tmp_path / "a.tar")
        assert caught.value.code in ("E-TAR-CUT", "E-TAR")
        make = tmp_path / "a.tar"
        make.unlink()
        make_archive(make, source)


def test_two_runs_do_not_write_one_archive(tmp_path: Path) -> None:
    one = ArchiveStore(tmp_path / "a.tar", create=True)
    one.put(b"x")
    with pytest.raises(HostError) as caught:
        ArchiveStore(tmp_path / "a.tar", create=True)
    assert caught.value.code == "E-STORE-BUSY"
    one.abandon()


def test_through_a_pipe(source: MemoryStore) -> None:
    data = sent(source, TAG, "demo-1.0-sm_103")
    received = MemoryStore()
    results = receive_bundles(io.BytesIO(data), received, judge=parse_unjudged)
    assert [r.tag for r in results] == ["demo-1.0-sm_103", TAG]
    assert verify_store(received, workers=1) == []
    assert list(received.blobs()) == list(source.blobs())
    again = receive_bundles(io.BytesIO(data), received, judge=parse_unjudged)
    assert sum(r.skipped_blobs for r in again) > 0
    one = MemoryStore()
    receive_bundles(
        io.BytesIO(data), one, judge=parse_unjudged, wanted=lambda d: d.content.target.name == "sm_103"
    )
    assert [e.tag for e in one.tags()] == ["demo-1.0-sm_103"]
    assert verify_store(one, workers=1) == []
    assert len(list(one.blobs())) < len(list(source.blobs()))


def test_a_refused_bundle_is_refused_before_a_chunk_is_kept(source: MemoryStore) -> None:
    received = MemoryStore()

    def refuse(ref: object) -> object:
        raise TrustError("E-SIG-UNTRUSTED", "demo")

    with pytest.raises(TrustError):
        receive_bundles(io.BytesIO(sent(source)), received, judge=refuse)  # type: ignore[arg-type]
    assert list(received.blobs()) == []
    out = io.BytesIO()
    with pytest.raises(TrustError):
        send_bundles(source, (TAG,), out, judge=refuse)  # type: ignore[arg-type]
    assert out.getvalue() == b""


@settings(max_examples=150, deadline=None)
@given(cut=st.floats(0, 0.999), flip=st.none() | st.tuples(st.floats(0, 0.999), st.integers(0, 7)))
def test_a_cut_or_flipped_stream_makes_nothing_wrong_visible(
    cut: float, flip: tuple[float, int] | None
) -> None:
    source = MemoryStore()
    put_bundle(source)
    data = bytearray(sent(source))
    if flip is not None:
        data[int(flip[0] * len(data))] ^= 1 << flip[1]
    else:
        del data[int(cut * (len(data) - 1024)) :]
    received = MemoryStore()
    try:
        receive_bundles(io.BytesIO(bytes(data)), received, judge=parse_unjudged)
    except EnvbundleError:
        assert received.tags() == ()
    else:
        assert verify_store(received, workers=1) == []
    assert all(received.rehash(d) == d for d, _ in received.blobs())


def test_a_pipe_whose_reader_goes_away(source: MemoryStore) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as stream, pytest.raises(HostError) as caught:
        send_bundles(source, (TAG,), stream, judge=parse_unjudged)
    assert caught.value.code == "E-PIPE"


@given(name=st.text("abc/._-0", min_size=1, max_size=100), size=st.integers(0, 8**11 - 1))
def test_headers_round_trip(name: str, size: int) -> None:
    header = parse_header(member_header(name, size), "x")
    assert header is not None
    assert header.member is not None
    assert header.size == header.member.size == size
    assert tarfile.TarInfo.frombuf(member_header(name, size), "ascii", "strict").size == size
    assert (size + len(padding(size))) % 512 == 0


@settings(max_examples=200)
@given(st.binary(max_size=3000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    stream = io.BytesIO(data)
    with contextlib.suppress(FormatError):
        for member, body in read_members(stream.read, "x"):
            assert len(body()) == member.size


def test_an_extended_header_may_not_rename(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("é" * 80)
        archive.addfile(info)
    with pytest.raises(FormatError) as caught:
        ArchiveStore(tmp_path / "a.tar")
    assert caught.value.code == "E-TAR"
