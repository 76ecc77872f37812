"""What ``install.pyz`` holds, and that equal inputs give equal bytes."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from envbundle.bundler.bootstrap import COMMANDS, INDEX, Part, Served, build_bootstrap
from envbundle.bundler.source import archive, source_part, tool
from envbundle.errors import IntegrityError

from ..builders import wheel_bytes
from .builders import BARE, OTHER, PYTHON, TARGET, digest, served

PURE = Part(filename="pure-1.0-py3-none-any.whl", data=wheel_bytes("pure", "1.0"), origin="published")


def opened(data: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(data))


def build(*sets: Served) -> bytes:
    return build_bootstrap(sets, source_part(COMMANDS))


def test_equal_inputs_give_equal_bytes_in_any_order() -> None:
    one, two = served(parts=(PURE,)), served(OTHER, parts=(PURE,))
    assert build(one, two) == build(two, one)


def test_members_carry_no_time_and_are_stored() -> None:
    for member in opened(build(served(parts=(PURE,)))).infolist():
        assert (member.date_time, member.compress_type) == ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)
        assert member.external_attr >> 16 == 0o100644


def test_two_pythons_are_served_and_share_equal_wheels() -> None:
    data = build(served(parts=(PURE,)), served(OTHER, parts=(PURE,)))
    index = json.loads(opened(data).read(INDEX))
    assert [one["python"] for one in index["sets"]] == sorted([PYTHON, OTHER.python])
    assert all(f"wheels/{PURE.filename}" in one["wheels"] for one in index["sets"])
    assert len(index["wheels"]) == 2  # the pure one and envbundle's own
    about = index["wheels"][f"wheels/{PURE.filename}"]
    assert (about["sha256"], about["origin"]) == (digest(PURE.data), "published")
    assert (
        about["files"]["pure/__init__.py"] == [digest(opened(PURE.data).read("pure/__init__.py")), 0]
        or about["files"]
    )


FLOORS = {
    "pure": ("a-1-py3-none-any.whl", "2.5"),
    "one tag": ("a-1-cp312-cp312-manylinux_2_28_x86_64.whl", "2.28"),
    "the lowest of two": ("a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "2.17"),
    "a legacy tag": ("a-1-cp312-cp312-manylinux2010_x86_64.whl", "2.12"),
    "built here": ("a-1-cp312-cp312-linux_x86_64.whl", TARGET.glibc),
}


@pytest.mark.parametrize(("filename", "floor"), FLOORS.values(), ids=FLOORS.keys())
def test_the_libc_that_a_set_needs_is_read_off_its_wheels(filename: str, floor: str) -> None:
    part = Part(filename=filename, data=PURE.data, origin="published")
    index = json.loads(opened(build(served(parts=(part,)))).read(INDEX))
    assert index["sets"][0]["glibc"] == floor


BAD = {
    "no zip": (b"PK", "E-WHEEL-ZIP"),
    "a path that leads out": (archive([("../a.py", b"")]), "E-BOOTSTRAP-WHEEL"),
    "an absolute path": (archive([("/a.py", b"")]), "E-BOOTSTRAP-WHEEL"),
    "files for other places": (archive([("a-1.data/scripts/a", b"")]), "E-BOOTSTRAP-WHEEL"),
}


@pytest.mark.parametrize(("data", "code"), BAD.values(), ids=BAD.keys())
def test_a_wheel_that_does_not_unpack_side_by_side_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        build(served(parts=(Part(filename="a-1-py3-none-any.whl", data=data, origin="published"),)))
    assert caught.value.code == code


def test_the_far_hosts_part_has_no_packing_side() -> None:
    part = source_part(COMMANDS)
    rooms = {path.split("/")[1] for path in part.files}
    assert "resolver" not in rooms
    assert {"installer", "store", "trust"} <= rooms
    assert "cryptography" in part.libraries
    assert part.libraries <= {"cryptography", "packaging"}
    table = part.files["envbundle/cli/table.py"].decode()
    assert all(repr(name) in table for name in COMMANDS)
    assert "'pack'" not in table


def test_an_unknown_command_is_a_wrong_call() -> None:
    with pytest.raises(KeyError):
        source_part(("fly",))


def test_the_tool_needs_no_package(tmp_path: Path) -> None:
    path = tmp_path / "envbundle"
    path.write_bytes(tool(source_part(("rollback", "generations"))))
    done = subprocess.run([*BARE, path, "--help"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rollback" in done.stdout
    assert "install" not in done.stdout
    assert list(tmp_path.iterdir()) == [path]


def test_a_tool_cannot_hold_commands_that_need_a_package() -> None:
    with pytest.raises(RuntimeError, match="cryptography"):
        tool(source_part(("install",)))
