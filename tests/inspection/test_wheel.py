"""Wheels: what a good one gives, and every way in which a bad one is refused."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from envbundle.errors import EnvbundleError, IntegrityError
from envbundle.inspection.wheel import (
    WheelContents,
    iter_members,
    open_member,
    read_member,
    read_wheel,
    scan_wheel,
)
from envbundle.inspection.zipdir import Limits
from envbundle.spec.digest import Digest
from tests.builders import cubin, gpu_library, modules, wheel_bytes, wheel_filename

if TYPE_CHECKING:
    from collections.abc import Callable


def opened(data: bytes, filename: str, limits: Limits | None = None) -> WheelContents:
    return read_wheel(io.BytesIO(data), filename, limits=limits or Limits())


def rewritten(data: bytes, change: Callable[[zipfile.ZipInfo, bytes], tuple[str, bytes] | None]) -> bytes:
    """Return the wheel with each member as ``change`` gives it; None drops it. RECORD stays as it was."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            result = change(info, old.read(info))
            if result is not None:
                new.writestr(zipfile.ZipInfo(result[0], info.date_time), result[1])
    return out.getvalue()


GOOD = wheel_bytes(
    "Foo.Bar",
    "1.0+cu130",
    {
        "foo_bar/__init__.py": "x = 1\n",
        "foo_bar/tool": "#!/bin/sh\n",
        "foo_bar/ops.so": gpu_library(modules("sm_80")),
    },
    tag="cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64",
    build="2",
    purelib=False,
    requires=["six>=1; python_version < '3.12'", "numpy"],
    requires_python=">=3.10",
    extras=["fast"],
    entry_points={"console_scripts": {"foo": "foo_bar:main.run [fast]"}, "foo.plugins": {"a b": "anything"}},
    scripts={"foo-sh": "#!python\nprint(1)\n"},
    data={
        "data/share/foo.txt": "t",
        "headers/foo.h": "h",
        "purelib/foo_pure.py": "p",
        "platlib/foo_plat.py": "q",
    },
    modes={"foo_bar/tool": 0o755},
)
NAME = wheel_filename("Foo.Bar", "1.0+cu130", "cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", "2")


def test_contents_of_a_good_wheel() -> None:
    contents = opened(GOOD, NAME)
    assert (contents.name, contents.version, contents.build) == ("foo-bar", "1.0+cu130", "2")
    assert contents.tags == {"cp310-abi3-manylinux_2_17_x86_64", "cp310-abi3-manylinux2014_x86_64"}
    assert not contents.root_is_purelib
    assert contents.dist_info == "foo_bar-1.0+cu130.dist-info"
    assert contents.metadata.requires_dist == ("six>=1; python_version < '3.12'", "numpy")
    assert contents.metadata.requires_python == ">=3.10"
    assert contents.metadata.extras == ("fast",)
    assert contents.findings == ()
    places = {member.name: (member.path, member.mode) for member in contents.members}
    data = "foo_bar-1.0+cu130.data"
    assert places["foo_bar/__init__.py"] == ("platlib/foo_bar/__init__.py", 0o644)
    assert places["foo_bar/tool"] == ("platlib/foo_bar/tool", 0o755)
    assert places[f"{data}/scripts/foo-sh"] == ("scripts/foo-sh", 0o755)
    assert places[f"{data}/data/share/foo.txt"] == ("data/share/foo.txt", 0o644)
    assert places[f"{data}/headers/foo.h"] == ("headers/foo.h", 0o644)
    assert places[f"{data}/purelib/foo_pure.py"] == ("purelib/foo_pure.py", 0o644)
    assert places[f"{data}/platlib/foo_plat.py"] == ("platlib/foo_plat.py", 0o644)
    assert places[f"{contents.dist_info}/RECORD"][0] == f"platlib/{contents.dist_info}/RECORD"
    point = next(point for point in contents.entry_points if point.group == "console_scripts")
    assert (point.name, point.module, point.attribute) == ("foo", "foo_bar", "main.run")


