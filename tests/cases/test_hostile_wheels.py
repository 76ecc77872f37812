"""Wheels that lie: refused with exit 3 and a code, by lock and by inspect, and nothing is written anywhere.

Each is tried with the solver (which may stumble over it first) and without.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from ..builders import record_hash, wheel_bytes
from .zips import (
    DEVICE,
    FIFO,
    INFO,
    LINK,
    app_wheel,
    archive_of,
    members_of,
    patched,
    with_deflated,
    with_member,
    zeros,
)

if TYPE_CHECKING:
    from .kit import Case

NAME = "app-1.0-py3-none-any.whl"
HASH = record_hash(b"y = 2\n")


def _replaced(path: str, data: bytes | None) -> bytes:
    """Return the wheel with a member's bytes replaced behind RECORD's back, or dropped."""
    return archive_of(
        [
            (name, data if name == path and data is not None else old)
            for name, old in members_of(app_wheel())
            if name != path or data is not None
        ]
    )


def _record(old: str, new: str) -> bytes:
    members = dict(members_of(app_wheel()))
    text = members[f"{INFO}/RECORD"].decode()
    assert old in text
    members[f"{INFO}/RECORD"] = text.replace(old, new, 1).encode()
    return archive_of(list(members.items()))


def _points(text: str) -> bytes:
    return app_wheel(dist_info={"entry_points.txt": text})


def _moved(old: str, new: str) -> bytes:
    return archive_of([(name.replace(old, new), data.replace(old.encode(), new.encode())) for name, data in members_of(app_wheel())])


def _hidden() -> bytes:
    """Return the wheel with a local header between two members that the directory does not name."""
    data = app_wheel()
    one = archive_of([("app/hidden.py", b"evil")])
    hidden = one[: one.index(b"PK\x01\x02")]
    first = members_of(data)[1][0]
    place = data.index(first.encode()) - 30
    import struct

    end = data.rindex(b"PK\x05\x06")
    _, length, offset = struct.unpack_from("<HII", data, end + 10)
    table, at = bytearray(data[offset : offset + length]), 0
    while at < len(table):
        n, m, k = struct.unpack_from("<HHH", table, at + 28)
        (start,) = struct.unpack_from("<I", table, at + 42)
        if start >= place:
            struct.pack_into("<I", table, at + 42, start + len(hidden))
        at += 46 + n + m + k
    tail = bytearray(data[end:])
    struct.pack_into("<I", tail, 16, offset + len(hidden))
    return data[:place] + hidden + data[place:offset] + bytes(table) + bytes(tail)


WHEELS: dict[str, tuple[bytes, str]] = {
    # names that stand twice
    "a member twice": (archive_of([*members_of(app_wheel()), ("app/a.py", b"y = 3\n")]), "E-WHEEL-DUPLICATE"),
    "METADATA twice": (archive_of([*members_of(app_wheel()), (f"{INFO}/METADATA", b"Name: x\n")]), "E-WHEEL-DUPLICATE"),
    "RECORD twice": (archive_of([*members_of(app_wheel()), (f"{INFO}/RECORD", b"")]), "E-WHEEL-DUPLICATE"),
    "two members for one place": (with_member("app-1.0.data/purelib/app/a.py"), "E-WHEEL-DUPLICATE"),
    "a file and a folder": (with_member("app/a.py/b.py"), "E-WHEEL-DUPLICATE"),
    # two readers, two archives
    "another name in the local header": (patched(app_wheel(), "app/a.py", "local", 30, b"app/b.py"), "E-WHEEL-ZIP"),
    "another name in the directory": (patched(app_wheel(), "app/a.py", "central", 46, b"app/b.py"), "E-WHEEL-ZIP"),
    "another size in the local header": (patched(app_wheel(), "app/a.py", "local", 22, b"\7"), "E-WHEEL-ZIP"),
    "another CRC in the local header": (patched(app_wheel(), "app/a.py", "local", 14, b"\0\0\0\1"), "E-WHEEL-ZIP"),
    "another method in the local header": (patched(app_wheel(), "app/a.py", "local", 8, b"\0\0"), "E-WHEEL-ZIP"),
    "encrypted": (patched(app_wheel(), "app/a.py", "central", 8, b"\1\0"), "E-WHEEL-ZIP"),
    "another compression": (patched(app_wheel(), "app/a.py", "central", 10, b"\x0e\0"), "E-WHEEL-ZIP"),
    "a member that overlaps another": (patched(app_wheel(), "app/a.py", "central", 42, b"\0\0\0\0"), "E-WHEEL-ZIP"),
    "a hidden local header": (_hidden(), "E-WHEEL-ZIP"),
    "bytes before the archive": (b"#!/bin/sh\n" + app_wheel(), "E-WHEEL-ZIP"),
    "bytes behind the archive": (app_wheel() + b"x", "E-WHEEL-ZIP"),
    "two archives": (app_wheel() + app_wheel(), "E-WHEEL-ZIP"),
    "no zip": (b"<html>not found</html>", "E-WHEEL-ZIP"),
    # who it is
    "another name in METADATA": (app_wheel(metadata_name="other"), "E-WHEEL-NAME"),
    "another version in METADATA": (app_wheel(metadata_version="2.0"), "E-WHEEL-NAME"),
    "another distribution's file name": (wheel_bytes("other", "1.0"), "E-WHEEL-NAME"),
    "another version's file name": (wheel_bytes("app", "1.1"), "E-WHEEL-NAME"),
    "no dist-info": (archive_of([("app/__init__.py", b"")]), "E-WHEEL-METADATA"),
    "two dist-infos": (with_member("other-1.0.dist-info/METADATA"), "E-WHEEL-METADATA"),
    "no METADATA": (_replaced(f"{INFO}/METADATA", None), "E-WHEEL-METADATA"),
    "no WHEEL": (_replaced(f"{INFO}/WHEEL", None), "E-WHEEL-METADATA"),
    "no RECORD": (_replaced(f"{INFO}/RECORD", None), "E-WHEEL-METADATA"),
    "METADATA that is none": (_replaced(f"{INFO}/METADATA", b"\xff\xfe\0\0" * 4), "E-WHEEL-METADATA"),
    "a wheel of the future": (_replaced(f"{INFO}/WHEEL", b"Wheel-Version: 2.0\n"), "E-WHEEL-VERSION"),
    # RECORD
    "a file behind RECORD's back": (_replaced("app/a.py", b"evil!\n"), "E-RECORD-HASH"),
    "another size in RECORD": (_record(f"{HASH},6", f"{HASH},7"), "E-RECORD"),
    "a file that RECORD does not list": (with_member("app/more.py", listed=False), "E-RECORD"),
    "a row without a file": (_record("app/a.py,", f"app/gone.py,{HASH},6\napp/a.py,"), "E-RECORD"),
    "a row without a hash": (_record(f"app/a.py,{HASH},6", "app/a.py,,"), "E-RECORD"),
    "md5": (_record(HASH, "md5=CY9rzUYh03PK3k6DJie09g"), "E-RECORD"),
    "a hash that is none": (_record(HASH, "sha256=AAAA"), "E-RECORD"),
    "a row twice": (_record("app/a.py,", f"app/a.py,{HASH},6\napp/a.py,"), "E-RECORD"),
    "two fields": (_record(f"app/a.py,{HASH},6", "app/a.py,6"), "E-RECORD"),
    "RECORD that is none": (_replaced(f"{INFO}/RECORD", b"\xff\xfe\0"), "E-RECORD"),
    "an empty RECORD": (_replaced(f"{INFO}/RECORD", b""), "E-RECORD"),
    # kinds of members
    "a symbolic link": (with_member("app/link", b"/etc/passwd", mode=LINK), "E-WHEEL-ZIP"),
    "a pipe": (with_member("app/pipe", b"", mode=FIFO), "E-WHEEL-ZIP"),
    "a device": (with_member("app/dev", b"", mode=DEVICE), "E-WHEEL-ZIP"),
    "a folder with bytes": (with_member("app/dir/", b"x"), "E-WHEEL-ZIP"),
    "a scheme that there is not": (with_member("app-1.0.data/etc/passwd"), "E-WHEEL-SCHEME"),
    # sizes
    "more bytes than declared": (with_deflated("app/zero.so", zeros(64), size=1 << 20, crc=zlib.crc32(bytes(1 << 20))), "E-SIZE"),
    "a declared size that no deflate reaches": (with_deflated("app/zero.bin", zeros(1), size=10 << 30), "E-SIZE"),
    "10 GiB of zeros": (with_deflated("app/zero.bin", zeros(10240), size=10 << 30), "E-SIZE"),
    "a huge METADATA": (_replaced(f"{INFO}/METADATA", b"Metadata-Version: 2.1\nName: app\nVersion: 1.0\n\n" + b" " * (65 << 20)), "E-SIZE"),
    "a huge RECORD": (_replaced(f"{INFO}/RECORD", b"," * (65 << 20)), "E-SIZE"),
}  # fmt: skip

PATHS = [
    "../x", "/etc/x", "a/../../x", "./../x", "app/../../../x", "app/./x", "app//x", "..", "app/..", "a\\..\\..\\x", "C:\\x",
    "app/a\nb.py", "app/\x7f", "app/\x1b[2J", "x" * 300, f"{INFO}/../../x", "app-1.0.data/scripts/../../x",
    "app-1.0.data/data/../../../x", "app-1.0.data/scripts//x", "app-1.0.data/purelib/../x", "app-1.0.data/headers/a/../../../x",
    "app-1.0.data/scripts/..", "../" * 20 + "tmp/x",
]  # fmt: skip
WHEELS |= {f"path {path[:40]!r}": (with_member(path), "E-PATH") for path in PATHS}

SCRIPTS = ["../../x", "/x", "a/b", "..", ".", "a\\b", "$(touch X)", "a;b", "-x", "`x`", "a'b", ".hidden", "x" * 300, "ä", "a\tb"]
WHEELS |= {
    f"B72 {group} {name[:20]!r}": (_points(f"[{group}]\n{name} = app:main\n"), "E-NAME")
    for name in SCRIPTS
    for group in (("console_scripts", "gui_scripts") if name == "../../x" else ("console_scripts",))
}
REFERENCES = [
    "app:main; import os", "app:main()", "os:system('x')", "app", "__import__('os').system:x", "app:main[0]()",
    "app:main # x", "app.:main", ".app:main", "app:.main", "app:", ":main", "a b:main", "app:main:x", "app-x:main", "1app:main",
    "app:main\\nimport os", "app:ma'in", 'app:"x"', "app:main\n  import os",
]  # fmt: skip
WHEELS |= {
    f"reference {reference!r}": (_points(f"[console_scripts]\nrun = {reference}\n"), "E-ENTRY-POINT")
    for reference in REFERENCES
}
WHEELS["entry points that are no INI file"] = (_points("run = app:main\n"), "E-ENTRY-POINT")
WHEELS["entry points in another encoding"] = (app_wheel(dist_info={"entry_points.txt": b"[console_scripts]\nr\xff = a:b\n"}), "E-ENTRY-POINT")


# The solver meets a wheel first and may stumble over it; it looks at neither paths nor entry points, and what
# it does with 10 GiB of zeros is to write them.
WITH_SOLVER = [name for name in WHEELS if not name.startswith(("path ", "B72 ", "reference ", "10 GiB", "a huge RECORD"))]
ROWS = [(name, True) for name in WHEELS] + [(name, False) for name in WITH_SOLVER]


@pytest.mark.parametrize(("name", "complete"), ROWS, ids=[f"{n}-{'complete' if c else 'solved'}" for n, c in ROWS])
def test_3_wheel(case: Case, name: str, complete: bool) -> None:
    data, code = WHEELS[name]
    (case.wheels / NAME).write_bytes(data)
    case.manifest("app==1.0", resolve=f'find-links = ["wheels"]\nno-index = true\ncomplete = {str(complete).lower()}')
    found = case.refused(3, code, "lock")
    assert len(found["subject"] + found["found"]) < 1500
    assert all(c >= " " for c in found["subject"] + found["found"] + found["expected"])


@pytest.mark.parametrize("name", WHEELS)
def test_B72_B75_inspect_reads_and_writes_nothing(case: Case, name: str) -> None:
    (case.wheels / NAME).write_bytes(WHEELS[name][0])
    before = case.listing()
    done = case.run("inspect", case.wheels / NAME)
    assert case.listing() == before
    if WHEELS[name][1] == "E-RECORD-HASH":
        assert done.status in (0, 1)  # inspect reads binaries; the hashes of the others are lock's to compare
    else:
        assert (done.status, WHEELS[name][1] in done.codes) == (1, True), done.answer


def test_a_wheel_that_is_sound_locks_and_packs(case: Case) -> None:
    """The wheel that all of the above are made from is refused for nothing else."""
    (case.wheels / NAME).write_bytes(with_member("app-1.0.data/scripts/tool", b"#!python\n"))
    case.manifest("app==1.0")
    case.packed()


@pytest.mark.parametrize("size", [1 << 20, 256 << 20])
def test_B75_memory_stays_bounded(case: Case, size: int) -> None:
    """A member of 256 MiB that ends in another CRC, and one that holds 1 GiB more than it says."""
    stream = zeros(1024) if size == 1 << 20 else zeros(256)
    (case.wheels / NAME).write_bytes(with_deflated("app/zero.so", stream, size=size, crc=zlib.crc32(bytes(1 << 20))))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (500 << 20, 500 << 20));"
        "from envbundle.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", case.wheels / NAME, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert ('"E-SIZE"' if size == 1 << 20 else '"E-WHEEL-ZIP"') in done.stdout


FILENAMES = ["app-1.0.whl", "app.whl", "-1.0-py3-none-any.whl", "app-1.0-py3-none.whl", "app-x!y-py3-none-any.whl"]


@pytest.mark.parametrize("name", FILENAMES)
def test_a_file_name_that_is_no_wheels(case: Case, name: str) -> None:
    (case.wheels / name).write_bytes(app_wheel())
    case.manifest("app==1.0")
    assert case.run("lock").status == 1
    case.manifest(f"./wheels/{name}")
    before = case.listing()
    assert case.run("lock").status in (1, 2)
    assert case.listing() == before
    assert case.run("inspect", case.wheels / name).status in (0, 1)
