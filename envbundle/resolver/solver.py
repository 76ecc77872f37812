"""Choosing versions: the ``Solver`` protocol and the one that asks uv.

* uv is asked for one target at a time, as a PEP 751 document; that document is all that is read of its
  answer. Its English goes to people as it is and decides nothing.
* Nothing of this machine's configuration takes part: no uv.toml, no UV_* variables, no host markers, no
  source builds, no Python downloads, a cache folder of our own.
* A uv outside ``UV_RANGE`` is refused: the flags and the document were tried with these versions.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envbundle.errors import HostError, IntegrityError, UserInputError, VerdictError
from envbundle.host.files import host_errors
from envbundle.host.run import Runner, find_program
from envbundle.spec.digest import Digest
from envbundle.spec.names import normalise_name
from envbundle.spec.toml_text import read_toml
from envbundle.spec.toml_writer import inline, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.spec.lock import Lock
    from envbundle.spec.manifest import IndexSource
    from envbundle.spec.target import Target

UV_RANGE = SpecifierSet(">=0.9.17,<0.15")
_GLIBCS = (17, 28, *range(31, 41))
_KEPT = ("HTTP_TIMEOUT", "HTTP_RETRIES", "CONCURRENT_DOWNLOADS", "SYSTEM_CERTS", "NATIVE_TLS")
_VERSION = re.compile(r"uv ([0-9][0-9A-Za-z.+-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateWheel:
    """One wheel that the solver offers. ``url`` is absolute, as the solver said it (``file:`` or http)."""

    filename: str
    url: str
    sha256: Digest | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One distribution of a solution, with every wheel the solver found for that version."""

    name: str
    version: str
    wheels: tuple[CandidateWheel, ...]
    index: str | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a solver is asked for one target.

    ``requirements`` and ``constraints`` are PEP 508 without markers. ``find_links`` are absolute paths or
    URLs. ``sources`` maps a distribution to the one index it may come from. ``preferred`` is the previous
    lock; its versions stay where they may, but for those in ``upgrade`` (None: prefer nothing).
    """

    target: Target
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    indexes: tuple[IndexSource, ...] = ()
    default_index: str | None = None
    find_links: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    no_index: bool = False
    offline: bool = False
    preferred: Lock | None = None
    upgrade: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What holds together, by name."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSolution:
    """Nothing holds together; ``prose`` is the solver's own explanation, for people."""

    prose: str


class Solver(Protocol):
    """Chooses versions."""

    @property
    def name(self) -> str:
        """The solver and its version, as the lock records it."""

    def solve(self, question: Question) -> Solution | NoSolution:
        """Return versions that hold together, or why none do."""


@dataclass(slots=True)
class UvSolver:
    """uv by subprocess. ``cache`` is uv's own cache folder; ``interpreter`` any Python of this machine."""

    runner: Runner
    uv: str
    cache: Path
    interpreter: str = sys.executable
    timeout: float = 1800.0
    _version: str = field(default="", init=False)

    @property
    def name(self) -> str:
        """``uv 0.13.9``; asked once. Raises ``HostError`` (E-UV-VERSION) outside ``UV_RANGE``."""
        if not self._version:
            self._version = uv_version(self.runner, self.uv)
        return f"uv {self._version}"

    def solve(self, question: Question) -> Solution | NoSolution:
        """Ask uv; see ``Solver``. Raises ``IntegrityError`` where its answer is no PEP 751 document."""
        _ = self.name
        with host_errors(self.cache):
            self.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="envbundle-solve-") as name:
            folder = Path(name)
            output = folder / "pylock.toml"
            if question.preferred is not None:
                output.write_text(_preferences(question.preferred), encoding="utf-8")
            argv = [self.uv, "pip", "compile", *_input_files(question, folder), *self._options(question)]
            argv += ["--output-file", str(output)]
            finished = self.runner(argv, env=_environment(), cwd=folder, timeout=self.timeout)
            if finished.status != 0:
                return NoSolution(prose=finished.error_text.replace(str(folder) + "/", "").strip())
            text = output.read_text(encoding="utf-8")
        return Solution(candidates=_candidates(read_toml(text, filename="pylock.toml"), folder))

    def _options(self, question: Question) -> list[str]:
        target = question.target
        words = [
            "--format", "pylock.toml",
            "--python", self.interpreter,
            "--python-version", target.python,
            "--python-platform", uv_platform(target.platform),
            "--only-binary", ":all:",
            "--no-header", "--no-annotate", "--no-config", "--no-python-downloads",
            "--no-progress", "--quiet", "--color", "never",
            "--cache-dir", str(self.cache),
        ]  # fmt: skip
        explicit = {index.name for index in question.indexes if index.explicit}
        for index in question.indexes:
            if index.name not in explicit and not question.no_index:
                words += ["--default-index" if index.default else "--index", f"{index.name}={index.url}"]
        if question.no_index:
            words.append("--no-index")
        elif question.default_index and not any(index.default for index in question.indexes):
            words += ["--default-index", question.default_index]
        for link in question.find_links:
            words += ["--find-links", link]
        if question.offline:
            words.append("--offline")
        for package in question.upgrade:
            words += ["--upgrade-package", package]
        return words