def test_members_are_streamed_and_hashed() -> None:
    contents = opened(GOOD, NAME)
    stream = io.BytesIO(GOOD)
    seen = {member.name: b"".join(pieces) for member, pieces in iter_members(stream, contents)}
    with zipfile.ZipFile(io.BytesIO(GOOD)) as archive:
        assert seen == {name: archive.read(name) for name in archive.namelist()}
    for member in contents.members:
        if member.digest is not None:
            assert member.digest == Digest.of(seen[member.name])
    assert read_member(stream, contents, "foo_bar/__init__.py") == b"x = 1\n"


def test_scan_names_members_and_skips_the_rest() -> None:
    scans = scan_wheel(io.BytesIO(GOOD), opened(GOOD, NAME))
    assert [scan.path for scan in scans] == ["foo_bar/ops.so"]
    assert scans[0].modules == (1, 0)


def test_scan_of_stored_and_deflated_members_agrees() -> None:
    files = {f"a/{i}.cubin": cubin(80 + i, size=3_000_000) for i in range(3)}
    files["a/lib.so"] = gpu_library(*[modules("sm_80", "sm_90a", "compute_80")] * 50)
    one = wheel_bytes("a", "1", files)
    two = wheel_bytes("a", "1", files, stored=files)
    name = wheel_filename("a", "1")
    scans = scan_wheel(io.BytesIO(one), opened(one, name))
    assert len(scans) == 4
    assert scans == scan_wheel(io.BytesIO(two), opened(two, name))


def test_zip64_and_data_descriptors_are_read() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(io.BytesIO(GOOD)) as old, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            with new.open(zipfile.ZipInfo(info.filename), "w", force_zip64=True) as member:
                member.write(old.read(info))
    contents = opened(bytes(pipe.data), NAME)
    assert len(contents.members) == len(opened(GOOD, NAME).members)
    assert (
        sum(len(b"".join(p)) for _, p in iter_members(io.BytesIO(bytes(pipe.data)), contents))
        == contents.plain_size
    )


# --- refused


def read_all(data: bytes, filename: str, limits: Limits | None) -> None:
    for _, pieces in iter_members(io.BytesIO(data), opened(data, filename, limits)):
        for _ in pieces:
            pass


def refused(data: bytes, filename: str = NAME, limits: Limits | None = None) -> EnvbundleError:
    """Open the wheel and read every byte of it; return the error that this must raise."""
    with pytest.raises(IntegrityError) as caught:
        read_all(data, filename, limits)
    error = caught.value
    assert error.subject
    assert error.found or error.findings
    return error


def test_hash_that_contradicts_record() -> None:
    data = wheel_bytes("a", "1", {"a.py": "x"}, record_overrides={"a.py": ("sha256=" + "A" * 43, "1")})
    error = refused(data, wheel_filename("a", "1"))
    assert error.code == "E-RECORD-HASH"
    assert "a.py" in error.subject
    assert error.expected != error.found


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (None, "a line in RECORD"),
        (("", ""), "a hash in RECORD"),
        (("sha256=" + "A" * 43, "99"), "99 bytes"),
        (("md5=" + "A" * 22, "1"), "sha256"),
        (("sha256=short", "1"), "sha256"),
        (("sha256=" + "A" * 43, "-1"), "a size"),
    ],
    ids=["no-line", "no-hash", "wrong-size", "md5", "short", "negative"],
)
def test_bad_record_rows(override: tuple[str, str] | None, words: str) -> None:
    data = wheel_bytes("a", "1", {"a.py": "x"}, record_overrides={"a.py": override})
    error = refused(data, wheel_filename("a", "1"))
    assert error.code == "E-RECORD"
    assert words in error.expected


def test_record_names_a_file_that_is_not_there() -> None:
    error = refused(
        rewritten(GOOD, lambda info, data: None if info.filename.endswith("tool") else (info.filename, data))
    )
    assert error.code == "E-RECORD"
    assert "foo_bar/tool" in error.subject


