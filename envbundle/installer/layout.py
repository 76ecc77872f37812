"""Where things stand on disk (docs/format.md, "An installed environment").

    PREFIX                          symbolic link -> NAME.generations/0002-0123456789ab
    PREFIX.generations/             everything that envbundle keeps for this prefix
        0002-0123456789ab/          one generation: bin, lib, lib64, pyvenv.cfg, env.sh, env.conf, .envbundle/
        .stage-XXXX/                a generation in the making; whoever holds the lock may remove it
        lock  serials.json  log.jsonl

* A generation is complete when, and only when, its ``.envbundle/receipt.json`` is there: it is written last.
* The prefix's parent is taken by its real path, so what is written into scripts does not hang on a link.
"""

# ruff: noqa: PTH100 - the prefix is kept as the user wrote it
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.spec.receipt import RECEIPT_FOLDER

if TYPE_CHECKING:
    from envbundle.spec.digest import Digest

STAGE = ".stage-"
SWITCH = ".switch-"
RECEIPT = f"{RECEIPT_FOLDER}/receipt.json"
DESCRIPTOR = f"{RECEIPT_FOLDER}/descriptor.json"
LOCK = f"{RECEIPT_FOLDER}/pylock.toml"
MANIFEST = f"{RECEIPT_FOLDER}/envbundle.toml"
LAYERS = f"{RECEIPT_FOLDER}/layers"
SIGNATURES = f"{RECEIPT_FOLDER}/signatures"
PIN_MODULE = "_envbundle_pin.py"
PIN_FIRST = "00_envbundle.pth"
PIN_LAST = "~envbundle.pth"
_NAME = re.compile(r"([0-9]{4,9})-([0-9a-f]{12})")
_INTERPRETER = re.compile(r"bin/python[0-9.]*")
_OWN = frozenset(
    ("pyvenv.cfg", "lib64", "env.sh", "env.conf", "bin/activate", "bin/activate.csh", "bin/activate.fish")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """One prefix. ``path`` is absolute, as the user gave it; ``home`` the real folder of its generations."""

    path: Path
    home: Path

    @classmethod
    def of(cls, path: Path | str) -> Prefix:
        """Return the prefix at ``path``; its last part may be the link, its parents are followed."""
        absolute = Path(os.path.abspath(path))
        parent = Path(os.path.realpath(absolute.parent))
        return cls(path=absolute, home=parent / f"{absolute.name}.generations")

    def generation(self, name: str) -> Path:
        """Return the real path of a generation."""
        return self.home / name

    @property
    def link(self) -> str:
        """What the link's text starts with: the generations' folder, relative to the prefix's parent."""
        return f"{self.home.name}/"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GenerationName:
    """``<seq>-<12 hex of the content id>``; ``seq`` counts up within one prefix and is never used twice."""

    seq: int
    content: str

    @classmethod
    def of(cls, seq: int, content_id: Digest) -> GenerationName:
        """Return the name of generation ``seq`` of a content."""
        return cls(seq=seq, content=content_id.short)

    @classmethod
    def parse(cls, text: str) -> GenerationName | None:
        """Read a folder's name; None for anything else."""
        match = _NAME.fullmatch(text)
        return cls(seq=int(match[1]), content=match[2]) if match else None

    def __str__(self) -> str:
        return f"{self.seq:04d}-{self.content}"


def site_packages(python: str) -> str:
    """Return the path of site-packages in a generation; ``python`` is ``3.N``."""
    return f"lib/python{python}/site-packages"


def is_reserved(path: str, python: str) -> bool:
    """Say whether only envbundle may write ``path`` (prefix-relative), or something below or above it."""
    top = path.partition("/")[0]
    if top in (RECEIPT_FOLDER, "lib64"):
        return True
    site = site_packages(python)
    if path in (f"{site}/{PIN_MODULE}", f"{site}/{PIN_FIRST}", f"{site}/{PIN_LAST}"):
        return True
    parts = path.split("/")
    upper = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(part in _OWN or _INTERPRETER.fullmatch(part) for part in upper[:2])


def own_folders(python: str) -> tuple[str, ...]:
    """Return the folders that every generation has, which no entry may be a file at."""
    return ("bin", "include", "lib", f"lib/python{python}", site_packages(python))
