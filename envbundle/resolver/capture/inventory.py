"""Everything that lies in an environment: files, links, what is left out; read without following links.

* Paths are relative to the prefix, as an installer would lay them: a real ``lib64`` counts as ``lib``.
* Bytecode of ``__pycache__`` is nobody's work and left out; so are caches of compilers that run at run time,
  whose bytes are counted.
* What belongs to the environment itself (``pyvenv.cfg``, the interpreter's links, activate scripts, whatever
  envbundle wrote) is left out: every installation writes it anew.
"""

# ruff: noqa: PTH112, PTH114, PTH115, PTH118, PTH208 - ten thousands of files: text is several times cheaper than Path
from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from envbundle.errors import EnvbundleError, UserInputError, VerdictError
from envbundle.host.files import host_error
from envbundle.spec.names import RelPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENVIRONMENT = re.compile(
    r"""
      pyvenv\.cfg | \.envbundle(/.*)? | env\.(sh|conf)
    | bin/ python[w]? [0-9.]* [a-z]? | bin/ pypy[0-9.]*
    | bin/ (de)? [Aa]ctivate (_this)? (\.[A-Za-z0-9]+)?
    | lib/ python3\.[0-9]+ / site-packages / ( _envbundle_[^/]* | [^/]* envbundle\.pth )
    """,
    re.VERBOSE,
)
_CACHE_FOLDERS = frozenset(
    (
        ".cache",
        ".triton",
        ".nv",
        ".flashinfer",
        ".deep_gemm",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        "torch_extensions",
        "torch_compile_cache",
        "ComputeCache",
    )
)
_CACHE_NAME = re.compile(r"torchinductor_.+|triton_cache.*|deep_gemm_cache.*|pycache")
_PRIVATE = 0o6000


class File(NamedTuple):
    """A regular file: ``path`` below the prefix, ``place`` on the disk, size in bytes, what stat said."""

    path: str
    place: str
    size: int
    mode: int
    device: int
    inode: int
    mtime_ns: int
    links: int

    @property
    def executable(self) -> bool:
        """Whether anybody may execute it."""
        return bool(self.mode & 0o111)


