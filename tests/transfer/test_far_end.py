from __future__ import annotations

import ast
import io
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import HostError, IntegrityError, TransferError
from envbundle.spec.digest import Digest
from envbundle.store.bundle import read_bundle
from envbundle.store.layout import DirectoryStore, Store
from envbundle.store.verify import verify_store
from envbundle.transfer import far_end
from envbundle.transfer.channel import far_end_source
from envbundle.transfer.copy import copy_bundle
from tests.store.builders import put_bundle
from tests.store.conformance import StoreConformance

from .far import WORDS, local_channel, local_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envbundle.transfer.far_store import FarStore

TAG = "demo-1.0-sm_90"
HEADS = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.none(), max_size=4)


class TestFarStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FarStore]:
        store = local_store(tmp_path / "store", streams=2)
        yield store
        store.close()

    def damage(self, store: Store, digest: Digest, data: bytes) -> None:
        (Path(store.root) / "blobs" / "sha256" / digest.hex).write_bytes(data)  # type: ignore[attr-defined]


@given(
    kind=st.sampled_from([far_end.REQUEST, far_end.ANSWER, far_end.FAULT]),
    number=st.integers(0, 2**32 - 1),
    head=HEADS,
    body=st.binary(max_size=300),
)
def test_frames_round_trip(kind: int, number: int, head: dict[str, Any], body: bytes) -> None:
    stream = io.BytesIO(far_end.pack_frame(kind, number, head, len(body)) + body)
    frame = far_end.read_frame(stream.read)
    assert frame is not None
    prefix, found, data = frame
    assert (prefix.kind, prefix.number, found, data) == (kind, number, head, body)
    assert far_end.read_frame(stream.read) is None


@settings(max_examples=300)
@given(head=HEADS, body=st.binary(max_size=60), place=st.floats(0, 0.9999), bit=st.integers(0, 7))
def test_a_flipped_bit_is_seen(head: dict[str, Any], body: bytes, place: float, bit: int) -> None:
    head = far_end.state_crc(head, body)
    data = bytearray(far_end.pack_frame(far_end.ANSWER, 1, head, len(body)) + body)
    data[int(place * len(data))] ^= 1 << bit

    def read() -> None:
        frame = far_end.read_frame(io.BytesIO(bytes(data)).read)
        assert frame is not None
        far_end.check_crc(frame[1], frame[2])

    with pytest.raises(far_end.FrameError):
        read()


@settings(max_examples=300)
@given(data=st.binary(max_size=200), cut=st.integers(0, 40))
def test_any_bytes_are_a_frame_or_an_error(data: bytes, cut: int) -> None:
    whole = far_end.pack_frame(far_end.REQUEST, 7, {"op": "free"}, 3) + b"abc"
    for stream in (io.BytesIO(data), io.BytesIO(whole[:cut] + data)):
        try:
            frame = far_end.read_frame(stream.read)
        except far_end.FrameError:
            continue
        assert frame is None or far_end.pack_frame(
            frame[0].kind, frame[0].number, frame[1], len(frame[2])
        ).startswith(far_end.MAGIC)


@settings(max_examples=150, deadline=None)
@given(
    head=st.fixed_dictionaries(
        {
            "op": st.sampled_from(
                [n[3:] for n in dir(far_end.FarStore) if n.startswith("op_") and n != "op_open"]
            )
        },
        optional={
            "digest": st.none() | st.text(max_size=5) | st.just("0" * 64) | st.just("../../x"),
            "size": st.none() | st.integers(-1, 2**70),
            "blobs": st.none() | st.lists(st.none() | st.text(max_size=3)),
            "name": st.none() | st.text(max_size=5) | st.just("../x"),
            "names": st.none() | st.lists(st.just("../x")),
            "held": st.integers() | st.text(max_size=2),
            "alone": st.booleans(),
        },
    ),
    body=st.binary(max_size=20),
)
def test_any_request_is_answered_and_writes_nothing_outside(
    head: dict[str, Any], body: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("far")
    (place / "x").write_bytes(b"keep")
    store = far_end.FarStore()
    store.op_open({"path": str(place / "store"), "create": True}, b"")
    kind, reply, _ = far_end.answer(store, head, body)
    assert kind in (far_end.ANSWER, far_end.FAULT)
    assert kind == far_end.ANSWER or {"kind", "subject"} <= set(reply)
    assert {p.name for p in place.iterdir()} <= {"x", "store"}
    assert (place / "x").read_bytes() == b"keep"
    for fd in (*store.held.values(), store.index_lock):
        if fd >= 0:
            os.close(fd)


def test_the_far_end_is_small_stdlib_and_python_3_8() -> None:
    source = far_end_source().decode("ascii")
    tree = ast.parse(source, feature_version=(3, 8))
    assert source.count("\n") < 560
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert {name.split(".")[0] for name in modules} <= sys.stdlib_module_names


def test_a_store_made_by_the_far_end_is_the_one_we_make(tmp_path: Path) -> None:
    far = local_store(tmp_path / "far")
    near = DirectoryStore(tmp_path / "near", create=True)
    assert far.documents() == near.documents()
    put_bundle(far)
    put_bundle(near)
    far.close()
    assert DirectoryStore(tmp_path / "far").documents() == near.documents()
    assert verify_store(DirectoryStore(tmp_path / "far"), workers=1) == []
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == sorted(
        p.name for p in (tmp_path / "near").iterdir()
    )


@pytest.mark.parametrize("streams", [1, 3])
def test_a_relay_between_two_far_ends(tmp_path: Path, streams: int) -> None:
    put_bundle(DirectoryStore(tmp_path / "a", create=True))
    source = local_store(tmp_path / "a", create=False, streams=streams)
    destination = local_store(tmp_path / "b", streams=streams)
    result = copy_bundle(source, destination, TAG, streams=streams * 2)
    assert result.sent_blobs > 3
    source.close()
    destination.close()
    near = DirectoryStore(tmp_path / "b")
    assert verify_store(near, workers=1) == []
    assert near.leftovers() == ()
    assert read_bundle(near, TAG) == read_bundle(DirectoryStore(tmp_path / "a"), TAG)


@pytest.mark.parametrize(
    "name", ["a b", "$(touch p)", "it's", 'say "x"', "`touch p`", "ü\\n", "-rf", "a;touch p"]
)
def test_paths_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    store = local_store(tmp_path / name)
    store.put(b"x")
    store.close()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("case", ["missing", "other", "file"])
def test_what_is_no_store(tmp_path: Path, case: str) -> None:
    path = tmp_path / "x"
    if case == "other":
        path.mkdir()
        (path / "thesis.txt").touch()
    elif case == "file":
        path.touch()
    with pytest.raises(HostError) as caught:
        local_store(path, create=case != "missing")
    assert caught.value.code == {"missing": "E-NOT-FOUND", "other": "E-NOT-A-STORE", "file": "E-EXISTS"}[case]
    assert caught.value.subject.startswith("far: ")


def test_an_empty_store_is_unmade(tmp_path: Path) -> None:
    store = local_store(tmp_path / "x")
    store.unmake()
    store.close()
    assert list(tmp_path.iterdir()) == []
    store = local_store(tmp_path / "x")
    store.put(b"1")
    store.unmake()
    store.close()
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    "noise", ["hello\n", "no newline", "\x00\xff\n" * 50, "a" * 100_000, "envbundle\n\n\n"], ids=ascii
)
def test_a_talking_shell_is_passed_over(tmp_path: Path, noise: str) -> None:
    data = noise.encode("latin-1")
    talk = f"import os;os.write(1,{data!r});"
    channel = local_channel((*WORDS[:3], talk + far_end.BOOT))
    assert channel.call("open", path=str(tmp_path / "s"), create=True)[0]["made"] == "folder"
    assert len(channel.noise) >= len(noise.strip()) - 1
    channel.close()


