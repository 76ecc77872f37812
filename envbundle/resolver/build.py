"""Making a wheel where no published one serves: ``[package.NAME.build]``, by uv, in isolation.

* The source is a folder (copied, so that a build leaves nothing in it), an sdist, or a git revision. Its
  digest is of the files' paths, modes and bytes; of the sdist; or the commit.
* The build sees PATH, HOME and what the manifest's ``env`` says, nothing else of this machine's variables;
  ``requires`` are installed beside what the project itself asks for. Backends run as this user: a build
  runs foreign code, which nothing else in a lock does.
* A wheel is kept under everything that went into it: source, env, requirements, toolchain, Python, platform.
  The same build is made once; its wheel is judged like any other and pinned by its own sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, HostError, UserInputError, VerdictError
from envbundle.host.file_urls import file_digest
from envbundle.host.files import atomic_write, host_errors
from envbundle.host.folder import Folder
from envbundle.host.run import find_program
from envbundle.progress import SILENT, Reporter
from envbundle.spec.lock import LockedBuild
from envbundle.spec.toml_writer import inline

from .requirements import Asked
from .wheel_choice import name_and_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from envbundle.host.run import Runner
    from envbundle.spec.digest import Digest
    from envbundle.spec.manifest import Build
    from envbundle.spec.target import Target

    from .listing import Listing
    from .requirements import AskedFor

_PASSED = (
    "PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK",
)  # fmt: skip
_LEFT_OUT = re.compile(r"(^|/)(\.git|build|dist|\.venv|[^/]+\.egg-info)(/|$)")
_EPOCH = "315532800"  # 1980: the oldest date that a zip can hold
_TIMEOUT = 4 * 3600.0
_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A wheel that was built: its file in the cache, and what went into it."""

    path: Path
    sha256: Digest
    size: int
    record: LockedBuild

    @property
    def filename(self) -> str:
        """The wheel's name."""
        return self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Builds wheels. ``folder`` is the manifest's; ``options`` are uv's words for indexes and find-links."""

    folder: Path
    cache: Path
    runner: Runner
    uv: str
    target: Target
    options: tuple[str, ...] = ()
    reporter: Reporter = SILENT

    def build(self, name: str, build: Build) -> Built:
        """Return the wheel of ``name``, from the cache where it was made before.

        Raises ``VerdictError`` (E-BUILD) where the build fails or gives no wheel of that name,
        ``UserInputError`` (E-BUILD-SOURCE) for a source that is not there, ``HostError``.
        """
        with tempfile.TemporaryDirectory(prefix="envbundle-build-") as text:
            work = Path(text)
            source, digest = self._source(build.source, work)
            record = LockedBuild(
                distribution=name,
                source=build.source,
                digest=digest,
                env=build.env,
                requires=build.requires,
                toolchain=tuple(sorted(self._toolchain(build).items())),
            )
            place = self.cache / "builds" / self._key(record)
            kept = _kept(place, record)
            if kept is not None:
                return kept
            wheel = self._run(name, build, source, work)
            return _keep(wheel, place, record)

    # --- the source

    def _source(self, text: str, work: Path) -> tuple[Path, str]:
        if text.startswith("git+"):
            return self._git(text[len("git+") :], work)
        path = self.folder / text
        if path.is_dir():
            return _copied(path, work / "source")
        if path.is_file():
            digest, _ = file_digest(path)
            return path.resolve(), str(digest)
        raise UserInputError(
            "E-BUILD-SOURCE", text, expected="a folder or an sdist, relative to the manifest", found="nothing"
        )

    def _git(self, text: str, work: Path) -> tuple[Path, str]:
        url, _, revision = text.rpartition("@")
        place = work / "source"
        place.mkdir()
        self._git_run(place, "init", "--quiet")
        try:
            self._git_run(place, "fetch", "--quiet", "--depth", "1", url, revision)
        except VerdictError:  # a server that gives no single commits
            self._git_run(place, "fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/o/*")
            self._git_run(place, "checkout", "--quiet", "--detach", revision)
        else:
            self._git_run(place, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        if (place / ".gitmodules").exists():
            self._git_run(place, "submodule", "update", "--quiet", "--init", "--recursive")
        return place, "git:" + self._git_run(place, "rev-parse", "HEAD").strip()

    def _git_run(self, place: Path, *words: str) -> str:
        env = {**_environment(()), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
        finished = self.runner(["git", *words], cwd=place, env=env, timeout=_TIMEOUT)
        if finished.status != 0:
            raise VerdictError(
                "E-BUILD",
                f"git {words[0]}",
                expected="the revision that the manifest names",
                found=_end(finished.error_text),
            )
        return finished.text

    # --- the build

    def _toolchain(self, build: Build) -> dict[str, str]:
        """Return the releases of what takes part: uv, Python, and compilers where they are."""
        env = _environment(build.env)
        cuda = env.get("CUDA_HOME") or env.get("CUDA_PATH")
        nvcc = f"{cuda}/bin/nvcc" if cuda else find_program("nvcc", env.get("PATH"))
        tools = {
            "uv": (self.uv, r"uv (\S+)"),
            "python": (self._python(), r"Python (\S+)"),
            "cc": (env.get("CC") or find_program("cc", env.get("PATH")), r"(\S.*)"),
            "nvcc": (nvcc, r"release [0-9.]+, V([0-9.]+)"),
        }
        found = {}
        for name, (program, pattern) in tools.items():
            if program:
                try:
                    finished = self.runner([program, "--version"], env=env, timeout=60)
                except HostError:
                    continue
                match = re.search(pattern, finished.text or finished.error_text)
                if match is not None:
                    found[name] = match[1].strip()
        return found

    def _python(self) -> str:
        """Return an interpreter of the target's version, or the version for uv to look for."""
        if f"{sys.version_info[0]}.{sys.version_info[1]}" == self.target.python:
            return sys.executable
        return find_program(f"python{self.target.python}") or self.target.python

    def _key(self, record: LockedBuild) -> str:
        facts = [record.to_dict(), self.target.python, self.target.platform]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _run(self, name: str, build: Build, source: Path, work: Path) -> Path:
        out, config = work / "out", work / "uv.toml"
        extra = {name: list(build.requires)} if build.requires else {}
        config.write_text(f"extra-build-dependencies = {inline(extra)}\n" if extra else "", encoding="utf-8")
        argv = [self.uv, "build", "--wheel", "--config-file", str(config), "--no-python-downloads"]
        argv += ["--python", self._python(), "--out-dir", str(out), "--cache-dir", str(self.cache / "uv")]
        argv += ["--color", "never", "--no-progress", *self.options, str(source)]
        task = f"build {name}"
        self.reporter.start(task)
        finished = self.runner(argv, env=_environment(build.env), cwd=work, timeout=_TIMEOUT)
        self.reporter.finish(task)
        subject = f"package.{name}.build"
        if finished.status != 0:
            raise VerdictError(
                "E-BUILD", subject, expected=f"a wheel from {build.source}", found=_end(finished.error_text)
            )
        wheels = sorted(out.glob("*.whl"))
        named = [wheel for wheel in wheels if (name_and_version(wheel.name) or ("",))[0] == name]
        if len(wheels) != 1 or not named:
            raise VerdictError(
                "E-BUILD",
                subject,
                expected=f"one wheel of {name}",
                found=", ".join(wheel.name for wheel in wheels) or "no wheel",
            )
        return named[0]


