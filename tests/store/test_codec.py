from __future__ import annotations

import contextlib
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import IntegrityError, UserInputError
from envbundle.spec.descriptor import Blob
from envbundle.spec.digest import Digest
from envbundle.store import codec
from envbundle.store.codec import codec_line, decode, decode_unhashed, encode
from envbundle.store.frame import MAX_WINDOW, FrameError, read_frame

from .builders import noise

if TYPE_CHECKING:
    import types

TEXT = b"import os\nfrom pathlib import Path\n" * 4000


def blob_of(stored: bytes, size: int, encoding: str = "zstd") -> Blob:
    return Blob(blob=Digest.of(stored), size=len(stored), plain_size=size, encoding=encoding)  # type: ignore[arg-type]


def refused(
    stored: bytes, plain: bytes, *, size: int | None = None, encoding: str = "zstd"
) -> IntegrityError:
    with pytest.raises(IntegrityError) as caught:
        decode(stored, blob_of(stored, len(plain) if size is None else size, encoding), Digest.of(plain))
    return caught.value


@settings(max_examples=60, deadline=None)
@given(
    part=st.binary(max_size=300),
    times=st.integers(0, 400),
    level=st.sampled_from([1, 3, 9, 19]),
    long=st.booleans(),
)
def test_what_is_encoded_is_decoded(part: bytes, times: int, level: int, long: bool) -> None:
    plain = part * times
    stored, encoding = encode(plain, level=level, long=long)
    blob = blob_of(stored, len(plain), encoding)
    assert decode(stored, blob, Digest.of(plain)) == plain
    assert decode_unhashed(stored, blob, bytearray(len(plain) + 3)) == plain
    assert len(stored) <= len(plain)


@pytest.mark.parametrize(
    ("plain", "encoding"),
    [(b"", "raw"), (b"x", "raw"), (noise(100_000, 1), "raw"), (TEXT, "zstd"), (bytes(100), "zstd")],
    ids=["empty", "one byte", "noise", "text", "zeros"],
)
def test_raw_where_little_is_gained(plain: bytes, encoding: str) -> None:
    assert encode(plain, level=1, long=False)[1] == encoding


def test_the_border_of_raw() -> None:
    plain = noise(100_000, 2)
    for zeros, encoding in ((3000, "raw"), (8000, "zstd")):
        assert encode(plain + bytes(zeros), level=1, long=False)[1] == encoding


def test_a_frame_is_one_thread_s_with_its_size_and_a_bounded_window() -> None:
    plain = TEXT * 300  # 42 MB: more than a window
    stored, _ = encode(plain, level=1, long=True)
    head = zstandard.get_frame_parameters(stored)
    assert head.content_size == len(plain)
    assert head.window_size == MAX_WINDOW
    assert not head.has_checksum
    assert decode(stored, blob_of(stored, len(plain)), Digest.of(plain)) == plain


def test_long_matching_finds_what_is_far_apart() -> None:
    piece = noise(1 << 20, 3)
    plain = piece + noise(1 << 20, 4) + piece
    assert len(encode(plain, level=1, long=True)[0]) < 2.1 * (1 << 20)
    assert encode(plain, level=1, long=False)[1] == "raw"


def test_the_same_bytes_from_any_thread() -> None:
    plains = [TEXT[n:] for n in range(24)]
    alone = [encode(plain, level=1, long=True) for plain in plains]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda plain: encode(plain, level=1, long=True), plains)) == alone
        restored = pool.map(lambda p, s: decode(s[0], blob_of(s[0], len(p)), Digest.of(p)), plains, alone)
        assert list(restored) == plains


def test_the_codec_line_names_what_decides_the_bytes() -> None:
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    assert codec_line(1) == f"zstd-{version} level 1 long-window 2^25 raw-under 5% packing 1"
    assert codec_line(3) != codec_line(1)


@pytest.mark.parametrize("level", [0, -1, 20, 22])
def test_levels_whose_windows_are_not_bounded(level: int) -> None:
    for use in (lambda: codec_line(level), lambda: encode(b"x", level=level, long=False)):
        with pytest.raises(UserInputError) as caught:
            use()
        assert caught.value.code == "E-LEVEL"


def test_a_bomb_is_refused_by_its_header_alone() -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(300 << 20))
    fault = refused(bomb, bytes(1 << 20))
    assert fault.code == "E-BLOB-BOUND"
    assert refused(bomb, b"", size=300 << 20).code == "E-BLOB-BOUND"


def test_a_bomb_whose_header_lies_is_stopped_at_the_size_it_states() -> None:
    honest = bytearray(zstandard.ZstdCompressor(level=1).compress(bytes(8 << 20)))
    assert honest[4] >> 6 == 2
    assert int.from_bytes(honest[6:10], "little") == 8 << 20
    honest[6:10] = (1 << 20).to_bytes(4, "little")
    assert refused(bytes(honest), bytes(1 << 20)).code in ("E-BLOB-DECODE", "E-PLAIN-HASH")
    with pytest.raises(IntegrityError) as caught:
        decode_unhashed(bytes(honest), blob_of(bytes(honest), 1 << 20), bytearray(9 << 20))
    assert caught.value.code == "E-BLOB-DECODE"


