"""Packs: reuse, sharing, and the same bundle on any machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbundle.bundler.chunks import ChunkWriter
from envbundle.bundler.sign import commit_signed
from envbundle.errors import HostError, VerdictError
from envbundle.progress import Silent
from envbundle.spec.digest import Digest
from envbundle.spec.lock import Contested
from envbundle.store.bundle import check_bundle, read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.memory import MemoryStore
from envbundle.store.read import read_layer, read_plain

from .builders import Shelf, big_wheel, lock_of, run_pack

if TYPE_CHECKING:
    from envbundle.spec.lock import LockedPackage

ROOT = Path(__file__).resolve().parents[2]


def three(shelf: Shelf) -> tuple[LockedPackage, ...]:
    return (
        shelf.wheel("beta", files={"beta/x.py": b"x = 1\n" * 9000, "beta/big.so": bytes(range(256)) * 9000}),
        shelf.wheel("alpha", files={"alpha/y.py": b"y = 2\n"}),
        shelf.wheel(
            "gamma", files={"gamma.py": b"y = 2\n"}, entry_points={"console_scripts": {"g": "gamma:y"}}
        ),
    )


def test_the_descriptor_holds_what_lock_and_manifest_say() -> None:
    shelf, store = Shelf(), MemoryStore()
    packages = three(shelf)
    built = replace(packages[0], origin="built")
    result = run_pack(lock_of(built, *packages[1:]), shelf, store)
    content = result.descriptor.content
    assert [(layer.distribution, layer.origin) for layer in content.layers] == [
        ("alpha", "published"),
        ("beta", "built"),
        ("gamma", "published"),
    ]
    assert (content.name, content.version, content.serial) == ("demo", "1.0", 7)
    assert content.layout["prefix"] == "/opt/demo"
    assert content.environment == {"CUDA_HOME": "/usr/local/cuda"}
    assert content.checks == ({"network": "denied", "timeout": 300, "import": ["demo"]},)
    assert content.invariants == ({"kind": "path", "path": "/models"},)
    assert content.requires == {"glibc": "2.17"}
    assert read_plain(store, result.descriptor, content.lock) == b"the lock"
    assert read_plain(store, result.descriptor, result.descriptor.manifest) == b"the manifest"
    assert (result.layers, result.layers_reused) == (3, 0)
    assert result.new_bytes == result.stored_bytes == sum(size for _, size in store.blobs())
    assert result.plain_bytes == sum(blob.plain_size for blob in result.descriptor.blobs.values())


def test_nothing_is_visible_before_the_commit() -> None:
    shelf, store = Shelf(), MemoryStore()
    result = run_pack(lock_of(*three(shelf)), shelf, store)
    assert store.tags() == ()
    committed = commit_signed(store, result.descriptor, [])
    assert [entry.tag for entry in store.tags()] == [committed.tag] == ["demo-1.0-sm_90"]
    check_bundle(read_bundle(store, committed.tag), result.descriptor)


def test_a_second_pack_opens_no_wheel_and_writes_nothing(tmp_path: Path) -> None:
    shelf, store = Shelf(), DirectoryStore(tmp_path / "store", create=True)
    lock = lock_of(*three(shelf))
    first = run_pack(lock, shelf, store, cache=tmp_path / "cache")
    shelf.opened.clear()
    second = run_pack(lock, shelf, store, cache=tmp_path / "cache")
    assert shelf.opened == []
    assert (second.layers_reused, second.new_bytes) == (3, 0)
    assert second.descriptor.to_bytes() == first.descriptor.to_bytes()
    assert second.stored_bytes == first.stored_bytes


def test_a_cached_layer_is_the_layer(tmp_path: Path) -> None:
    shelf, store = Shelf(), MemoryStore()
    package = shelf.wheel(
        "demo",
        files={"demo/bin/ptxas": b"\x7fELF", "demo/x": b""},
        scripts={"s": b"#!python\n"},
        entry_points={"gui_scripts": {"g": "demo:x"}},
    )
    first = run_pack(lock_of(package), shelf, store, cache=tmp_path)
    second = run_pack(lock_of(package), shelf, store, cache=tmp_path)
    assert second.layers_reused == 1
    assert second.findings == first.findings
    assert len(first.findings) == 1, "W-MODE is said again when the layer is reused"
    assert second.descriptor.to_bytes() == first.descriptor.to_bytes()


def test_a_blob_that_is_gone_is_made_again(tmp_path: Path) -> None:
    shelf, store = Shelf(), MemoryStore()
    lock = lock_of(*three(shelf))
    first = run_pack(lock, shelf, store, cache=tmp_path)
    beta = read_layer(store, first.descriptor, first.descriptor.content.layers[1])
    gone = first.descriptor.blobs[beta.chunks[0][0]]
    store.remove(gone.blob)
    shelf.opened.clear()
    second = run_pack(lock, shelf, store, cache=tmp_path)
    assert shelf.opened == ["beta-1.0-py3-none-any.whl"]
    assert (second.layers_reused, second.new_bytes) == (2, gone.size)
    assert store.has(gone.blob, gone.size)


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    "damage", [b"", b"\n", b"00\n{}", "flip"], ids=["empty", "a line", "another digest", "a bit"]
)
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: bytes | str) -> None:
    shelf, store, notes = Shelf(), MemoryStore(), Notes()
    lock = lock_of(shelf.wheel("demo"))
    first = run_pack(lock, shelf, store, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    data = kept.read_bytes()
    kept.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:] if isinstance(damage, str) else damage)
    second = run_pack(lock, shelf, store, cache=tmp_path, reporter=notes)
    assert second.layers_reused == 0
    assert second.descriptor == first.descriptor
    assert len(notes.notes) == 1
    assert kept.read_bytes() == data


def test_a_cache_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    notes, shelf = Notes(), Shelf()
    (tmp_path / "file").write_bytes(b"")
    result = run_pack(
        lock_of(shelf.wheel("demo")), shelf, MemoryStore(), cache=tmp_path / "file" / "x", reporter=notes
    )
    assert result.layers == 1
    assert len(notes.notes) == 1


def test_levels_have_their_own_entries(tmp_path: Path) -> None:
    shelf, store = Shelf(), MemoryStore()
    lock = lock_of(*three(shelf))
    one = run_pack(lock, shelf, store, cache=tmp_path)
    three_ = run_pack(lock, shelf, store, cache=tmp_path, level=3)
    assert three_.layers_reused == 0
    assert one.descriptor.codec != three_.descriptor.codec
    assert one.descriptor.content_id == three_.descriptor.content_id
    assert one.descriptor.bundle_id != three_.descriptor.bundle_id


def test_targets_share_equal_layers(tmp_path: Path) -> None:
    shelf, store = Shelf(), MemoryStore()
    alpha, beta, gamma = three(shelf)
    run_pack(lock_of(alpha, beta), shelf, store, cache=tmp_path)
    before = set(store.blobs())
    result = run_pack(lock_of(alpha, beta, gamma, name="sm_103"), shelf, store, cache=tmp_path)
    assert result.layers_reused == 2
    added = {digest for digest, _ in set(store.blobs()) - before}
    layers = result.descriptor.content.layers
    assert {result.descriptor.blobs[ref.list].blob for ref in layers} & added == {
        result.descriptor.blobs[layers[2].list].blob
    }


def test_the_order_of_the_lock_does_not_matter() -> None:
    shelf = Shelf()
    packages = three(shelf)
    one = run_pack(lock_of(*packages), shelf, MemoryStore())
    two = run_pack(lock_of(*reversed(packages)), shelf, MemoryStore())
    assert one.descriptor.to_bytes() == two.descriptor.to_bytes()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=12), st.integers(1, 5))
def test_threads_do_not_matter(sizes: list[int], workers: int) -> None:
    plains = [bytes([i % 3]) * size + bytes([i % 3]) for i, size in enumerate(sizes)]

    def stored(threads: int) -> tuple[list[object], int]:
        store = MemoryStore()
        with ChunkWriter(store, workers=threads) as writer:
            chunks = writer.layer()
            for number, plain in enumerate(plains):
                chunks.add(plain, packed=number % 2 == 0)
            found = chunks.stored()
        assert writer.new_bytes == sum(size for _, size in store.blobs())
        return list(found), writer.new_bytes

    assert stored(workers) == stored(1)


def test_contested_paths_go_to_the_winner() -> None:
    shelf, store = Shelf(), MemoryStore()
    one = shelf.wheel("one", files={"shared.py": b"one"})
    two = shelf.wheel("two", files={"shared.py": b"two"})
    path = "lib/python3.12/site-packages/shared.py"
    with pytest.raises(VerdictError) as caught:
        run_pack(lock_of(one, two), shelf, store)
    assert (caught.value.code, caught.value.subject) == ("E-OVERLAP", path)
    claims = (("one", Digest.of(b"one")), ("two", Digest.of(b"two")))
    won = lock_of(one, two, contested=(Contested(path=path, claims=claims, winner="two"),))
    assert run_pack(won, shelf, store).descriptor.content.provides == {path: 1}


class FullStore(MemoryStore):
    """A store whose disk is full after some bytes."""

    def put(self, data: bytes) -> Digest:
        if len(data) > 5000:
            raise HostError("E-SPACE", "store", found="No space left on device")
        return super().put(data)


def test_a_store_that_cannot_take_a_chunk_ends_the_pack() -> None:
    shelf = Shelf()
    package = shelf.wheel("demo", files={f"demo/{i}.bin": os.urandom(1 << 20) for i in range(12)})
    with pytest.raises(HostError) as caught:
        run_pack(lock_of(package), shelf, FullStore())
    assert caught.value.code == "E-SPACE"


SCRIPT = """
import os, sys, json
sys.path.insert(0, sys.argv[1])
os.umask(int(sys.argv[2], 8))
from pathlib import Path
from envbundle.store.layout import DirectoryStore
from envbundle.bundler.sign import commit_signed
from tests.bundler.builders import Shelf, lock_of, run_pack, overlay_of, overlay_file, write_files
here = Path.cwd()
shelf = Shelf()
base = shelf.wheel("demo", files={"demo/a.py": b"old" * 400, "demo/b.so": bytes(range(256)) * 8000})
more = [
    shelf.wheel(f"pkg{i}", files={f"pkg{i}/m{j}.py": b"%d" % (i * j) * 9999 for j in range(9)})
    for i in range(4)
]
write_files(here / "ov" / "overlays" / "demo", {"demo/a.py": b"new", "demo/c.py": b"add"})
over = overlay_of(base, overlay_file("demo/a.py", b"new", replaces=b"old" * 400),
                  overlay_file("demo/c.py", b"add", mode=0o755),
                  removes={"demo/b.so": bytes(range(256)) * 8000})
