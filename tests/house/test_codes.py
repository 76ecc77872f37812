"""Codes: what is raised is in docs/codes.md, what is listed is raised, and the generated files are fresh."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import make_codes
import pytest

from .source import module_files, relative

if TYPE_CHECKING:
    from pathlib import Path

CODE = re.compile(r"[EWN]-[A-Z0-9]+(?:-[A-Z0-9]+)*")


def raised() -> dict[str, str]:
    """Every code that stands as a whole string literal in the package, with a place where it does."""
    found: dict[str, str] = {}
    for path in module_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found.setdefault(node.value, f"{relative(path)}:{node.lineno}")
    return found


def test_every_code_that_is_raised_is_listed() -> None:
    listed = {row.code for row in make_codes.read_sources(make_codes.SOURCES)}
    assert {code: place for code, place in raised().items() if code not in listed} == {}


def test_every_code_that_is_listed_is_raised() -> None:
    assert {row.code for row in make_codes.read_sources(make_codes.SOURCES)} - set(raised()) == set()


STATUSES = {
    "UserInputError": "2",
    "VerdictError": "1",
    "TrustError": "3",
    "IntegrityError": "3",
    "FormatError": "3",
    "TransferError": "4",
    "HostError": "4",
}


def test_a_code_is_raised_with_the_exit_status_that_is_listed() -> None:
    listed = {row.code: row.status.split(" or ") for row in make_codes.read_sources(make_codes.SOURCES)}
    wrong = []
    for path in module_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in STATUSES and node.args):
                continue
            code, status = node.args[0], STATUSES[ast.unparse(node.func)]
            if isinstance(code, ast.Constant) and status not in listed.get(str(code.value), [status]):
                wrong.append(f"{relative(path)}:{node.lineno} {code.value!r} with {status}")
    assert wrong == []


def test_no_code_is_put_together_at_run_time() -> None:
    """A code that no search finds cannot be explained: ``f"E-{x}"`` is refused."""
    built = []
    for path in module_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.JoinedStr) or len(node.values) < 2:
                continue
            first = node.values[0]
            if isinstance(first, ast.Constant) and re.fullmatch(r"[EWN]-[A-Z0-9-]*", str(first.value)):
                built.append(f"{relative(path)}:{node.lineno}")
    assert built == []


def test_the_generated_files_are_fresh() -> None:
    codes = make_codes.read_sources(make_codes.SOURCES)
    assert make_codes.TABLE.read_text("utf-8") == make_codes.table(codes), "run make docs"
    assert make_codes.PAGE.read_text("utf-8") == make_codes.page(codes), "run make docs"


BAD_SOURCES = {
    "two cells": "E-A\t1\n",
    "no code": "ERROR\t1\tSentence.\n",
    "unknown status": "E-A\t7\tSentence.\n",
    "a warning that refuses": "W-A\t1\tSentence.\n",
    "an error that is fine": "E-A\t0\tSentence.\n",
    "twice": "E-A\t1\tSentence.\nE-A\t1\tOther.\n",
}


def test_what_several_rooms_raise_is_explained_once(tmp_path: Path) -> None:
    (tmp_path / "base.tsv").write_text("E-A\t3 or 4\tCommon.\n", "utf-8")
    (tmp_path / "alpha.tsv").write_text("E-A\t3\tOwn.\n", "utf-8")
    assert [(row.status, row.sentence) for row in make_codes.read_sources(tmp_path)] == [
        ("3 or 4", "Common.")
    ]


@pytest.mark.parametrize("text", BAD_SOURCES.values(), ids=BAD_SOURCES.keys())
def test_a_bad_source_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "room.tsv").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"room\.tsv:[12]: "):
        make_codes.read_sources(tmp_path)