def _stream(plain: bytes, **more: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, **more)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(plain)


FRAME = zstandard.ZstdCompressor(level=1).compress(TEXT)


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        (b"", "E-BLOB-DECODE"),
        (FRAME[:-1], "E-BLOB-DECODE"),
        (FRAME[:5], "E-BLOB-DECODE"),
        (FRAME + b"\0", "E-BLOB-DECODE"),
        (FRAME + FRAME, "E-BLOB-DECODE"),
        (b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + FRAME, "E-BLOB-DECODE"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(TEXT), "E-BLOB-DECODE"),
        (_stream(TEXT * 1000, window_log=27, write_content_size=1), "E-BLOB-BOUND"),
        (TEXT, "E-BLOB-DECODE"),
    ],
    ids=[
        "empty", "cut", "header cut", "one byte more", "two frames", "skippable frame", "no size", "window",
        "no frame",
    ],
)  # fmt: skip
def test_frames_that_are_not_the_one_frame(stored: bytes, code: str) -> None:
    plain = TEXT * 1000 if code == "E-BLOB-BOUND" else TEXT
    assert refused(stored, plain).code == code


def test_other_plain_bytes() -> None:
    assert refused(FRAME, TEXT[:-1] + b"x").code == "E-PLAIN-HASH"
    assert refused(b"abc", b"abd", encoding="raw").code == "E-PLAIN-HASH"
    assert refused(b"abc", b"abc", size=2, encoding="raw").code == "E-BLOB-DECODE"


def test_a_wrong_checksum_inside_the_frame() -> None:
    stored = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    stored[-1] ^= 1
    assert refused(bytes(stored), TEXT).code == "E-BLOB-DECODE"


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, len(FRAME) - 1), value=st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_nothing(position: int, value: int) -> None:
    stored = bytearray(FRAME)
    stored[position] ^= value
    try:
        plain = decode(bytes(stored), blob_of(bytes(stored), len(TEXT)), Digest.of(TEXT))
    except IntegrityError as fault:
        assert fault.code in ("E-BLOB-DECODE", "E-BLOB-BOUND", "E-PLAIN-HASH")  # noqa: PT017
    else:
        assert plain == TEXT


def test_room_is_not_touched_beyond_the_size_promised() -> None:
    room = bytearray(b"\xaa" * (len(TEXT) + 64))
    assert decode_unhashed(FRAME, blob_of(FRAME, len(TEXT)), room) == TEXT
    assert room[len(TEXT) :] == b"\xaa" * 64


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=64).map(lambda tail: b"\x28\xb5\x2f\xfd" + tail) | st.binary(max_size=64))
def test_any_bytes_are_a_frame_or_a_frame_error(data: bytes) -> None:
    try:
        frame = read_frame(data)
    except FrameError:
        return
    head = zstandard.get_frame_parameters(data)
    assert (frame.content_size, frame.window_size) == (head.content_size, head.window_size)


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 255, 256, 257, 65_791, 65_792, 131_072, 300_000]),
    window=st.integers(10, 25),
    checksum=st.booleans(),
)
def test_headers_are_read_as_libzstd_reads_them(size: int, window: int, checksum: bool) -> None:
    stored = _stream((TEXT * 3)[:size], window_log=window, write_content_size=1, write_checksum=checksum)
    frame, head = read_frame(stored), zstandard.get_frame_parameters(stored)
    assert (frame.content_size, frame.window_size) == (head.content_size, head.window_size)


def test_the_standard_library_s_codec_reads_and_writes_the_same() -> None:
    """Where this Python has one (3.14 on), or its twin backports.zstd stands in, the bytes are equal."""
    zstd = _standard_codec()
    if zstd is None:
        assert sys.version_info < (3, 14)
        return
    ours, theirs = codec._Zstandard(zstandard), codec._Stdlib(zstd)
    for plain in (b"", b"x", TEXT, noise(70_000, 5) + TEXT, TEXT * 100):
        for level, long in ((1, False), (1, True), (9, True)):
            stored = ours.compress(plain, level, long)
            assert ours.version != theirs.version or theirs.compress(plain, level, long) == stored
            assert theirs.decompress(stored, len(plain)) == plain
    with pytest.raises(IntegrityError):
        theirs.decompress(FRAME[:-1], len(TEXT))
    with pytest.raises(IntegrityError):
        theirs.decompress(FRAME, len(TEXT) - 1)
    assert theirs.decompress_into(FRAME, memoryview(bytearray(len(TEXT)))) == TEXT


def _standard_codec() -> types.ModuleType | None:
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None
