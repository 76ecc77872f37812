"""A project on disk and the command line run on it in this process.

Every refusal is looked at the same way: the exit status, the finding's fields, no traceback, and a folder
that holds exactly what it held before. The cache, and it alone, may change.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from envbundle.cli.main import main

from ..builders import gpu_library, make_wheel, modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = f"{platform.machine()}-manylinux_2_28"
SITE = f"lib/python{PYTHON}/site-packages"
OLD_PYTHON = "3.11" if PYTHON != "3.11" else "3.12"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command line gave. ``answer`` is its JSON object."""

    status: int
    answer: dict[str, Any]
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.answer["findings"]
        return found

    @property
    def codes(self) -> list[str]:
        """The codes of the findings that refuse."""
        return [f["code"] for f in self.findings if f["severity"] == "error"]

    @property
    def told(self) -> list[str]:
        """The codes of all findings."""
        return [f["code"] for f in self.findings]

    def one(self, code: str) -> dict[str, Any]:
        """Return the only finding of that code."""
        found = [f for f in self.findings if f["code"] == code]
        assert len(found) == 1, self.findings
        return found[0]

    def first(self, code: str) -> dict[str, Any]:
        """Return the first finding of that code."""
        found = [f for f in self.findings if f["code"] == code]
        assert found, self.findings
        return found[0]


@dataclass(slots=True)
class Case:
    """One project. ``folder`` is the manifest's; ``root`` is all that a command might write to."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path) -> Case:
        case = cls(root)
        (case.folder / "wheels").mkdir(parents=True)
        _key, public = new_key(case.folder, "key")
        (case.folder / "signers").write_text(f"dev@example.org {public}\n")
        case.env = {
            "ENVBUNDLE_CACHE": str(root / "cache"),
            "ENVBUNDLE_ALLOWED_SIGNERS": str(case.folder / "signers"),
            "HOME": str(root),
            "PATH": os.environ["PATH"],
            "NO_COLOR": "1",
        }
        return case

    @property
    def folder(self) -> Path:
        return self.root / "project"

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def store(self) -> Path:
        return self.folder / "dist"

    @property
    def prefix(self) -> Path:
        return self.root / "env"

    # --- making

    def wheel(self, name: str, version: str = "1.0", files: Mapping[str, bytes | str] | None = None, **more: Any) -> Path:
        """Write a wheel into the project's find-links folder."""
        return make_wheel(self.wheels, name, version, files, **more)

    def gpu_wheel(self, name: str, *archs: str, version: str = "1.0", **more: Any) -> Path:
        """Write a wheel with one library that holds one device module of ``archs``."""
        return self.wheel(name, version, {f"{name}/__init__.py": "", f"{name}/_k.so": gpu_library(modules(*archs))}, **more)

    def manifest(
        self,
        *requirements: str,
        gpu: str | Mapping[str, str] = "sm_103",
        more: str = "",
        resolve: str = "",
        python: str = PYTHON,
        platform: str = PLATFORM,
        target: str = "",
    ) -> Path:
        """Write the manifest: one target per GPU (``{name: gpu}`` for other names), ``more`` below all."""
        targets = {gpu: gpu} if isinstance(gpu, str) else dict(gpu)
        lines = ["[bundle]", 'name = "case"', 'version = "1.0"', f'python = "{python}"', "[resolve]"]
        lines += [f"requirements = {json.dumps(requirements)}"]
        lines += [resolve or 'find-links = ["wheels"]\nno-index = true']
        for name, each in targets.items():
            lines += [f"[target.{name}]", f'gpu = "{each}"', f'platform = "{platform}"', target]
        path = self.folder / "envbundle.toml"
        path.write_text("\n".join([*lines, more]) + "\n", encoding="utf-8")
        return path

    def overlay(self, name: str, files: Mapping[str, bytes | str]) -> Path:
        """Write the files of an overlay into ``overlays/<name>``."""
        folder = self.folder / "overlays" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data.encode() if isinstance(data, str) else data)
        return folder

    # --- running

    def run(self, *words: str | Path, **env: str) -> Ran:
        """Run ``envbundle WORDS --json``; anything but one JSON object on standard output is a fault."""
        out, err = _Stream(), _Stream()
        surroundings = (_environment({**self.env, **env}), _folder(self.folder))
        caught = (contextlib.redirect_stdout(out), contextlib.redirect_stderr(err))
        with surroundings[0], surroundings[1], caught[0], caught[1]:
            status = main([*map(str, words), "--json"])
        assert "Traceback" not in err.text, err.text
        assert out.text.count("\n") == 1, out.text + err.text
        return Ran(status, json.loads(out.text), err.text)

    def ok(self, *words: str | Path, **env: str) -> Ran:
        """Run a command line that must end 0."""
        done = self.run(*words, **env)
        assert done.status == 0, (words, done.status, done.answer, done.err)
        return done

    def refused(self, status: int, code: str, *words: str | Path, **env: str) -> dict[str, Any]:
        """Run a command line that must refuse, and leave all as it was; return the finding that says why."""
        before = self.listing()
        done = self.run(*words, **env)
        assert (done.status, code in done.codes) == (status, True), (done.status, done.answer, done.err)
        assert self.listing() == before
        finding = done.first(code)
        assert finding["severity"] == "error"
        assert finding["subject"]
        return finding

    def locked(self, *targets: str) -> Ran:
        return self.ok("lock", *(word for target in targets for word in ("--arch", target)))

    def packed(self, *targets: str) -> Path:
        """Lock and pack; return the store."""
        self.locked(*targets)
        self.ok("pack", "--key", "key", "--no-bootstrap", *(word for target in targets for word in ("--arch", target)))
        return self.store

    def install(self, *words: str | Path, source: Path | None = None, **env: str) -> Ran:
        """Run install of the project's store to its prefix."""
        return self.run("install", source or self.store, "--prefix", self.prefix, "--no-device", *words, **env)

    def installed(self, *words: str | Path) -> Path:
        """Install, which must work; return the prefix."""
        done = self.install(*words)
        assert done.status == 0, (done.answer, done.err)
        return self.prefix

    # --- looking

    def listing(self) -> dict[str, tuple[int, str]]:
        """Return mode and content of everything below the root, the cache left out."""
        return listing(self.root, without="cache")


class _Stream(io.TextIOWrapper):
    """A standard stream that bytes can be written to as well."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self._bytes.getvalue().decode()


def listing(root: Path, *, without: str = "") -> dict[str, tuple[int, str]]:
    """Return {path: (mode, digest or link)} of everything below ``root``."""
    found: dict[str, tuple[int, str]] = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root and without in folders:
            folders.remove(without)
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                text = str(path.readlink())
            else:
                text = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
            found[str(path.relative_to(root))] = (mode, text)
    return found


def new_key(folder: Path, name: str) -> tuple[Path, str]:
    """Write an ed25519 key file and return it with its public line."""
    private = Ed25519PrivateKey.generate()
    path = folder / name
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return path, public.decode()


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
