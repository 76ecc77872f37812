"""Editable installs: where their code really lies, and which of it is copied in.

* Roots come from what the installer wrote: folders in the distribution's own ``.pth`` files, the ``MAPPING``
  of setuptools' finder module, else the project folder that ``direct_url.json`` names.
* Of a git checkout the tracked and the unignored files are taken, and ignored compiled modules (an
  in-place build leaves them so); elsewhere all files but caches.
* Remote, commit and the difference to it go into the report. git is asked without taking its locks.
"""

# ruff: noqa: PTH112, PTH113, PTH118, PTH208 - paths here are text
from __future__ import annotations

import ast
import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envbundle.errors import EnvbundleError, HostError
from envbundle.host.files import read_bounded
from envbundle.host.run import find_program

from .content import Content
from .distributions import is_contained
from .inventory import is_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envbundle.host.run import Runner

    from .compare import Disk
    from .distributions import Installed

_FINDER = re.compile(r"import[ \t]+(__editable___[A-Za-z0-9_]+_finder)\b")
_NOT_PRODUCT = frozenset(
    ("tests", "test", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "build", "dist")
)
_NOT_MODULES = frozenset(("setup.py", "conftest.py", "noxfile.py", "tasks.py", "fabfile.py"))
_MAX_DIFF = 8 * 1024 * 1024
_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A git checkout: its remote (without credentials), its commit, the difference of its files to it."""

    folder: str
    remote: str = ""
    commit: str = ""
    diff: str = ""
    untracked: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class EditableSource:
    """The code of an editable install.

    ``contents`` are its files, by their path below the prefix; ``replaced`` are paths of the environment that
    lead outside and are left out; ``left_out`` are names in the root that are not taken.
    """

    contents: dict[str, Content] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    checkout: Checkout | None = None


def read_editable(one: Installed, disk: Disk, runner: Runner) -> EditableSource:
    """Return the code of an editable install; one without any code has no contents."""
    source = EditableSource()
    site = disk.inventory.site
    mapping: dict[str, str] = {}
    roots: list[str] = []
    for path in _own_top_files(one, disk):
        text = read_bounded(Path(disk.inventory.files[path].place), 1 << 20).decode("utf-8", "replace")
        finder = _FINDER.search(text)
        if path.endswith(".pth"):
            folders = [line.strip() for line in text.splitlines() if line.strip().startswith("/")]
            roots += folders
            if folders or finder:
                source.replaced.add(path)
        if finder:
            place = f"{site}/{finder[1]}.py"
            if place in disk.inventory.files:
                source.replaced.add(place)
                mapping |= _mapping(disk.inventory.files[place].place)
    if not roots and not mapping and one.origin.folder:
        below = os.path.join(one.origin.folder, one.origin.subdirectory)
        roots = [src if os.path.isdir(src := os.path.join(below, "src")) else below]
    names = _top_level(one, disk)
    for root in dict.fromkeys(roots):
        mapping |= _tops(root, names, one.name, source)
    tracked = _Git(runner)
    for name, place in mapping.items():
        _take(source, tracked, name, place, site)
    source.roots = [*dict.fromkeys([*roots, *(posixpath.dirname(p.rstrip("/")) for p in mapping.values())])]
    folder = one.origin.folder or next(iter(source.roots), "")
    source.checkout = tracked.checkout(folder) if folder else None
    return source


def _own_top_files(one: Installed, disk: Disk) -> Iterator[str]:
    """Yield the distribution's own ``.pth`` and finder files, at the top of site-packages."""
    site = disk.inventory.site + "/"
    stem = re.sub(r"[-_.]+", "_", one.name)
    for path in sorted(disk.inventory.files):
        if not path.startswith(site) or "/" in path[len(site) :] or not path.endswith(".pth"):
            continue
        name = path[len(site) :]
        owned = one.record is not None and path in one.record
        if owned or re.sub(r"[-_.]+", "_", name).lower().startswith((f"_editable_{stem}_", f"_{stem}_pth")):
            yield path


