"""Properties: no bytes make a reader raise or run on, and every reader agrees with its simpler twin."""

from __future__ import annotations

import io
import json
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbundle.errors import EnvbundleError, FormatError
from envbundle.inspection.coverage import judge_file
from envbundle.inspection.member import STRIDE, MemberStream, ZipEntry
from envbundle.inspection.payload import lz4_block, zstd_frame
from envbundle.inspection.report import DEFAULT_ARCHS, inspect_json
from envbundle.inspection.scan import scan_file
from envbundle.inspection.source import BufferSource, StreamSource
from envbundle.inspection.wheel import iter_members, read_wheel, scan_wheel
from envbundle.spec.coverage import Counts, FileScan, Image, ModuleGroup, Needs
from envbundle.spec.finding import Finding
from tests.builders import archive, cubin, gpu_library, modules, ptx_text, wheel_bytes, wheel_filename
from tests.builders import lz4_block as compressed_lz4

GPU = Path(__file__).parent.parent / "data" / "gpu"
SEEDS = {
    path.name: path.read_bytes()
    for path in GPU.iterdir()
    if path.suffix in (".so", ".o", ".a", ".cubin", ".fatbin", ".ptx")
}
SMALL = sorted(name for name, data in SEEDS.items() if len(data) < 60_000)
BOUNDED = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, bytes]:
    """A fixture with bytes overwritten, a range cut out, a range doubled, or its end cut off."""
    name = draw(st.sampled_from(SMALL))
    data = bytearray(SEEDS[name])
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["byte", "word", "cut", "end", "copy"])):
            case "byte":
                data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1]))
            case "word":
                data[at : at + 8] = draw(st.sampled_from([bytes(8), b"\xff" * 8, b"\x01" + bytes(7)]))
            case "cut":
                del data[at : at + draw(st.integers(1, 64))]
            case "end":
                del data[at:]
            case _:
                data[at:at] = data[at : at + draw(st.integers(1, 4096))]
    return name, bytes(data)


@BOUNDED
@given(mutations())
def test_no_mutation_raises_or_hangs(case: tuple[str, bytes]) -> None:
    name, data = case
    started = time.process_time()
    scan = scan_file(name, data, size=len(data), names=True)
    streamed = scan_file(name, io.BytesIO(data), size=len(data), names=True)
    assert time.process_time() - started < 5
    assert streamed == scan
    for arch in DEFAULT_ARCHS:
        judgement = judge_file(scan, arch, driver="580")
        if judgement.counts.unknown:
            assert any(finding.severity == "error" for finding in judgement.findings)
    assert all(finding.offset is not None for finding in scan.findings)
    assert FileScan.from_dict(json.loads(json.dumps(scan.to_dict()))) == scan


@BOUNDED
@given(st.binary(max_size=400), st.sampled_from(["x.so", "x.a", "x.cubin", "x.fatbin", "x.ptx", "x"]))
def test_no_bytes_raise(tail: bytes, name: str) -> None:
    heads = (b"", b"\x7fELF\x02\x01\x01", b"!<arch>\n", bytes.fromhex("50ed55ba01001000"), b".version 8.0\n")
    for head in heads:
        data = head + tail
        inspect_json([scan_file(name, data, size=len(data))])


