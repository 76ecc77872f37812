"""A new command, fixer or invariant is one file and one line in a table: no file may miss its line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from envbundle import schemas

from .source import PACKAGE, module_files, relative

if TYPE_CHECKING:
    from pathlib import Path


def table_file(folder: Path) -> Path | None:
    """The file of a folder that holds its table: ``table.py`` or ``__init__.py``, with a dict literal."""
    for path in (folder / "table.py", folder / "__init__.py"):
        if path.is_file() and table_lines(path):
            return path
    return None


def table_lines(path: Path) -> dict[str, ast.expr]:
    """The lines of the module-level dict literals of capital names: key -> value."""
    lines: dict[str, ast.expr] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(target, ast.Name) and target.id.isupper() and isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    lines[str(key.value)] = item
    return lines


def modules_named(path: Path) -> set[str]:
    """The modules of its own folder that a table's lines lead to, by import or by name."""
    tree = ast.parse(path.read_text("utf-8"))
    origin: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                origin[alias.asname or alias.name] = (node.module or alias.name).split(".")[0]
    named: set[str] = set()
    for value in table_lines(path).values():
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in origin:
                named.add(origin[node.id])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value.rpartition(":")[0].rpartition(".")[2] or node.value)
                named.add(node.value)
    return named


def is_case(path: Path, mark: str) -> bool:
    """Whether a file is a case of its folder: it defines ``mark``; where there is none, all but interface.py."""
    if not mark:
        return path.stem != "interface"
    tree = ast.parse(path.read_text("utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == mark for node in tree.body)


# The folders of cases, and the function that tells a case from the files that serve all of them.
FOLDERS: dict[str, str] = {
    "cli": "execute",
    "installer/fixers": "",
    "installer/invariants": "",
    "transfer/locations": "",
}
PARTS = {"resolver/capture"}  # folders that are one subject in several files
PRESENT = [
    folder for folder in FOLDERS if (PACKAGE / folder).is_dir() and list((PACKAGE / folder).glob("[a-z]*.py"))
]


@pytest.mark.parametrize("folder", PRESENT)
def test_every_case_has_its_line(folder: str) -> None:
    table = table_file(PACKAGE / folder)
    assert table is not None, f"no dict literal in {folder}/table.py or {folder}/__init__.py"
    cases = {
        path.stem
        for path in (PACKAGE / folder).glob("*.py")
        if path != table and path.name != "__init__.py" and is_case(path, FOLDERS[folder])
    }
    assert cases, f"{folder} holds no case at all"
    assert cases - modules_named(table) == set()


@pytest.mark.parametrize("folder", PRESENT)
def test_every_line_has_its_file(folder: str) -> None:
    table = table_file(PACKAGE / folder)
    assert table is not None
    assert table_lines(table), f"{relative(table)} is empty"
    if table.parent.name == "cli":
        stems = {path.stem for path in table.parent.glob("*.py")}
        modules = {ast.literal_eval(value)[0] for value in table_lines(table).values()}
        assert modules - stems == set()


def test_every_kind_of_invariant_is_looked_at() -> None:
    """What a manifest may demand, the installer can check."""
    cases = schemas.load("manifest")["definitions"]["invariant"]["properties"]["kind"]["enum"]
    for table in PACKAGE.glob("installer/invariants/__init__.py"):
        assert set(table_lines(table)) == set(cases)


def test_commands_are_documented() -> None:
    from envbundle.cli.table import COMMANDS

    page = (PACKAGE.parent / "docs" / "design.md").read_text("utf-8")
    assert [
        name for name in COMMANDS if not re.search(rf"^    envbundle (\w+\|)*{name}\b", page, re.MULTILINE)
    ] == []


def test_no_folder_of_cases_was_forgotten() -> None:
    """A folder below a room that looks like a set of cases is one of those this test knows."""
    deeper = {
        path.parent.relative_to(PACKAGE).as_posix()
        for path in module_files()
        if len(path.relative_to(PACKAGE).parts) > 2
    }
    assert deeper - set(FOLDERS) - PARTS == set()