store = DirectoryStore(here / "store", create=True)
result = run_pack(lock_of(base, *more, overlays=(over,)), shelf, store, overlays=here / "ov",
                  cache=here / "cache", workers=int(sys.argv[3]))
done = commit_signed(store, result.descriptor, [])
print(json.dumps([str(done.bundle_id), str(done.content_id), result.new_bytes]))
"""


def test_two_packs_anywhere_give_the_same_ids(tmp_path: Path) -> None:
    answers = []
    for name, umask, workers, zone in (("a", "022", "1", "UTC"), ("b c", "077", "4", "Pacific/Kiritimati")):
        folder = tmp_path / name
        folder.mkdir()
        env = {**os.environ, "TZ": zone, "PYTHONHASHSEED": workers, "LC_ALL": "C", "HOME": str(folder)}
        argv = [sys.executable, "-c", SCRIPT, str(ROOT), umask, workers]
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        answers.append(json.loads(done.stdout))
        for path in (folder / "store").rglob("*"):
            assert str(folder).encode() not in (path.read_bytes() if path.is_file() else b"")
    assert answers[0] == answers[1]


MEASURED = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from contextlib import contextmanager
from pathlib import Path
from tests.bundler.builders import Shelf, lock_of, run_pack
from envbundle.spec.digest import Digest
from envbundle.spec.lock import LockedPackage, LockedWheel
from envbundle.store.layout import DirectoryStore
wheel = Path(sys.argv[2])
locked = LockedWheel(filename=wheel.name, sha256=Digest(sys.argv[3]), size=wheel.stat().st_size, path="x")
class Disk(Shelf):
    @contextmanager
    def find(self, _):
        with wheel.open("rb") as stream:
            yield stream
peak, going = 0, True
def watch():
    global peak
    while going:
        with open("/proc/self/status") as status:
            peak = max(peak, *(int(line.split()[1]) for line in status if line.startswith("RssAnon")))
        time.sleep(0.02)
thread = threading.Thread(target=watch)
thread.start()
try:
    run_pack(lock_of(LockedPackage(name="big", version="1.0", wheel=locked)), Disk(),
             DirectoryStore(wheel.parent / "store", create=True), workers=16)
finally:
    going = False
thread.join()
print(peak // 1024)
"""


def test_memory_is_bounded_whatever_the_wheel_holds(tmp_path: Path) -> None:
    """544 MiB that do not compress, members in no order: a packer that held them would show."""
    wheel = tmp_path / "big-1.0-py3-none-any.whl"
    sizes = {
        "z/huge.so": 192 << 20,
        "a/huge.so": 96 << 20,
        **{f"m/{i:03}.bin": 1000 << 10 for i in range(63, -1, -1)},
    }
    sizes |= {f"k/{i}.so": 12 << 20 for i in range(16, 0, -1)}
    big_wheel(wheel, "big", sizes)
    with wheel.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    argv = [sys.executable, "-c", MEASURED, str(ROOT), str(wheel), digest.hexdigest()]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 300, f"{done.stdout.decode().strip()} MiB of anonymous memory"
