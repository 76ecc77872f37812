"""What no committed file may hold, and how long a module may be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from .source import ROOT, committed_files, module_files, relative

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 400
BINARY = {".so", ".o", ".a", ".cubin", ".fatbin", ".png", ".whl", ".gz", ".zst", ".tar", ".pyc"}
# Spelt in pieces so that this file does not find itself.
UNFINISHED = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", "raise NotImplemented" + "Error", "place" + "holder"])
)
MACHINE_PATHS = re.compile(
    r"(?<![\w.-])/(?:" + "|".join(["wo" + "rk", "opt/py" + "pi", "opt/whe" + "els", "tmp/bo" + "ot"]) + r")/"
)
HOME_PATHS = re.compile(r"(?<![\w.-])/(?:ro" + r"ot|ho" + r"me/\w+)/[\w.-]+")
# Published examples of a prefix on a server are fine; a checkout, a cache or an interpreter there is not.
EXAMPLE_HOMES = re.compile(r"/root/(?!\.)\w*(?:env|bundle|model)[\w.-]*|/home/(?:me|you|user|dev|build)/")
REGISTRY_HOSTS = re.compile(
    r"\b(?:"
    + "|".join(["files\\.python" + "hosted\\.org", "arti" + "factory", "nex" + "us\\.", "pypi\\.mir" + "ror"])
    + r")",
    re.IGNORECASE,
)


def text_files() -> list[Path]:
    return [path for path in committed_files() if path.suffix not in BINARY and path.name != "LICENSE"]


def hits(
    pattern: re.Pattern[str], allowed: re.Pattern[str] | None = None, *, under: tuple[str, ...] = ("",)
) -> list[str]:
    """``file:line: text`` of every match in committed text files."""
    found = []
    for path in text_files():
        if not relative(path).startswith(under):
            continue
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if any(allowed is None or not allowed.match(match[0]) for match in pattern.finditer(line)):
                found.append(f"{relative(path)}:{number}: {line.strip()[:100]}")
    return found


def test_nothing_says_that_it_is_unfinished() -> None:
    # In tests a base class may refuse to be used itself, and a wheel's script has a word for its interpreter.
    spoken_of = re.compile("raise NotImplemented" + "Error|place" + "holder")
    assert hits(UNFINISHED, spoken_of, under=("tests/",)) == []
    assert hits(UNFINISHED, under=("envbundle/", "scripts/", "Makefile", ".ci/", "pyproject")) == []


def test_no_path_of_a_build_machine() -> None:
    assert hits(MACHINE_PATHS) == []


def test_no_home_folder_but_the_documented_examples() -> None:
    assert hits(HOME_PATHS, EXAMPLE_HOMES) == []


def test_no_host_name_of_a_registry() -> None:
    assert hits(REGISTRY_HOSTS) == []


@pytest.mark.parametrize("path", [pytest.param(p, id=relative(p)) for p in module_files()])
def test_long_modules_have_their_reason_written_down(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    if lines > LIMIT:
        reasons = "".join(page.read_text("utf-8") for page in sorted((ROOT / "docs" / "adr").glob("*.md")))
        assert relative(path) in reasons, f"{lines} lines, and no page of docs/adr names {relative(path)}"


def test_no_mocks_of_our_own_code() -> None:
    words = re.compile(
        "|".join(["unittest\\.mo" + "ck", "Magic" + "Mock", "mo" + "cker", "monkeypatch\\.set" + "attr"])
    )
    assert hits(words, under=("tests/",)) == []


def test_nothing_is_skipped() -> None:
    words = re.compile(
        "|".join(
            [
                "pytest\\.sk" + "ip",
                "mark\\.sk" + "ip",
                "importor" + "skip",
                "mark\\.xf" + "ail",
                "pytest\\.xf" + "ail",
            ]
        )
    )
    assert hits(words, under=("tests/",)) == []


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_every_page_can_be_reached() -> None:
    """Each page of docs/ is linked from the index; sources of generated pages are not pages."""
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.parent.name != "format.d"}
    assert {page for page in pages - {"index.md"} if f"]({page})" not in index} == set()


def test_no_merge_was_left_half_done() -> None:
    assert hits(re.compile("^(?:" + "<" * 7 + "|" + ">" * 7 + ") ")) == []