def uv_platform(platform: str) -> str:
    """Return the platform that uv knows whose wheels all run on ``platform``: the nearest glibc below."""
    machine, _, rest = platform.partition("-manylinux_")
    major, _, minor = rest.partition("_")
    fitting = [known for known in _GLIBCS if int(major) > 2 or known <= int(minor)]
    if not fitting:
        raise UserInputError(
            "E-PLATFORM", "platform", expected=f"{machine}-manylinux_2_17 or newer", found=platform
        )
    return f"{machine}-manylinux_2_{fitting[-1]}"


def find_uv() -> str:
    """Return uv's path: beside this interpreter, where the ``uv`` distribution put it, or on PATH.

    Raises ``HostError`` (E-TOOL-MISSING).
    """
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin  # noqa: PLC0415 - only the machine that locks has it

        return str(find_uv_bin())
    found = find_program("uv")
    if found is None:
        raise HostError("E-TOOL-MISSING", "uv", expected=f"uv {UV_RANGE}", hint="run `pip install uv`")
    return found


def uv_default_index(runner: Runner, uv: str) -> str:
    """Return the index that uv asks where nobody names one: $UV_DEFAULT_INDEX, else its own default.

    uv says it when it is asked to write down where an empty set came from; no network is used. Raises
    ``HostError`` (E-UV-INDEX) where it does not.
    """
    named = {key: os.environ[key] for key in ("UV_DEFAULT_INDEX", "UV_INDEX_URL") if os.environ.get(key)}
    words = [uv, "pip", "compile", "--offline", "--no-config", "--no-header", "--emit-index-url", "-"]
    finished = runner(words, stdin=b"\n", env={**_environment(), **named}, timeout=60)
    for line in finished.text.splitlines():
        option, _, url = line.strip().partition(" ")
        if option == "--index-url" and url:
            return url.strip()
    raise HostError(
        "E-UV-INDEX",
        uv,
        expected="the default index",
        found=finished.error_text.strip()[:200] or "nothing",
        hint="name one in the manifest: [[resolve.index]] name, url, default = true",
    )


def uv_version(runner: Runner, uv: str) -> str:
    """Return uv's version; raises ``HostError`` (E-UV-VERSION) unless it is within ``UV_RANGE``."""
    finished = runner([uv, "--version"], env=_environment(), timeout=60)
    match = _VERSION.match(finished.text)
    found = match[1] if match else finished.text.strip()[:80]
    try:
        fits = Version(found) in UV_RANGE
    except InvalidVersion:
        fits = False
    if not fits:
        raise HostError(
            "E-UV-VERSION",
            uv,
            expected=f"uv {UV_RANGE}",
            found=found,
            hint="run `pip install 'uv>=0.9.17,<0.15'`",
        )
    return found


def _environment() -> dict[str, str]:
    """Return the environment without variables that would change uv's answer."""
    kept = {f"UV_{name}" for name in _KEPT}
    return {
        key: value
        for key, value in os.environ.items()
        if (not key.startswith("UV_") or key in kept)
        and key not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
    }