def test_all_record_faults_are_told_at_once() -> None:
    data = wheel_bytes("a", "1", {"a.py": "x", "b.py": "y"}, record_overrides={"a.py": None, "b.py": None})
    assert len(refused(data, wheel_filename("a", "1")).findings) == 2


def test_file_replaced_after_the_build() -> None:
    error = refused(
        rewritten(
            GOOD,
            lambda info, data: (info.filename, b"y = 1\n" if info.filename.endswith("__init__.py") else data),
        )
    )
    assert error.code == "E-RECORD-HASH"


@pytest.mark.parametrize("cut", [1, 10, 30, 200, 2000])
def test_truncated(cut: int) -> None:
    assert refused(GOOD[:-cut]).code == "E-WHEEL-ZIP"


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"<html>not found</html>", bytes(1000)], ids=["empty", "pk", "html", "zeros"]
)
def test_no_zip_at_all(data: bytes) -> None:
    assert refused(data).code == "E-WHEEL-ZIP"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members() -> None:
    out = io.BytesIO(GOOD)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("foo_bar/__init__.py", "evil = 1\n")
    assert refused(out.getvalue()).code == "E-WHEEL-DUPLICATE"


def test_two_members_for_one_place() -> None:
    data = wheel_bytes("a", "1", {"a.py": "x"}, data={"platlib/a.py": "y"})
    error = refused(data, wheel_filename("a", "1"))
    assert error.code == "E-WHEEL-DUPLICATE"
    data = wheel_bytes("a", "1", {"a/b.py": "x", "a": "file"})
    assert refused(data, wheel_filename("a", "1")).code == "E-WHEEL-DUPLICATE"
    data = wheel_bytes("a", "1", {"a": "file", "a/b.py": "x"})
    assert refused(data, wheel_filename("a", "1")).code == "E-WHEEL-DUPLICATE"


def local_offset(data: bytes, name: str) -> int:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.getinfo(name).header_offset


@pytest.mark.parametrize(
    ("field", "value"),
    [(8, 0), (14, 1), (18, 1), (22, 1), (30, 88)],
    ids=["method", "crc", "stored", "size", "name"],
)
def test_local_header_that_differs_from_the_directory(field: int, value: int) -> None:
    data = bytearray(GOOD)
    data[local_offset(GOOD, "foo_bar/__init__.py") + field] ^= value or 8
    error = refused(bytes(data))
    assert error.code == "E-WHEEL-ZIP"
    assert error.offset is not None


def test_hidden_local_header() -> None:
    """Bytes between two members that hold a member which the directory does not name."""
    hidden = io.BytesIO()
    with zipfile.ZipFile(hidden, "w") as archive:
        archive.writestr("foo_bar/evil.py", "x")
    extra = hidden.getvalue()[: hidden.getvalue().index(b"PK\x01\x02")]
    with zipfile.ZipFile(io.BytesIO(GOOD)) as archive:
        start = archive.start_dir
    data = bytearray(GOOD[:start] + extra + GOOD[start:])
    end = data.rindex(b"PK\x05\x06")
    struct.pack_into("<I", data, end + 16, start + len(extra))
    assert refused(bytes(data)).code == "E-WHEEL-ZIP"


def test_prefixed_and_suffixed_archives() -> None:
    assert refused(b"#!/bin/sh\n" + GOOD).code == "E-WHEEL-ZIP"
    assert refused(GOOD + b"more").code == "E-WHEEL-ZIP"


@pytest.mark.parametrize(
    ("changes", "filename"),
    [
        ({"metadata_name": "other"}, wheel_filename("a", "1")),
        ({"metadata_version": "2"}, wheel_filename("a", "1")),
        ({}, wheel_filename("b", "1")),
        ({}, wheel_filename("a", "1.1")),
        ({}, "a.whl"),
        ({}, "../a-1-py3-none-any.whl"),
    ],
    ids=["metadata-name", "metadata-version", "other-file", "other-version", "no-wheel-name", "path"],
)
def test_names_that_disagree(changes: dict[str, str], filename: str) -> None:
    data = wheel_bytes("a", "1", **changes)  # type: ignore[arg-type]
    assert refused(data, filename).code == "E-WHEEL-NAME"


