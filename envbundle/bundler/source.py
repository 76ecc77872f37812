"""envbundle's own source, or the part of it that some commands need, as files of an archive.

* What a command needs is read off its imports (``ast``), those inside functions too: nobody keeps a list.
* ``cli/table.py`` is written anew with the commands that are there, so that others are refused as unknown.
* Archives are reproducible: members in order, stored, one fixed time and mode.
"""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.host.files import read_bounded
from envbundle.spec.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PACKAGE = Path(__file__).resolve().parent.parent
_NAME = PACKAGE.name
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LIMIT = 16 * 1024 * 1024
#: What modules read beside themselves.
_DATA: dict[str, tuple[str, ...]] = {"schemas/__init__.py": ("schemas/codes.tsv",)}
_ROOTS = ("__init__.py", "__main__.py", "cli/main.py")
_TABLE = "cli/table.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """Part of the package: ``files`` by path from the folder that holds it; ``libraries`` it imports.

    ``libraries`` are top-level names of modules that are neither ours nor the standard library's.
    """

    files: Mapping[str, bytes]
    libraries: frozenset[str]


@lru_cache(maxsize=8)
def source_part(commands: tuple[str, ...]) -> SourcePart:
    """Return what those ``commands`` of the command table need; raises ``KeyError`` where it has not all."""
    rows = {name: row for name, row in _table().items() if name in commands}
    wanted = [*_ROOTS, *(f"cli/{rows[name][0]}.py" for name in commands)]
    files: dict[str, bytes] = {}
    libraries: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in files:
            continue
        files[path] = _read(path)
        for module in _imports(files[path].decode("utf-8"), path):
            top = module.partition(".")[0]
            if top == _NAME:
                wanted += _paths_of(module)
            elif top not in sys.stdlib_module_names and top not in _NOT_NEEDED:
                libraries.add(top)
        for beside in _DATA.get(path, ()):
            files[beside] = _read(beside)
    files[_TABLE] = _table_text(rows)
    ordered = {f"{_NAME}/{path}": files[path] for path in sorted(files)}
    return SourcePart(files=ordered, libraries=frozenset(libraries))


#: Imported by the standard library's own names in newer Pythons, or by what only the packing side runs.
_NOT_NEEDED = frozenset(("compression", "bcrypt"))


def _read(path: str) -> bytes:
    return read_bounded(PACKAGE / path, _LIMIT)


def _paths_of(module: str) -> list[str]:
    """Return the files that importing ``module`` runs; none for a name that is no module."""
    parts = module.split(".")[1:]
    found = ["__init__.py"]
    for end in range(1, len(parts) + 1):
        stem = "/".join(parts[:end])
        found += [path for path in (f"{stem}.py", f"{stem}/__init__.py") if (PACKAGE / path).is_file()]
    return found


def _imports(source: str, path: str) -> Iterator[str]:
    """Yield the absolute names that a module imports, what is there for type checkers alone left out."""
    package = [_NAME, *path.split("/")[:-1]]
    stack: list[ast.AST] = [ast.parse(source)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            stack += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        stack += ast.iter_child_nodes(node)


def _table() -> dict[str, tuple[str, str]]:
    """Return the command table as its file states it: this room does not import the command line's."""
    for node in ast.parse(_read(_TABLE)).body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            value: dict[str, tuple[str, str]] = ast.literal_eval(node.value)
            return value
    raise RuntimeError(f"{_TABLE} holds no table")


def _table_text(rows: Mapping[str, tuple[str, str]]) -> bytes:
    lines = "".join(f"    {name!r}: {row!r},\n" for name, row in rows.items())
    head = '"""The commands that this part of envbundle has."""\n\nfrom __future__ import annotations\n\n'
    return f"{head}COMMANDS: dict[str, tuple[str, str]] = {{\n{lines}}}\n".encode()


def archive(members: Iterable[tuple[str, bytes]], *, start: bytes = b"") -> bytes:
    """Return a reproducible zip file of ``members``, stored, in their order, after the bytes ``start``."""
    out = io.BytesIO()
    out.write(start)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_STORED) as opened:
        for name, data in members:
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3
            member.external_attr = 0o100644 << 16
            opened.writestr(member, data)
    return out.getvalue()


def tool(part: SourcePart) -> bytes:
    """Return ``part`` as an archive that Python runs as it is: it needs no package, and no space."""
    if part.libraries:
        raise RuntimeError(f"a tool of these commands needs {sorted(part.libraries)}")
    start = b"#!/usr/bin/env python3\n"
    main = f"from {_NAME}.cli.main import entry\n\nentry()\n".encode()
    return archive([("__main__.py", main), *part.files.items()], start=start)


def own_wheel(part: SourcePart, version: str) -> tuple[str, bytes]:
    """Return ``part`` as a wheel: its file name and bytes.

    Its build number says that it is a part, named by its bytes, so that nobody takes it for the whole.
    """
    info = f"{_NAME}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {version}\n".encode()
    wheel = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = [*part.files.items(), (f"{info}/METADATA", metadata), (f"{info}/WHEEL", wheel)]
    short = Digest.of(archive(members)).hex[:12]
    return f"{_NAME}-{version}-0part_{short}-py3-none-any.whl", archive(members)
