"""The packing rule: every byte can be found again, and nothing but paths and bytes decides where it is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.bundler.packing import MIB, PACK_SIZE, Packer, piece_size
from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest


@dataclass
class Ticket:
    plain: bytes
    stated: Digest | None

    def digest(self) -> Digest:
        return Digest.of(self.plain)


@dataclass
class Kept:
    """A sink that keeps chunks in memory, in the order they came."""

    chunks: list[tuple[bytes, bool]] = field(default_factory=list)

    def add(self, plain: bytes, *, packed: bool, digest: Digest | None = None) -> Ticket:
        assert digest is None or digest == Digest.of(plain)
        self.chunks.append((bytes(plain), packed))
        return Ticket(bytes(plain), digest)


def noise(seed: int, size: int) -> bytes:
    return (
        hashlib.shake_128(seed.to_bytes(4, "big")).digest(size)
        if size < MIB
        else (hashlib.shake_128(seed.to_bytes(4, "big")).digest(MIB) * (size // MIB + 1))[:size]
    )


def cut(data: bytes, step: int) -> list[bytes]:
    return [data[i : i + step] for i in range(0, len(data), step)]


def pack(
    files: dict[str, bytes], step: int = 1 << 18
) -> tuple[dict[str, list[tuple[str, int, int]]], Kept, Packer]:
    kept = Kept()
    packer = Packer(kept)
    packed = {
        path: packer.add(path, len(data), Digest.of(data), cut(data, step)) for path, data in files.items()
    }
    packer.close()
    segments = {
        path: [(str(s.chunk), s.offset, s.length) for s in packer.segments(one)]
        for path, one in packed.items()
    }
    return segments, kept, packer


SIZES = st.one_of(
    st.integers(0, 2000),
    st.sampled_from([0, MIB - 1, MIB, MIB + 1, 8 * MIB, 8 * MIB + 1, 3 * MIB]),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=6), st.sampled_from([997, 1 << 16, 1 << 20]))
def test_every_byte_can_be_found_again(shapes: list[tuple[int, int]], step: int) -> None:
    files = {f"purelib/f{i:02}": noise(seed, size) for i, (seed, size) in enumerate(shapes)}
    if step == 997:  # tiny blocks are slow, so only for files that are
        files = {path: data[:5000] for path, data in files.items()}
    segments, kept, packer = pack(files, step)
    plain = {str(Digest.of(data)): data for data, _ in kept.chunks}
    for path, data in files.items():
        found = b"".join(plain[chunk][offset : offset + length] for chunk, offset, length in segments[path])
        assert found == data
    assert {str(digest): size for digest, size in packer.chunks()} == {
        name: len(data) for name, data in plain.items()
    }
    used = {chunk for parts in segments.values() for chunk, _, _ in parts}
    assert used == set(plain), "no chunk is there for nothing"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=5))
def test_blocks_do_not_matter(shapes: list[tuple[int, int]]) -> None:
    files = {f"purelib/f{i:02}": noise(seed, size) for i, (seed, size) in enumerate(shapes)}
    one, first, packer = pack(files, 1 << 16)
    two, second, other = pack(files, 3 << 20)
    assert one == two
    assert first.chunks == second.chunks
    assert packer.chunks() == other.chunks()


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        pytest.param(MIB, [MIB], id="1 MiB is one piece"),
        pytest.param(8 * MIB, [8 * MIB], id="8 MiB is one piece"),
        pytest.param(8 * MIB + 1, [8 * MIB, 1], id="and one byte more is two"),
        pytest.param(64 * MIB - 1, [8 * MIB] * 7 + [8 * MIB - 1], id="below 64 MiB: pieces of 8"),
        pytest.param(64 * MIB, [32 * MIB] * 2, id="from 64 MiB on: pieces of 32"),
        pytest.param(64 * MIB + 5, [32 * MIB] * 2 + [5], id="with a rest"),
    ],
)
def test_a_large_file_is_cut_from_its_own_start(size: int, pieces: list[int]) -> None:
    _, kept, _ = pack({"purelib/a": b"small", "purelib/b": noise(1, size), "purelib/c": b"more"}, 1 << 20)
    assert [len(data) for data, packed in kept.chunks if not packed] == pieces
    assert [data for data, packed in kept.chunks if packed] == [b"smallmore"], "pieces never close the pack"
    assert max(pieces) <= piece_size(size)


def test_small_files_fill_packs_without_being_cut() -> None:
    size = MIB - 1
    files = {f"purelib/{i:03}": noise(i, size) for i in range(40)}
    segments, kept, _ = pack(files, 1 << 20)
    assert [len(data) for data, _ in kept.chunks] == [32 * size, 8 * size]
    assert all(len(data) <= PACK_SIZE and packed for data, packed in kept.chunks)
    assert all(len(parts) == 1 for parts in segments.values())


def test_equal_files_are_kept_once() -> None:
    big = noise(3, 2 * MIB)
    segments, kept, _ = pack({"purelib/a": b"same", "purelib/b": big, "purelib/c": b"same", "purelib/d": big})
    assert segments["purelib/a"] == segments["purelib/c"]
    assert segments["purelib/b"] == segments["purelib/d"]
    assert sorted(len(data) for data, _ in kept.chunks) == [4, 2 * MIB]


def test_a_file_that_only_claims_to_be_another_is_told_apart() -> None:
    kept = Kept()
    packer = Packer(kept)
    true = Digest.of(b"true")
    packer.add("purelib/a", 4, true, [b"true"])
    liar = packer.add("purelib/b", 4, true, [b"fals"])
    assert liar.sha256 == Digest.of(b"fals") != true


@pytest.mark.parametrize(
    ("size", "blocks", "found"),
    [
        pytest.param(3, [b"abcd"], "more", id="more"),
        pytest.param(5, [b"ab", b"cd"], "4 bytes", id="less"),
        pytest.param(0, [b"a"], "more", id="more than nothing"),
        pytest.param(MIB, [b"a" * MIB, b"b"], "more", id="more in a large file"),
        pytest.param(MIB + 1, [b"a" * MIB], f"{MIB} bytes", id="less in a large file"),
    ],
)
def test_a_file_of_another_size_than_stated_is_refused(size: int, blocks: list[bytes], found: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        Packer(Kept()).add("purelib/a", size, None, blocks)
    assert (caught.value.code, caught.value.found) == ("E-SIZE", found)


def test_segments_are_not_known_before_the_end() -> None:
    packer = Packer(Kept())
    packed = packer.add("purelib/a", 1, None, [b"a"])
    with pytest.raises(RuntimeError):
        packer.segments(packed)
