"""Living environments, small and real: made by uv, offline, from wheels built here; then edited by hand."""



from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from envbundle.cli.main import main
from envbundle.resolver.solver import find_uv
from tests.builders import make_wheel, record_hash

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{PYTHON}/site-packages"
CLEAN = {
    "PATH": os.environ["PATH"],
    "UV_OFFLINE": "1",
    "UV_NO_CONFIG": "1",
    "UV_LINK_MODE": "copy",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


@dataclass(slots=True)
class Ran:
    """What a command line gave. ``answer`` is its JSON object."""

    status: int
    answer: dict[str, Any]
    err: str

    @property
    def codes(self) -> set[str]:
        """The codes of all findings."""
        return {finding["code"] for finding in self.answer["findings"]}

    def finding(self, code: str) -> dict[str, Any]:
        """The one finding of that code."""
        found: dict[str, Any]
        (found,) = [finding for finding in self.answer["findings"] if finding["code"] == code]
        return found

    def row(self, name: str) -> dict[str, Any]:
        """What was found of one distribution."""
        row: dict[str, Any]
        (row,) = [row for row in self.answer["distributions"] if row["name"] == name]
        return row


@dataclass(slots=True)
class Living:
    """A folder with published wheels (``index``), an environment (``venv``), a cache."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Living:
        """Make the folder; no environment yet."""
        (folder / "index").mkdir(parents=True)
        (folder / "home").mkdir()
        env = CLEAN | {
            "HOME": str(folder / "home"),
            "UV_CACHE_DIR": str(folder / "uv"),
            "ENVBUNDLE_CACHE": str(folder / "cache"),
        }
        return cls(folder, env)

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def site(self) -> Path:
        return self.venv / SITE

    def wheel(
        self, name: str, version: str = "1.0", files: Mapping[str, bytes | str] | None = None, **more: Any
    ) -> Path:
        """Publish a wheel."""
        return make_wheel(self.folder / "index", name, version, files, **more)

    def new_venv(self, *words: str) -> None:
        """Make an empty environment."""
        self.uv("venv", "-q", "--python", sys.executable, *words, str(self.venv))

    def install(self, *requirements: str | Path, links: Path | None = None, mode: str = "copy") -> None:
        """Install by uv from the published wheels."""
        self.uv(
            "pip", "install", "-q", "--python", str(self.venv / "bin/python"), "--no-index", "--no-deps",
            "--link-mode", mode, "--find-links", str(links or self.folder / "index"), *map(str, requirements),
        )  # fmt: skip

    def uv(self, *words: str) -> None:
        done = subprocess.run([find_uv(), *words], env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def git(self, folder: Path, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], env=self.env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def put(self, path: str, text: str | bytes, mode: int = 0o644) -> Path:
        """Write a file into the environment, in a new inode."""
        place = self.venv / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        place.chmod(mode)
        return place

    def run(self, *words: str | Path, cwd: Path | None = None, **env: str) -> Ran:
        """Run ``envbundle WORDS --json`` in this process, with the environment of the folder."""
        out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
        with (
            mock.patch.dict(os.environ, self.env | env, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            os.chdir(cwd or self.folder)
            try:
                status = main([*map(str, words), "--json"])
            finally:
                os.chdir(here)
        assert out.getvalue().count("\n") == 1, out.getvalue() + err.getvalue()
        return Ran(status, json.loads(out.getvalue()), err.getvalue())

    def capture(
        self, *words: str | Path, out: str = "out", venv: Path | None = None, links: bool = True
    ) -> Ran:
        """Capture the environment, which must go well and leave it as it was."""
        before = snapshot(venv or self.venv)
        find = ["--find-links", str(self.folder / "index")] if links else []
        ran = self.run("capture", venv or self.venv, "-o", out, "--offline", *find, *words)
        assert ran.status == 0, ran.answer
        assert snapshot(venv or self.venv) == before
        return ran

    def round_trip(self, prefix: Path, out: str = "out") -> None:
        """Lock, pack and install what was captured."""
        folder = self.folder / out
        for words in (
            ["lock", "--offline"],
            ["pack", "--unsigned", "-o", str(self.folder / f"{out}.store")],
            [
                "install",
                str(self.folder / f"{out}.store"),
                "--prefix",
                str(prefix),
                "--allow-unsigned",
                "--no-device",
            ],
        ):
            ran = self.run(*words, cwd=folder)
            assert ran.status == 0, (words, ran.answer, ran.err)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every file's mode, inode, mtime and digest; every folder's mtime."""
    found = {}
    root = os.path.realpath(folder)
    for place, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            info = os.lstat(path)
            digest = ""
            if os.path.islink(path):
                digest = os.readlink(path)
            elif os.path.isfile(path):
                digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            found[os.path.relpath(path, root)] = (info.st_mode, info.st_ino, info.st_mtime_ns, digest)
    return found


_EXEMPT = re.compile(
    r".*\.dist-info/(RECORD|INSTALLER|REQUESTED|uv_cache\.json)|.*\.pyc|pyvenv\.cfg"
    r"|bin/(de)?activate.*|bin/Activate\.ps1|bin/python.*"
)


def contents(folder: Path) -> dict[str, str]:
    """The files of an environment by path, without those that no installation shares with another."""
    found = {}
    root = Path(os.path.realpath(folder))
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in ("__pycache__", ".envbundle")]
        for name in names:
            path = Path(place, name)
            relative = path.relative_to(root).as_posix()
            if path.is_symlink() or _EXEMPT.fullmatch(relative):
                continue
            data = path.read_bytes()
            if relative.startswith("bin/") and data.startswith(b"#!"):
                data = data.partition(b"\n")[2]
            found[relative] = hashlib.sha256(data).hexdigest() + oct(path.stat().st_mode & 0o111 and 0o111)
    return found


def differences(source: Path, target: Path) -> set[str]:
    """The files of ``source`` that ``target`` has otherwise, or not at all."""
    old, new = contents(source), contents(target)
    return {path for path, digest in old.items() if new.get(path) != digest}


def python(prefix: Path, code: str) -> str:
    """What ``code`` prints in an environment, from outside any folder that could help."""
    done = subprocess.run(
        [str(prefix / "bin/python"), "-B", "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env=CLEAN,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


__all__ = ["PYTHON", "SITE", "Living", "Ran", "contents", "differences", "python", "record_hash", "snapshot"]