def _mapping(place: str) -> dict[str, str]:
    """Return the top-level names and places of setuptools' finder module, read and never run."""
    try:
        tree = ast.parse(read_bounded(Path(place), 1 << 20))
    except (SyntaxError, ValueError, EnvbundleError):
        return {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            continue
        value = getattr(node, "value", None)
        try:
            found = ast.literal_eval(value) if value is not None else {}
        except ValueError:
            return {}
        if isinstance(found, dict):
            return {str(k): str(v) for k, v in found.items() if isinstance(k, str) and isinstance(v, str)}
    return {}


def _top_level(one: Installed, disk: Disk) -> list[str]:
    file = disk.inventory.files.get(f"{one.info}/top_level.txt")
    if file is None:
        return []
    text = read_bounded(Path(file.place), 1 << 20).decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _tops(root: str, names: list[str], distribution: str, source: EditableSource) -> dict[str, str]:
    """Return what can be imported from a folder on sys.path, by name."""
    try:
        listed = sorted(os.listdir(root))
    except OSError as fault:
        raise HostError(
            "E-EDITABLE-GONE",
            root,
            expected=f"the source of {distribution}, which is installed as editable",
            found=fault.strerror or str(fault),
            hint="put the checkout back where it was, or install the distribution as a wheel",
        ) from fault
    own = re.sub(r"[-.]+", "_", distribution)
    found: dict[str, str] = {}
    for name in listed:
        place = os.path.join(root, name)
        stem = name.removesuffix(".py")
        if os.path.isdir(place):
            wanted = name.isidentifier() and _holds_modules(place)
        else:
            wanted = (name.endswith(".py") and stem.isidentifier() and name not in _NOT_MODULES) or (
                name.endswith(".so") and name.partition(".")[0].isidentifier()
            )
        if not wanted or name.startswith("."):
            continue
        known = stem.partition(".")[0]
        if (names and known not in names and "." not in known) or (
            not names and known in _NOT_PRODUCT and known != own
        ):
            source.left_out.append(name)
        else:
            found[known if os.path.isdir(place) else name] = place
    return found


def _holds_modules(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name.endswith((".py", ".so")) for name in names) or any(
        name.isidentifier() and os.path.isfile(os.path.join(folder, name, "__init__.py")) for name in names
    )


def _take(source: EditableSource, git: _Git, name: str, place: str, site: str) -> None:
    """Take one package or module into site-packages, ``name`` may be dotted."""
    base = f"{site}/{name.replace('.', '/') if not name.endswith(('.py', '.so')) else name}"
    path = Path(place)
    if path.is_file():
        target = base if base.endswith(path.suffix) else base + path.suffix
        source.contents[target] = _content(target, path)
        return
    if not path.is_dir() and path.with_suffix(".py").is_file():
        source.contents[base + ".py"] = _content(base + ".py", path.with_suffix(".py"))
        return
    wanted = git.wanted(place)
    for below in _files(place):
        if wanted is not None and below not in wanted and not below.endswith(".so"):
            continue
        if below.endswith(".pyc") or not is_contained(f"{base}/{below}"):
            continue
        source.contents[f"{base}/{below}"] = _content(f"{base}/{below}", path / below)


def _files(root: str) -> Iterator[str]:
    """Yield the files below a folder, also through links to files, without caches and git's own."""
    for place, folders, names in os.walk(root):
        folders[:] = sorted(n for n in folders if not is_cache(n) and n not in ("__pycache__", ".git"))
        for name in sorted(names):
            path = os.path.join(place, name)
            if os.path.isfile(path):
                yield os.path.relpath(path, root)


def _content(target: str, place: Path) -> Content:
    from envbundle.host.file_urls import file_digest  # noqa: PLC0415

    digest, size = file_digest(place)
    executable = bool(place.stat().st_mode & 0o111)
    return Content(path=target, sha256=digest.hex, size=size, executable=executable, place=str(place))


class _Git:
    """git, asked about folders; where it is missing or refuses, nothing is known."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._program = find_program("git")

    def _ask(self, folder: str, *words: str) -> bytes | None:
        if self._program is None:
            return None
        env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        try:
            done = self._runner(
                [self._program, "-C", folder, "-c", "core.quotepath=off", *words], env=env, timeout=_TIMEOUT
            )
        except HostError:
            return None
        return done.stdout if done.status == 0 else None

    def wanted(self, folder: str) -> frozenset[str] | None:
        """Return the tracked and unignored files below ``folder``; None where it is no checkout."""
        listed = self._ask(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if listed is None:
            return None
        return frozenset(name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0") if name)

    def checkout(self, folder: str) -> Checkout | None:
        """Return what a checkout is; None where ``folder`` is none."""
        commit = self._ask(folder, "rev-parse", "HEAD")
        if commit is None:
            return None
        remote = self._ask(folder, "remote", "get-url", "origin") or b""
        diff = self._ask(folder, "diff", "--no-color", "--no-ext-diff", "HEAD") or b""
        others = self._ask(folder, "ls-files", "-z", "--others", "--exclude-standard") or b""
        return Checkout(
            folder=folder,
            remote=_public(remote.decode("utf-8", "replace").strip()),
            commit=commit.decode("ascii", "replace").strip(),
            diff=diff[:_MAX_DIFF].decode("utf-8", "replace"),
            untracked=tuple(n.decode("utf-8", "replace") for n in others.split(b"\0") if n),
        )


def _public(remote: str) -> str:
    if "://" not in remote:
        return remote
    parts = urlsplit(remote)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def public_direct_url(data: bytes) -> bytes:
    """Return ``direct_url.json`` without its mark of an editable install, as an installation leaves it."""
    import json  # noqa: PLC0415

    try:
        value: Mapping[str, object] = json.loads(data)
    except (ValueError, RecursionError):
        return data
    folder = value.get("dir_info") if isinstance(value, dict) else None
    if not isinstance(folder, dict) or "editable" not in folder:
        return data
    del folder["editable"]
    return json.dumps(value, sort_keys=True).encode()