def _input_files(question: Question, folder: Path) -> list[str]:
    """Write what is asked and return uv's file arguments.

    An index that serves only named distributions can be said to uv in a project file alone, and there only
    for direct requirements; without such indexes a plain list gives people plainer explanations.
    """
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in question.constraints), encoding="utf-8")
    more = ["--constraints", str(constraints)] if question.constraints else []
    if not question.sources or question.no_index:
        path = folder / "requirements.in"
        path.write_text("".join(f"{line}\n" for line in question.requirements), encoding="utf-8")
        return [str(path), *more]
    path = folder / "pyproject.toml"
    lines = [
        "[project]",
        'name = "envbundle-lock"',
        'version = "0"',
        f"requires-python = {value_of('>=' + question.target.python)}",
        f"dependencies = {value_of(list(question.requirements))}",
        "[tool.uv.sources]",
        *(f"{value_of(name)} = {inline({'index': index})}" for name, index in question.sources),
    ]
    named = {index for _, index in question.sources}
    for index in question.indexes:
        if index.name in named:
            lines += ["[[tool.uv.index]]", f"name = {value_of(index.name)}", f"url = {value_of(index.url)}"]
            lines += ["explicit = true"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(path), *more]


def _preferences(lock: Lock) -> str:
    """Return the least PEP 751 document that uv reads its preferred versions from."""
    lines = ['lock-version = "1.0"', 'created-by = "envbundle"']
    for package in lock.packages:
        wheel = {
            "name": package.wheel.filename,
            "url": f"https://preferred.invalid/{package.wheel.filename}",
            "hashes": {"sha256": package.wheel.sha256.hex},
        }
        lines += [
            "[[packages]]",
            f"name = {value_of(package.name)}",
            f"version = {value_of(package.version)}",
        ]
        lines += [f"wheels = [{inline(wheel)}]"]
    return "\n".join(lines) + "\n"


def _candidates(document: Mapping[str, Any], folder: Path) -> tuple[Candidate, ...]:
    from packaging.pylock import Pylock, PylockValidationError  # noqa: PLC0415

    try:
        pylock = Pylock.from_dict(document)
    except PylockValidationError as fault:
        raise IntegrityError("E-SOLVER-ANSWER", "uv", expected="PEP 751", found=str(fault)[:300]) from fault
    candidates = []
    for package in pylock.packages:
        wheels = [
            CandidateWheel(
                filename=wheel.name or filename_of(wheel.url or wheel.path or ""),
                url=wheel.url or _file_url(wheel.path or "", folder),
                sha256=_sha256(wheel.hashes),
                size=wheel.size,
            )
            for wheel in package.wheels or ()
        ]
        archive = package.archive
        if archive is not None:
            url = archive.url or _file_url(archive.path or "", folder)
            wheels.append(
                CandidateWheel(
                    filename=filename_of(url), url=url, sha256=_sha256(archive.hashes), size=archive.size
                )
            )
        if not wheels:
            kind = (
                "a source tree"
                if package.directory or package.vcs
                else "a source archive"
                if package.sdist
                else "no file"
            )
            raise VerdictError(
                "E-NO-WHEEL",
                package.name,
                expected="a wheel for the target",
                found=kind,
                hint="build a wheel of it first and name that file, or its folder in find-links",
            )
        candidates.append(
            Candidate(
                name=normalise_name(package.name),
                version=str(package.version) if package.version is not None else "",
                wheels=tuple(wheels),
                index=package.index,
                direct=archive is not None,
            )
        )
    return tuple(sorted(candidates, key=lambda one: one.name))


def _sha256(hashes: Mapping[str, str]) -> Digest | None:
    value = hashes.get("sha256")
    return None if value is None else Digest(value)


def _file_url(path: str, folder: Path) -> str:
    return (folder / path).resolve().as_uri()


def filename_of(url: str) -> str:
    """Return the file name at the end of a URL or path, unquoted."""
    return unquote(urlsplit(url).path).rpartition("/")[2]
