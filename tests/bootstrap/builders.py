"""An ``install.pyz`` for this very Python, and bare interpreters that run it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from envbundle.bundler.bootstrap import COMMANDS, INDEX, Part, Served, build_bootstrap
from envbundle.bundler.source import archive, source_part
from envbundle.host.fetch import HttpFetcher
from envbundle.host.probe import glibc, machine
from envbundle.resolver.gather import Gatherer
from envbundle.resolver.installed import installed_filename, rebuild_wheel
from envbundle.resolver.listing import Listing
from envbundle.spec.target import Target

PYTHON = ".".join(map(str, sys.version_info[:2]))
GLIBC = glibc() or ""
TARGET = Target(
    name="here",
    gpus=(),
    python=PYTHON,
    platform=f"{machine()}-manylinux_{'_'.join(GLIBC.split('.')[:2])}",
    glibc=".".join(GLIBC.split(".")[:2]),
)
OTHER = replace(TARGET, python="3.10" if PYTHON != "3.10" else "3.11")
# The interpreter behind the environment, without any site-packages: what a bare host has.
BARE = (os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable), "-I", "-S")


def served(target: Target = TARGET, **more: Any) -> Served:
    return Served(
        python=target.python,
        machine=target.machine,
        glibc=target.glibc,
        **{"parts": installed_parts(), **more},
    )


@lru_cache(maxsize=1)
def installed_parts() -> tuple[Part, ...]:
    """The wheels that this Python needs, made from what is installed beside envbundle."""
    names = ["cryptography", "cffi", "packaging", "pycparser"] + (
        ["zstandard"] if sys.version_info < (3, 14) else []
    )
    names += ["typing-extensions"] if sys.version_info < (3, 11) else []
    return tuple(
        Part(filename=str(installed_filename(name)), data=rebuild_wheel(name), origin="rebuilt")
        for name in names
    )


@lru_cache(maxsize=1)
def own_bootstrap() -> bytes:
    """The whole ``install.pyz`` for this Python."""
    return build_bootstrap([served()], source_part(COMMANDS))


def small_bootstrap(*sets: Served) -> bytes:
    """An ``install.pyz`` without compiled parts: enough to get as far as the first stage."""
    return build_bootstrap(sets or [served(parts=())], source_part(("explain",)))


def changed(data: bytes, change: Any) -> bytes:
    """Return the archive with its index changed by ``change(index)``."""
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    index = json.loads(members[INDEX])
    change(index)
    members[INDEX] = json.dumps(index).encode()
    return archive(members.items())


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def finding(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)["findings"][0]
        return found


def start(
    pyz: Path, *words: str | Path, python: tuple[str, ...] = BARE, cwd: Path | None = None, **env: str
) -> Ran:
    """Run ``python install.pyz WORDS`` with an environment of nothing but ``env`` and PATH."""
    done = subprocess.run(
        [*python, pyz, *words],
        env={"PATH": os.defpath, "HOME": str(pyz.parent), **env},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def gatherer(cache: Path) -> Gatherer:
    return Gatherer(cache=cache, fetcher=HttpFetcher(offline=True), offline=True)


def listing(*folders: Path) -> Listing:
    return Listing(fetcher=HttpFetcher(offline=True), find_links=tuple(map(str, folders)), no_index=True)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