def test_a_shell_that_never_stops_talking_is_left(tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        local_channel(("sh", "-c", "while :; do echo hello; done"))
    assert caught.value.code == "E-SSH-CUT"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo 'sh: 1: python3: not found' >&2; exit 127", "E-FAR-PYTHON"),
        ("echo 'zsh:1: command not found: python3' >&2; exit 127", "E-FAR-PYTHON"),
        ("echo 'fish: Unknown command: python3' >&2; exit 127", "E-FAR-PYTHON"),
        ("echo 'Python 3.8 or newer is needed, this is 3.6.9' >&2; exit 1", "E-FAR-PYTHON"),
        ("echo 'Host key verification failed.' >&2; exit 255", "E-SSH-HOST-KEY"),
        ("echo 'me@x: Permission denied (publickey).' >&2; exit 255", "E-SSH-LOGIN"),
        ("echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255", "E-SSH-UNREACHABLE"),
        ("exit 255", "E-SSH-CUT"),
    ],
)
def test_why_a_connection_did_not_come_up(script: str, code: str) -> None:
    with pytest.raises(TransferError) as caught:
        local_channel(("sh", "-c", script))
    assert caught.value.code == code
    assert caught.value.subject == "far"


def test_a_far_end_that_dies_ends_every_request(tmp_path: Path) -> None:
    store = local_store(tmp_path / "s")
    pid = store._first._pipe.pid
    gate = threading.Barrier(5)

    def put(number: int) -> str:
        gate.wait()
        if number == 0:
            os.kill(pid, 9)
        try:
            for _ in range(1000):
                store.put(os.urandom(200_000))
        except TransferError as fault:
            return fault.code
        return ""

    with ThreadPoolExecutor(5) as pool:
        assert set(pool.map(put, range(5))) == {"E-SSH-CUT"}
    with pytest.raises(TransferError):
        store.free()
    store.close()
    near = DirectoryStore(tmp_path / "s")
    assert all(near.rehash(digest) == digest for digest, _ in near.blobs())


def test_a_blob_that_was_changed_on_the_way_is_not_kept(tmp_path: Path) -> None:
    channel = local_channel()
    channel.call("open", path=str(tmp_path / "s"), create=True)
    with pytest.raises(IntegrityError) as caught:
        channel.call("put", b"other", digest=Digest.of(b"this").hex)
    assert caught.value.code == "E-BLOB-HASH"
    channel.close()
    assert list(DirectoryStore(tmp_path / "s").blobs()) == []
    assert DirectoryStore(tmp_path / "s").leftovers() == ()


def test_local_and_far_writers_exclude_each_other(tmp_path: Path) -> None:
    far = local_store(tmp_path / "s")
    near = DirectoryStore(tmp_path / "s")
    with near.writing(), pytest.raises(HostError) as caught, far.alone():
        pass
    assert caught.value.code == "E-STORE-BUSY"
    with far.writing(), pytest.raises(HostError) as caught, near.alone():
        pass
    assert caught.value.code == "E-STORE-BUSY"
    with far.alone():
        pass
    far.close()


def test_reading_through_a_far_end_writes_nothing(tmp_path: Path) -> None:
    put_bundle(DirectoryStore(tmp_path / "s", create=True))
    before = sorted((p, p.lstat().st_mtime_ns) for p in (tmp_path / "s").rglob("*"))
    store = local_store(tmp_path / "s", create=False)
    copy_bundle(store, DirectoryStore(tmp_path / "other", create=True), TAG)
    store.close()
    assert sorted((p, p.lstat().st_mtime_ns) for p in (tmp_path / "s").rglob("*")) == before
