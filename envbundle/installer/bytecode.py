"""Byte-compiling by the target's own interpreter: checked-hash files alone (PEP 552).

A checked-hash file is valid for one source text whatever its times are, so a later edit of the source is
seen, and equal sources give equal files in every generation. Sources that do not compile (templates, other
Pythons' syntax) have none, as with pip.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from envbundle.errors import HostError
from envbundle.spec.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from envbundle.host.probe import Interpreter
    from envbundle.host.run import Runner
    from envbundle.host.tree import Tree

_TIMEOUT = 3600.0


def bytecode_path(source: str, cache_tag: str) -> str:
    """Return where the bytecode of the source file ``source`` (a path ending in .py) belongs."""
    folder, _, name = source.rpartition("/")
    stem = name.removesuffix(".py")
    return f"{folder}/__pycache__/{stem}.{cache_tag}.pyc" if folder else f"__pycache__/{stem}.{cache_tag}.pyc"


def compile_sources(
    root: Path, sources: Sequence[str], *, shown_as: str, interpreter: Interpreter, runner: Runner
) -> None:
    """Byte-compile ``sources`` (paths relative to ``root``) in place.

    ``shown_as`` is the folder that tracebacks name instead of ``root``; Python corrects it on import, so one
    that does not change keeps the files equal. Raises ``HostError`` if the interpreter cannot do it at all.
    """
    if not sources:
        return
    jobs = min(os.cpu_count() or 1, 8, 1 + len(sources) // 64)
    argv = [interpreter.path, "-I", "-S", "-m", "compileall", "-qq", "-f"]
    argv += [
        "--invalidation-mode",
        "checked-hash",
        "-s",
        str(root),
        "-p",
        shown_as,
        "-j",
        str(jobs),
        "-i",
        "-",
    ]
    listed = "".join(f"{root}/{source}\n" for source in sources).encode("utf-8", "surrogateescape")
    finished = runner(argv, stdin=listed, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, timeout=_TIMEOUT)
    if finished.status not in (0, 1):  # 1: some source did not compile
        said = finished.error_text.strip().splitlines()
        raise HostError(
            "E-BYTECODE",
            interpreter.path,
            expected="its compileall to run",
            found=said[-1][:200] if said else f"exit status {finished.status}",
            hint="install with --no-compile, or repair that Python",
        )


def read_bytecode(tree: Tree, path: str, mode: int) -> tuple[int, Digest, int, int] | None:
    """Set the mode of a fresh bytecode file; return size, digest, mtime in ns and inode, None if absent."""
    found = tree.stat(path)
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    fd = tree.open_file(path)
    try:
        os.fchmod(fd, mode)
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return status.st_size, Digest(tree.digest(path)), status.st_mtime_ns, status.st_ino


def folders_of(paths: Iterable[str]) -> list[str]:
    """Return the ``__pycache__`` folders of bytecode paths, each once."""
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths))
