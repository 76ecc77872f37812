"""A wheel made from the disk: accepted by our own strict reader, the same bytes every time."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import HostError
from envbundle.inspection.wheel import iter_members, read_wheel
from envbundle.resolver.capture.content import Content
from envbundle.resolver.capture.origin import read_origin
from envbundle.resolver.capture.published import Machine
from envbundle.resolver.capture.rebuild import fits_stem, write_wheel
from tests.builders import elf_file, make_wheel

SITE = "lib/python3.12/site-packages"
MACHINE = Machine(python="3.12", machine="x86_64", glibc="2.36")


def write(folder: Path, contents: list[Content], tags: tuple[str, ...] = (), version: str = "1.0") -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return write_wheel(
        folder, name="my-pkg", version=version, info=f"{SITE}/my_pkg-{version}.dist-info", site=SITE,
        contents=contents, tags=tags, machine=MACHINE,
    )  # fmt: skip


NAMES = st.lists(st.text("abcxyzéß_", min_size=1, max_size=8), min_size=1, max_size=6, unique=True)


@settings(max_examples=25, deadline=None)
@given(NAMES, st.lists(st.binary(max_size=300), min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_any_files_in_any_order_make_one_wheel(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], datas: list[bytes], random: Random
) -> None:
    contents = [Content.of(f"{SITE}/p/{name}", data) for name, data in zip(names, datas, strict=False)]
    contents += [Content.of("bin/tool", b"#!python\n", executable=True), Content.of("share/x", b"x")]
    folder = tmp_path_factory.mktemp("wheels")
    first = write(folder / "a", contents)
    assert write(folder / "b", random.sample(contents, len(contents))) == first
    data = (folder / "a" / first.filename).read_bytes()
    read = read_wheel(io.BytesIO(data), first.filename)
    held = {str(member.path): b"".join(pieces) for member, pieces in iter_members(io.BytesIO(data), read)}
    for content in contents[: len(names)]:
        assert held[f"purelib/p/{content.path.rpartition('/')[2]}"] == content.data
    assert held["scripts/tool"] == b"#!python\n"
    assert held["data/share/x"] == b"x"


TAGS = [
    pytest.param((), b"x", "py3-none-any", id="pure, no WHEEL"),
    pytest.param((), elf_file([]), "cp312-cp312-linux_x86_64", id="compiled, no WHEEL"),
    pytest.param(("py2-none-any", "py3-none-any"), b"x", "py3-none-any", id="what serves"),
    pytest.param(("py3-none-any",), elf_file([]), "cp312-cp312-linux_x86_64", id="compiled, tagged any"),
    pytest.param(("cp310-abi3-linux_x86_64",), elf_file([]), "cp310-abi3-linux_x86_64", id="stable ABI"),
    pytest.param(
        ("cp312-cp312-manylinux2014_x86_64", "cp312-cp312-manylinux_2_17_x86_64"), elf_file([]),
        "cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", id="several",
    ),
    pytest.param(("cp27-cp27mu-win32",), b"x", "cp312-none-any", id="another machine's"),
]  # fmt: skip


@pytest.mark.parametrize(("tags", "data", "tag"), TAGS)
def test_the_file_names_tag(tmp_path: Path, tags: tuple[str, ...], data: bytes, tag: str) -> None:
    made = write(tmp_path, [Content.of(f"{SITE}/my_pkg/x.so", data)], tags, "1.0+local.1")
    assert made.filename == f"my_pkg-1.0+local.1-{tag}.whl"


def test_the_origin_is_told_by_the_wheel_itself(tmp_path: Path) -> None:
    made = write(tmp_path, [Content.of(f"{SITE}/x.py", b"")])
    assert read_origin(tmp_path / made.filename) == "installed-tree"
    assert read_origin(make_wheel(tmp_path, "other", "1.0")) == "published"


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.write_bytes(b"new")
    content = Content(path=f"{SITE}/x", sha256="0" * 64, size=3, place=str(place))
    with pytest.raises(HostError, match="E-CAPTURE-CHANGED"):
        content.copy_to(tmp_path / "y")


STEMS = [
    ("my_pkg-1.0.dist-info", True),
    ("My.Pkg-1.0.dist-info", True),
    ("my_pkg-1.1.dist-info", False),
    ("other-1.0.dist-info", False),
]


@pytest.mark.parametrize(("info", "fits"), STEMS)
def test_metadata_folders_that_no_reader_takes(info: str, fits: bool) -> None:
    assert fits_stem(f"{SITE}/{info}", "my-pkg", "1.0") is fits