@pytest.mark.parametrize("kind", ["nested", "tiny", "zeros", "entries"])
def test_hostile_shapes_take_bounded_time(kind: str) -> None:
    pattern = bytes.fromhex("50ed55ba01001000")
    size = 1 << 20
    data = {
        "nested": pattern * (size // 8),
        "tiny": (pattern + (8).to_bytes(8, "little") + b"\1" * 8) * (size // 24),
        "zeros": (pattern + (1 << 40).to_bytes(8, "little") + bytes(64)) * (size // 80),
        "entries": pattern
        + size.to_bytes(8, "little")
        + (b"\x02\0\x01\x01\x40" + bytes(3) + (8).to_bytes(8, "little") + bytes(56)) * (size // 72),
    }[kind]
    started = time.process_time()
    scan = scan_file("x.fatbin", data, size=len(data))
    assert time.process_time() - started < 10
    assert scan.lost or scan.findings


def library() -> bytes:
    return wheel_bytes(
        "a",
        "1",
        {"a/x.so": gpu_library(modules("sm_80", "compute_80")), "a/x.cubin": cubin(90), "a/y.py": "1\n" * 50},
        entry_points={"console_scripts": {"a": "a:b"}},
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_mutation_of_a_wheel_gives_wrong_bytes(data: st.DataObject) -> None:
    good = library()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bad) - 1))
        bad[at] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        bad = bad[: data.draw(st.integers(0, len(bad)))]
    name = wheel_filename("a", "1")
    whole = read_wheel(io.BytesIO(good), name)
    wanted = {m.name: b"".join(pieces) for m, pieces in iter_members(io.BytesIO(good), whole)}
    try:
        contents = read_wheel(io.BytesIO(bytes(bad)), name)
        seen = {m.name: b"".join(pieces) for m, pieces in iter_members(io.BytesIO(bytes(bad)), contents)}
        scan_wheel(io.BytesIO(bytes(bad)), contents)
    except EnvbundleError:
        return
    assert seen == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=3000),
    st.integers(1, 40),
    st.lists(st.integers(0, 130_000), max_size=12),
    st.booleans(),
)
def test_a_member_read_anywhere_equals_its_bytes(
    unit: bytes, times: int, offsets: list[int], stored: bool
) -> None:
    plain = unit * times
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = plain if stored else packer.compress(plain) + packer.flush()
    row = ZipEntry(
        name="m",
        method=0 if stored else 8,
        crc=zlib.crc32(plain),
        stored_size=len(packed),
        size=len(plain),
        mode=0,
        offset=3,
    )
    stream = MemberStream(io.BytesIO(b"???" + packed + b"!!!"), row, "w")
    for offset in offsets:
        stream.seek(offset)
        piece = stream.read(999)
        assert piece == plain[offset : offset + len(piece)]
        assert piece or offset >= len(plain)
    stream.drain()


