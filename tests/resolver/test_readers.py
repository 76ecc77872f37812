"""Requirement files, index pages, wheel tags: what is read, and that nothing else is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import EnvbundleError, HostError, IntegrityError, UserInputError
from envbundle.host.fetch import Page
from envbundle.resolver.index_page import parse_page
from envbundle.resolver.requirements import read_asked
from envbundle.resolver.wheel_choice import choose, rank
from envbundle.spec.manifest import Resolve
from envbundle.spec.target import Target

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target(name="t", gpus=(), python="3.12", platform="x86_64-manylinux_2_28", glibc="2.28")
HASH = "ab" * 32
BASE = "https://index.example/simple/lib/"


def asked(folder: Path, text: str, **resolve: object) -> list[str]:
    (folder / "r.txt").write_text(text)
    made = read_asked(Resolve(requirement_files=("r.txt",), **resolve), folder, TARGET)  # type: ignore[arg-type]
    return [one.text for one in made.requirements]


def test_a_requirement_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/more.txt").write_text("deep==3 # why\n")
    (tmp_path / "c.txt").write_text("held<9\n")
    text = (
        "# head\n\nA_b[x,y] >= 1,<2\nc==1.0 \\\n  --hash=sha256:" + HASH + " \\\n  --hash=sha512:00\n"
        "d==1; sys_platform == 'win32'\n-r sub/more.txt\n--constraint=c.txt\n"
    )
    assert asked(tmp_path, text) == ["A_b[x,y]<2,>=1", "c==1.0", "deep==3"]
    made = read_asked(Resolve(requirement_files=("r.txt",)), tmp_path, TARGET)
    assert [one.text for one in made.constraints] == ["held<9"]
    assert sorted(made.files) == ["c.txt", "r.txt", "sub/more.txt"]
    pinned = made.requirements[1]
    assert (pinned.pin, [digest.hex for digest in pinned.hashes]) == ("1.0", [HASH])


BAD = {
    "an index of its own": "--index-url https://x.example/simple\n",
    "editable": "-e ./src\n",
    "a sentence": "please install torch\n",
    "a hash of another kind alone": "a==1 --hash=md5:00\n",
    "a folder": "./src\n",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_a_requirement_file_may_not_hold(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        asked(tmp_path, "fine==1\n" + text)
    assert (caught.value.code, caught.value.subject) == ("E-REQUIREMENT", "r.txt:2")


def test_all_faults_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserInputError) as caught:
        asked(tmp_path, "-e .\nfine\n??\n")
    assert [finding.subject for finding in caught.value.findings] == ["r.txt:1", "r.txt:3"]


def test_a_requirement_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        read_asked(Resolve(requirement_files=("none.txt",)), tmp_path, TARGET)
    assert caught.value.code == "E-NOT-FOUND"


@given(st.text(max_size=120))
@settings(max_examples=80, deadline=None)
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "r.txt").write_text(text, encoding="utf-8", errors="replace")
    try:
        read_asked(Resolve(requirement_files=("r.txt",)), folder, TARGET)
    except EnvbundleError as fault:
        code = fault.code
    else:
        return
    assert code in {"E-REQUIREMENT", "E-MARKER", "E-NOT-FOUND", "E-NOT-A-FILE", "E-NAME"}


def html(*lines: str) -> Page:
    return Page(url=BASE, content_type="text/html", body="\n".join(lines).encode())


def test_an_html_page() -> None:
    page = html(
        f'<a href="../../f/lib-1.0-py3-none-any.whl#sha256={HASH}" data-requires-python="&gt;=3.10">lib</a>',
        '<a href="https://other.example/lib-1.0%2Bcu130-py3-none-any.whl" data-yanked="why">lib</a>',
        '<a href="lib-1.0.tar.gz" data-yanked>lib</a>',
    )
    first, second, third = parse_page(page, BASE)
    assert (first.url, first.sha256 and first.sha256.hex, first.requires_python, first.yanked) == (
        "https://index.example/f/lib-1.0-py3-none-any.whl",
        HASH,
        ">=3.10",
        None,
    )
    assert (second.filename, second.yanked, second.sha256) == ("lib-1.0+cu130-py3-none-any.whl", "why", None)
    assert third.yanked == ""


HOSTILE = {
    "a file of this machine": '<a href="file:///etc/passwd">x</a>',
    "a script": '<a href="javascript:alert(1)">x</a>',
    "a way up": '<a href="https://x.example/..">x</a>',
    "an escaped way up": '<a href="https://x.example/%2e%2e">x</a>',
    "a hash that is none": '<a href="x-1-py3-none-any.whl#sha256=zz">x</a>',
    "no address": "<a>x</a>",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_hostile_lines_are_left_out(line: str) -> None:
    assert parse_page(html("<html>", line, "</html>"), BASE) == ()


def test_a_json_page() -> None:
    files = [
        {
            "filename": "lib-1.0-py3-none-any.whl",
            "url": "x.whl",
            "hashes": {"sha256": HASH},
            "size": 5,
            "yanked": True,
        },
        {"filename": "../x.whl", "url": "x.whl", "hashes": {}},
        {"filename": "y.whl", "url": 5},
        "nonsense",
    ]
    body = json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()
    (file,) = parse_page(Page(url=BASE, content_type="application/vnd.pypi.simple.v1+json", body=body), BASE)
    assert (file.size, file.yanked, file.url) == (5, "", f"{BASE}x.whl")


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"files": 1}', b'{"files": [], "meta": {"api-version": "2.0"}}']
)
def test_a_json_page_that_is_none(body: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_page(Page(url=BASE, content_type="application/json", body=body), BASE)
    assert caught.value.code == "E-INDEX-PAGE"


@given(st.binary(max_size=200), st.sampled_from(["text/html", "application/json"]))
@settings(max_examples=150, deadline=None)
def test_any_page_is_read_or_refused(body: bytes, kind: str) -> None:
    try:
        files = parse_page(Page(url=BASE, content_type=kind, body=body), BASE)
    except IntegrityError as fault:
        code, files = fault.code, ()
    else:
        code = "E-INDEX-PAGE"
    assert code == "E-INDEX-PAGE"
    assert all("/" not in file.filename for file in files)


class _Named:
    def __init__(self, filename: str) -> None:
        self.filename = filename


FITS = {
    "pure": ("lib-1.0-py3-none-any.whl", True),
    "abi3 of an older python": ("lib-1.0-cp310-abi3-manylinux2014_x86_64.whl", True),
    "own abi": ("lib-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", True),
    "plain linux": ("lib-1.0-cp312-cp312-linux_x86_64.whl", True),
    "newer glibc": ("lib-1.0-cp312-cp312-manylinux_2_29_x86_64.whl", False),
    "another python": ("lib-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", False),
    "free-threaded": ("lib-1.0-cp312-cp312t-manylinux_2_28_x86_64.whl", False),
    "abi3 of a newer python": ("lib-1.0-cp313-abi3-manylinux_2_28_x86_64.whl", False),
    "another machine": ("lib-1.0-cp312-cp312-manylinux_2_28_aarch64.whl", False),
    "musl": ("lib-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", False),
    "no wheel": ("lib-1.0.tar.gz", False),
    "several platforms": ("lib-1.0-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
}


@pytest.mark.parametrize(("filename", "fits"), FITS.values(), ids=FITS)
def test_tags_are_the_target_s(filename: str, fits: bool) -> None:
    assert (rank(filename, TARGET) is not None) is fits


def test_the_best_wheel_does_not_hang_on_the_order() -> None:
    wheels = [
        _Named("lib-1.0-py3-none-any.whl"),
        _Named("lib-1.0-cp312-cp312-manylinux_2_17_x86_64.whl"),
        _Named("lib-1.0-1-cp312-cp312-manylinux_2_28_x86_64.whl"),
        _Named("lib-1.0-2-cp312-cp312-manylinux_2_28_x86_64.whl"),
    ]
    for order in (wheels, wheels[::-1]):
        best = choose(order, TARGET)
        assert best is not None
        assert best.filename == "lib-1.0-2-cp312-cp312-manylinux_2_28_x86_64.whl"