def test_equal_spellings_of_name_and_version_are_accepted() -> None:
    data = wheel_bytes("Foo.Bar", "1.0", metadata_name="foo-BAR", metadata_version="1.0.0")
    assert opened(data, "Foo.Bar-1.0-py3-none-any.whl").name == "foo-bar"


@pytest.mark.parametrize(
    "path",
    ["../x.py", "/etc/x", "a/../../x", "./../x", "a//b", "a\\b.py", "a/\x01b", "a/" + "n" * 300, "a/./b"],
    ids=ascii,
)
def test_paths_that_leave_or_confuse(path: str) -> None:
    error = refused(wheel_bytes("a", "1", {"a/__init__.py": "", path: "x"}), wheel_filename("a", "1"))
    assert error.code == "E-PATH"


def test_escape_by_the_data_directory() -> None:
    error = refused(wheel_bytes("a", "1", data={"data/../../x": "y"}), wheel_filename("a", "1"))
    assert error.code == "E-PATH"
    error = refused(wheel_bytes("a", "1", data={"stdlib/x": "y"}), wheel_filename("a", "1"))
    assert error.code == "E-WHEEL-SCHEME"


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o060644], ids=["symlink", "fifo", "device"])
def test_members_that_are_no_plain_files(mode: int) -> None:
    data = wheel_bytes("a", "1", {"a.py": "x", "link": "/etc/passwd"}, modes={"link": mode})
    assert refused(data, wheel_filename("a", "1")).code == "E-WHEEL-ZIP"


def test_privileged_bits_are_dropped_and_said() -> None:
    data = wheel_bytes("a", "1", {"a.py": "", "a/su": "x"}, modes={"a/su": 0o104755})
    contents = opened(data, wheel_filename("a", "1"))
    assert [finding.code for finding in contents.findings] == ["W-PRIV-BITS"]
    assert {member.name: member.mode for member in contents.members}["a/su"] == 0o755


@pytest.mark.parametrize(
    ("points", "code"),
    [
        ({"../../x": "a:b"}, "E-NAME"),
        ({"a/b": "a:b"}, "E-NAME"),
        ({"x": "a"}, "E-ENTRY-POINT"),
        ({"x": "a:b; import os"}, "E-ENTRY-POINT"),
        ({"x": "a:b()"}, "E-ENTRY-POINT"),
        ({"x": "a.b:"}, "E-ENTRY-POINT"),
    ],
    ids=["traversal", "slash", "no-attribute", "code", "call", "empty"],
)
def test_hostile_entry_points(points: dict[str, str], code: str) -> None:
    data = wheel_bytes("a", "1", entry_points={"console_scripts": points})
    assert refused(data, wheel_filename("a", "1")).code == code


def test_encrypted_and_foreign_compression() -> None:
    data = bytearray(GOOD)
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert refused(bytes(data)).code == "E-WHEEL-ZIP"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.py", "x")
    assert refused(out.getvalue()).code == "E-WHEEL-ZIP"


def test_wheel_of_a_later_format() -> None:
    data = wheel_bytes("a", "1", dist_info={"WHEEL": "Wheel-Version: 2.0\nRoot-Is-Purelib: true\n"})
    assert refused(data, wheel_filename("a", "1")).code == "E-WHEEL-VERSION"


def test_missing_metadata() -> None:
    for missing in ("METADATA", "WHEEL", "RECORD"):

        def drop(info: zipfile.ZipInfo, data: bytes, missing: str = missing) -> tuple[str, bytes] | None:
            return None if info.filename.endswith(missing) else (info.filename, data)

        assert refused(rewritten(GOOD, drop)).code == "E-WHEEL-METADATA"


def test_two_dist_info_directories() -> None:
    data = wheel_bytes("a", "1", {"b-1.dist-info/METADATA": "Name: b\nVersion: 1\n"})
    assert refused(data, wheel_filename("a", "1")).code == "E-WHEEL-METADATA"