def test_going_back_starts_at_a_saved_state() -> None:
    plain = bytes(range(256)) * (3 * STRIDE // 256)
    packed = zlib.compress(plain)[2:-4]
    row = ZipEntry(
        name="m", method=8, crc=zlib.crc32(plain), stored_size=len(packed), size=len(plain), mode=0, offset=0
    )
    stream = MemberStream(io.BytesIO(packed), row, "w")
    stream.drain()
    for offset in (2 * STRIDE + 5, 7, STRIDE - 1, len(plain) - 9):
        stream.seek(offset)
        piece = stream.read(9)
        assert 0 < len(piece) <= 9
        assert piece == plain[offset : offset + len(piece)]


@BOUNDED
@given(st.binary(max_size=2000), st.integers(1, 30))
def test_lz4_blocks(unit: bytes, times: int) -> None:
    plain = unit * times
    assert lz4_block(compressed_lz4(plain), len(plain)) == plain
    assert lz4_block(compressed_lz4(plain), len(plain) // 2) == plain[: len(plain) // 2]


@BOUNDED
@given(st.binary(max_size=300), st.integers(0, 5000))
def test_any_bytes_decompress_within_the_limit(data: bytes, limit: int) -> None:
    for opened in (lz4_block(data, limit), zstd_frame(b"\x28\xb5\x2f\xfd" + data, limit)):
        assert opened is None or len(opened) <= limit


@BOUNDED
@given(st.binary(max_size=300), st.binary(min_size=1, max_size=3), st.integers(0, 310), st.integers(0, 310))
def test_searching_a_stream_equals_searching_bytes(data: bytes, pattern: bytes, start: int, end: int) -> None:
    class Short(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 7, 7) if size and size > 0 else 7)

    expected = data.find(pattern, start, end)
    patterns = (pattern, b"\0\1\2")
    other = data.find(b"\0\1\2", start, end)
    best = min((hit for hit in (expected, other) if hit >= 0), default=-1)
    for source in (BufferSource(data), BufferSource(memoryview(data)), StreamSource(Short(data), len(data))):
        assert source.first(patterns, start, end)[0] == best
        assert source.read(start, 20) == data[start : start + 20]


images = st.one_of(
    st.builds(Image, st.just("sass"), st.from_regex(r"[1-9][0-9]{1,2}[af]?", fullmatch=True)),
    st.builds(
        Image,
        st.just("ptx"),
        st.from_regex(r"[1-9][0-9]{1,2}[af]?", fullmatch=True),
        st.from_regex(r"[0-9]\.[0-9]", fullmatch=True),
    ),
    st.builds(Image, st.just("nvvm"), st.from_regex(r"[1-9][0-9]{1,2}[af]?", fullmatch=True)),
)
text = st.text(st.characters(codec="utf-8"), max_size=12)
version_rows = st.dictionaries(text, st.lists(text, max_size=3).map(tuple), max_size=3).map(
    lambda d: tuple(d.items())
)
scans = st.builds(
    FileScan,
    path=text,
    size=st.integers(0, 1 << 60),
    kind=st.sampled_from(["elf", "archive", "fatbin", "cubin", "ptx", "other"]),
    groups=st.lists(
        st.builds(
            ModuleGroup,
            section=text,
            role=st.sampled_from(["linked", "relocatable", "catalogue"]),
            state=st.sampled_from(["kernels", "empty", "damaged", "unread"]),
            images=st.lists(images, max_size=4).map(tuple),
            count=st.integers(1, 9),
            part=st.integers(0, 3),
            kernels=st.lists(text, max_size=2).map(tuple),
        ),
        max_size=5,
    ).map(tuple),
    findings=st.lists(
        st.builds(
            Finding,
            code=text,
            severity=st.sampled_from(["error", "warning", "note"]),
            subject=text,
            offset=st.none() | st.integers(0, 99),
        ),
        max_size=2,
    ).map(tuple),
    lost=st.booleans(),
    needs=st.none()
    | st.builds(
        Needs,
        machine=text,
        soname=st.none() | text,
        sonames=st.lists(text, max_size=3).map(tuple),
        versions=version_rows,
        weak_versions=version_rows,
        rpath=st.lists(text, max_size=2).map(tuple),
        runpath=st.lists(text, max_size=2).map(tuple),
        interpreter=st.none() | text,
    ),
)


@BOUNDED
@given(images)
def test_image_round_trip(image: Image) -> None:
    assert Image.parse(str(image)) == image


@pytest.mark.parametrize(
    "bad", ["", "sm_", "sm_90b", "compute_90", "sm_90@8.0", "lto_90@1.0", "gfx942", "sm_90 ", "compute_90@9"]
)
def test_bad_images(bad: str) -> None:
    with pytest.raises(FormatError):
        Image.parse(bad)


@BOUNDED
@given(scans)
def test_scan_round_trip_and_sums(scan: FileScan) -> None:
    assert FileScan.from_dict(json.loads(json.dumps(scan.to_dict()))) == scan
    for arch in DEFAULT_ARCHS:
        judgement = judge_file(scan, arch)
        row = judgement.counts.summary()
        total, empty = scan.modules
        assert row["native"] + row["jit"] + row["missing"] == total - empty
        assert Counts.from_dict(json.loads(json.dumps(judgement.counts.to_dict()))) == judgement.counts


def test_seeds_are_real() -> None:
    assert len(SEEDS) == 63
    assert archive({"a.o": b"x"}).startswith(b"!<arch>\n")
    assert ptx_text().startswith(b"//")