def _environment(own: Sequence[tuple[str, str]]) -> dict[str, str]:
    kept = {key: os.environ[key] for key in _PASSED if key in os.environ}
    return {**kept, "LANG": "C.UTF-8", "SOURCE_DATE_EPOCH": _EPOCH, **dict(own)}


def _copied(source: Path, place: Path) -> tuple[Path, str]:
    """Copy a source folder and return (the copy, its digest)."""
    state = hashlib.sha256()
    folder = Folder(source)
    for file in folder.files():
        if _LEFT_OUT.search(file.path):
            continue
        target = place / file.path
        own = hashlib.sha256()
        with host_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as stream:
                for block in folder.blocks(file.path):
                    own.update(block)
                    stream.write(block)
            target.chmod(0o755 if file.mode & 0o111 else 0o644)
        mark = "x" if file.mode & 0o111 else "-"
        state.update(f"{own.hexdigest()} {mark} {file.path}\n".encode())
    return place, f"sha256:{state.hexdigest()}"


def _kept(place: Path, record: LockedBuild) -> Built | None:
    try:
        known: Any = json.loads((place / "record.json").read_bytes())
        path = place / str(Path(known["wheel"]).name)
        digest, size = file_digest(path)
        if known["record"] == record.to_dict() and known["sha256"] == str(digest):
            return Built(path=path, sha256=digest, size=size, record=record)
    except (OSError, ValueError, KeyError, TypeError, EnvbundleError):
        return None
    return None


def _keep(wheel: Path, place: Path, record: LockedBuild) -> Built:
    """Put a wheel into the cache, by rename, and what it was made of beside it."""
    digest, size = file_digest(wheel)
    with host_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    with _incoming(place / wheel.name) as part:
        shutil.copyfile(wheel, part)
    facts = {"wheel": wheel.name, "sha256": str(digest), "record": record.to_dict()}
    atomic_write(place / "record.json", json.dumps(facts, sort_keys=True).encode())
    return Built(path=place / wheel.name, sha256=digest, size=size, record=record)


@contextmanager
def _incoming(path: Path) -> Iterator[Path]:
    part = path.with_name(f".{path.name}.part")
    with host_errors(path):
        yield part
        part.replace(path)


def _end(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])[-4000:] or "no message"


def build_options(listing: Listing, *, offline: bool) -> tuple[str, ...]:
    """Return uv's words for where a build's own requirements come from: the manifest's indexes and folders.

    Indexes that serve only named distributions are left out.
    """
    words: list[str] = []
    if listing.no_index:
        words.append("--no-index")
    else:
        if listing.default_index and not any(index.default for index in listing.indexes):
            words += ["--default-index", listing.default_index]
        for index in listing.indexes:
            if not index.explicit:
                words += ["--default-index" if index.default else "--index", index.url]
    for link in listing.find_links:
        words += ["--find-links", link]
    if offline:
        words.append("--offline")
    return tuple(words)


def with_built(asked: AskedFor, built: Mapping[str, Built]) -> AskedFor:
    """Return what is asked with built wheels in the place of the requirements of their names.

    What was asked of such a name stays as a constraint: a build of another version does not hold.
    """
    wheels = [
        Asked(
            name=name,
            text=f"{name} @ {one.path.as_uri()}",
            origin=f"package.{name}.build",
            url=one.path.as_uri(),
            hashes=(one.sha256,),
        )
        for name, one in sorted(built.items())
    ]
    others = [one for one in asked.requirements if one.name not in built]
    held = [one for one in asked.requirements if one.name in built and one.url is None and len(one.specifier)]
    return replace(asked, requirements=(*others, *wheels), constraints=(*asked.constraints, *held))
