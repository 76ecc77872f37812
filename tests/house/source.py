"""What the house tests read: the package's modules as syntax trees, and the committed files."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "envbundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name. ``module`` is absolute; ``lazy`` where importing the file does not run it, or only
    on some versions of Python.
    """

    module: str
    line: int
    lazy: bool
    typing_only: bool


def module_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    """The first component under the package; '' for the package's own __init__."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py").replace("__init__", "")


def imports_of(source: str, path: Path) -> list[Import]:
    """All imports of a module, wherever they stand; ``from x import y`` also counts as ``x.y``."""
    found: list[Import] = []
    package = ["envbundle", *path.relative_to(PACKAGE).parent.parts]

    def visit(node: ast.AST, *, lazy: bool, typing_only: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(
                Import(module=alias.name, line=node.lineno, lazy=lazy, typing_only=typing_only)
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            found.extend(
                Import(module=name, line=node.lineno, lazy=lazy, typing_only=typing_only)
                for name in (base, *(f"{base}.{alias.name}" for alias in node.names))
            )
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            if called in ("import_module", "importlib.import_module", "__import__") and isinstance(
                first, ast.Constant
            ):
                found.append(
                    Import(module=str(first.value), line=node.lineno, lazy=lazy, typing_only=typing_only)
                )
        inside_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for guarded in node.body:
                visit(guarded, lazy=True, typing_only=True)
            for other in node.orelse:
                visit(other, lazy=lazy, typing_only=typing_only)
            return
        if isinstance(node, ast.If) and "sys.version_info" in ast.unparse(node.test):
            for child in ast.iter_child_nodes(node):
                visit(child, lazy=True, typing_only=typing_only)
            return
        for child in ast.iter_child_nodes(node):
            visit(child, lazy=lazy or inside_function, typing_only=typing_only)

    visit(ast.parse(source), lazy=False, typing_only=False)
    return found


def run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported: everything but the bodies of functions."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            stack += [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        elif isinstance(node, ast.Lambda):
            stack += [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            stack += node.orelse
        else:
            stack += ast.iter_child_nodes(node)


def committed_files() -> list[Path]:
    """Every file that git tracks or would track; outside a checkout, every file that is not built."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return sorted(path for name in names if (path := ROOT / name).is_file())
    built = {
        ".venv",
        "build",
        "dist",
        "__pycache__",
        ".git",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
    }
    return sorted(
        p for p in ROOT.rglob("*") if p.is_file() and not built.intersection(p.relative_to(ROOT).parts)
    )