@dataclass(slots=True, kw_only=True)
class Inventory:
    """What lies in an environment.

    ``root`` is its real path, ``given`` the path as it was named; ``python`` is ``3.N``. ``links`` maps a
    path to the text of the link; ``caches`` maps a left-out cache folder to its bytes; ``odd`` are paths
    that are no file, folder or link, or whose names no bundle may hold; ``privileged`` have setuid, setgid
    or capabilities; ``attributes`` counts files with other extended attributes.
    """

    root: str
    given: str
    python: str
    files: dict[str, File] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    caches: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    privileged: list[str] = field(default_factory=list)
    attributes: int = 0
    bytecode: int = 0
    known_as: tuple[str, ...] = ()

    @property
    def site(self) -> str:
        """``lib/python3.N/site-packages``."""
        return f"lib/python{self.python}/site-packages"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The paths under which the environment is known: as named, the real one, ``known_as``."""
        return tuple(dict.fromkeys((self.given.rstrip("/") or "/", self.root, *self.known_as)))


def take_inventory(venv: Path, python: str) -> Inventory:
    """Walk the environment at ``venv``; ``python`` is its ``3.N``. Raises ``HostError``."""
    root = os.path.realpath(venv)
    found = Inventory(root=root, given=os.path.abspath(venv), python=python)  # noqa: PTH100 - as named
    merged = not os.path.islink(os.path.join(root, "lib64"))
    _walk(found, root, merged=merged)
    for path in [path for path in found.files if path.endswith(".pyc") and path[:-1] in found.files]:
        del found.files[path]  # its source lies beside it, and that is what Python reads
    return found


def is_environment(path: str) -> bool:
    """Say whether a path belongs to the environment itself and not to anything installed in it."""
    return _ENVIRONMENT.fullmatch(path) is not None


def is_cache(name: str) -> bool:
    """Say whether a folder of that name holds what is made again when it is missing."""
    return name in _CACHE_FOLDERS or _CACHE_NAME.fullmatch(name) is not None


def _walk(found: Inventory, root: str, *, merged: bool) -> None:
    stack = [(root, "")]
    while stack:
        folder, prefix = stack.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as fault:
            raise host_error(fault, folder) from fault
        for entry in listed:
            _take(found, entry, prefix, stack, merged=merged)


def _take(
    found: Inventory, entry: os.DirEntry[str], prefix: str, stack: list[tuple[str, str]], *, merged: bool
) -> None:
    name = entry.name
    path = prefix + name
    if entry.is_symlink():
        if path != "lib64" and not _ENVIRONMENT.fullmatch(path):
            found.links[path] = os.readlink(entry.path)
        return
    if entry.is_dir(follow_symlinks=False):
        if not _is_name(name):
            found.odd.append(path)
        elif name == "__pycache__":
            found.bytecode += 1
        elif name == ".envbundle" and not prefix:
            pass
        elif is_cache(name):
            found.caches[path] = _bytes_below(entry.path)
        else:
            stack.append((entry.path, "lib/" if merged and path == "lib64" else path + "/"))
        return
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError as fault:
        raise host_error(fault, entry.path) from fault
    if not stat.S_ISREG(info.st_mode) or not _is_name(name):
        found.odd.append(path)
        return
    if not prefix.startswith("lib/") and _ENVIRONMENT.fullmatch(path):
        return
    if prefix.endswith("/site-packages/") and _ENVIRONMENT.fullmatch(path):
        return
    if info.st_mode & _PRIVATE:
        found.privileged.append(path)
    if path not in found.files:
        found.files[path] = File(
            path,
            entry.path,
            info.st_size,
            stat.S_IMODE(info.st_mode),
            info.st_dev,
            info.st_ino,
            info.st_mtime_ns,
            info.st_nlink,
        )


def _is_name(name: str) -> bool:
    if name.isascii() and name.isprintable() and "\\" not in name:
        return True
    try:
        RelPath(name)
    except EnvbundleError:
        return False
    return True


def _bytes_below(folder: str) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # noqa: PERF203 - a cache that is being used loses files
                continue
    return total


def note_attributes(found: Inventory) -> None:
    """Look for capabilities and other extended attributes; where the file system has none, find none."""
    for path, file in found.files.items():
        try:
            names = os.listxattr(file.place, follow_symlinks=False)
        except OSError:
            if file.size == 0:
                continue
            return
        if not names:
            continue
        if "security.capability" in names:
            found.privileged.append(path)
        elif any(not name.startswith("security.selinux") for name in names):
            found.attributes += 1


def python_of(venv: Path) -> str:
    """Return the ``3.N`` whose site-packages an environment has; raises ``UserInputError`` (E-NOT-A-VENV)."""
    root = os.path.realpath(venv)
    versions = sorted(_site_versions(root))
    config = read_config(root)
    said = re.match(r"3\.[0-9]+", config.get("version_info", config.get("version", "")))
    if said and said[0] in versions:
        return said[0]
    if len(versions) == 1:
        return versions[0]
    raise UserInputError(
        "E-NOT-A-VENV",
        str(venv),
        expected="a virtual environment: pyvenv.cfg and lib/python3.N/site-packages",
        found="no site-packages" if not versions else f"site-packages of {', '.join(versions)}",
    )


def _site_versions(root: str) -> Iterator[str]:
    for library in ("lib", "lib64"):
        try:
            names = os.listdir(os.path.join(root, library))
        except OSError:
            continue
        for name in names:
            match = re.fullmatch(r"python(3\.[0-9]+)", name)
            if match and os.path.isdir(os.path.join(root, library, name, "site-packages")):
                yield match[1]
        if os.path.islink(os.path.join(root, "lib64")):
            return


def read_config(root: str) -> dict[str, str]:
    """Return the keys of ``pyvenv.cfg``, lower-case; none where there is no such file."""
    try:
        with open(os.path.join(root, "pyvenv.cfg"), encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            text = stream.read(65536)
    except OSError:
        return {}
    rows = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in rows}


def require_environment(venv: Path) -> None:
    """Refuse what is no virtual environment, and what only conda can move."""
    if not venv.is_dir():
        raise UserInputError("E-NOT-A-VENV", str(venv), expected="a virtual environment", found="no folder")
    if (venv / "conda-meta").is_dir():
        raise VerdictError(
            "E-CONDA",
            str(venv),
            expected="a virtual environment, whose interpreter is the host's",
            found="a conda environment, which holds its own interpreter and libraries",
            hint="make a virtual environment with its python and install the same distributions there, "
            "or move it with conda's own tools",
        )