def test_renamed_wheel_is_said() -> None:
    data = wheel_bytes("a", "1", tag="cp312-cp312-linux_x86_64")
    contents = opened(data, "a-1-cp312-cp312-manylinux_2_17_x86_64.whl")
    assert [finding.code for finding in contents.findings] == ["N-WHEEL-TAGS"]
    assert contents.tags == {"cp312-cp312-manylinux_2_17_x86_64"}


# --- B75: bombs


def test_member_that_declares_too_much() -> None:
    data = wheel_bytes("a", "1", {"a.so": bytes(3_000_000)})
    assert refused(data, wheel_filename("a", "1"), Limits(member_size=1_000_000)).code == "E-SIZE"
    assert refused(data, wheel_filename("a", "1"), Limits(total_size=1_000_000)).code == "E-SIZE"
    assert refused(data, wheel_filename("a", "1"), Limits(members=2)).code == "E-SIZE"


def bomb(plain: int, declared: int) -> bytes:
    """A wheel with a member of ``plain`` zeros that claims ``declared``, in both headers and RECORD."""
    claimed = b"\x7fELF" + bytes(declared - 4)
    data = wheel_bytes("a", "1", {"a.so": claimed})
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(b"\x7fELF") + b"".join(
        packer.compress(bytes(1 << 20)) for _ in range(plain >> 20)
    )
    packed += packer.flush()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info, start = archive.getinfo("a.so"), archive.start_dir
    first = info.header_offset + 30 + len("a.so")
    grown = len(packed) - info.compress_size
    out = bytearray(data[:first] + packed + data[first + info.compress_size :])
    struct.pack_into("<I", out, info.header_offset + 18, len(packed))
    end = out.rindex(b"PK\x05\x06")
    struct.pack_into("<I", out, end + 16, start + grown)
    at = start + grown
    while out[at : at + 4] == b"PK\x01\x02":
        n, m, k = struct.unpack_from("<HHH", out, at + 28)
        if out[at + 46 : at + 46 + n] == b"a.so":
            struct.pack_into("<I", out, at + 20, len(packed))
        else:
            struct.pack_into("<I", out, at + 42, struct.unpack_from("<I", out, at + 42)[0] + grown)
        at += 46 + n + m + k
    return bytes(out)


def test_member_that_expands_beyond_its_declared_size() -> None:
    data = bomb(64 << 20, 1 << 20)
    name = wheel_filename("a", "1")
    assert refused(data, name).code == "E-SIZE"
    with pytest.raises(IntegrityError, match="E-SIZE"):
        scan_wheel(io.BytesIO(data), opened(data, name))


def test_member_that_declares_more_than_deflate_can_give() -> None:
    data = bytearray(wheel_bytes("a", "1", {"a.so": bytes(1000)}))
    for signature, field in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + field, 1 << 31)
    assert refused(bytes(data), wheel_filename("a", "1")).code == "E-SIZE"


def test_member_that_ends_early() -> None:
    data = bytearray(wheel_bytes("a", "1", {"a.so": bytes(1000)}))
    for signature, field in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + field, 1001)
    with pytest.raises(IntegrityError):
        scan_wheel(io.BytesIO(bytes(data)), opened(bytes(data), wheel_filename("a", "1")))


def test_open_member_is_seekable() -> None:
    contents = opened(GOOD, NAME)
    member = contents.by_name["foo_bar/ops.so"]
    stream = open_member(io.BytesIO(GOOD), contents, member)
    data = read_member(io.BytesIO(GOOD), contents, member.name)
    for offset in (0, 100, 17, member.size - 5, 3):
        stream.seek(offset)
        assert stream.read(10) == data[offset : offset + 10]


def test_scan_can_be_kept() -> None:
    scans = scan_wheel(io.BytesIO(GOOD), opened(GOOD, NAME))
    text = json.dumps([scan.to_dict() for scan in scans])
    assert len(text) < 1000
