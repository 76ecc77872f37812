"""The ELF files of a whole environment, each where it will stand: what linkage is judged on.

A contested path has its winner's file alone; what an overlay removed is not there. Which files Python
imports, their bytes and names say: ``PyInit_`` functions, an extension's tag, calls into the interpreter.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.spec.coverage import FileScan, Needs
from envbundle.spec.layer import installed_path
from envbundle.spec.symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import Contested

    from .contents import WheelScan

_TAG = re.compile(r"\.(?:cpython-3([0-9]+)[a-z]*(?:-[^.]*)?|(abi3)|cp3([0-9]+)[^.]*)\.so$")
_TORCH = re.compile(r"lib(?:torch|c10)\w*\.so")
_NO_NEEDS, _NO_SYMBOLS = Needs(), Symbols()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedFile:
    """One ELF file of an environment.

    ``path`` is relative to the prefix; ``distribution`` and ``version`` are its owner's, '' for a file that
    nobody owns. Two placed files are never equal unless they are one.
    """

    path: str
    distribution: str
    version: str
    scan: FileScan

    @property
    def needs(self) -> Needs:
        """What it asks of the loader."""
        return self.scan.needs or _NO_NEEDS

    @property
    def symbols(self) -> Symbols:
        """Its dynamic symbols."""
        return self.scan.symbols or _NO_SYMBOLS

    @property
    def name(self) -> str:
        """Its file name."""
        return posixpath.basename(self.path)

    @property
    def folder(self) -> str:
        """The folder that it stands in, relative to the prefix."""
        return posixpath.dirname(self.path)

    @property
    def owner(self) -> str:
        """The distribution with its version, as messages say it."""
        return f"{self.distribution} {self.version}".strip() or "no distribution"


def place(
    scans: Mapping[str, WheelScan],
    python: str,
    *,
    claims: Mapping[str, Mapping[str, Digest]] | None = None,
    contested: Iterable[Contested] = (),
) -> tuple[PlacedFile, ...]:
    """Return the ELF files of the locked wheels, by path.

    ``claims`` and ``contested`` are those of ``ownership``: who brings which path after overlays, and who
    wins one that several bring.
    """
    winners = {item.path: item.winner for item in contested}
    placed: dict[str, PlacedFile] = {}
    for name, scan in sorted(scans.items()):
        where = {member.member: member.path for member in scan.members}
        for file in scan.files:
            if file.needs is None or file.kind != "elf" or file.path not in where:
                continue
            path = installed_path(where[file.path], python=python, distribution=name)
            if winners.get(path, name) != name or (claims is not None and name not in claims.get(path, ())):
                continue
            placed[path] = PlacedFile(path=path, distribution=name, version=scan.version, scan=file)
    return tuple(placed[path] for path in sorted(placed))


def is_module(file: PlacedFile, python: str) -> bool:
    """Whether ``python`` (3.N) can import the file, or its package loads it as an extension of torch."""
    if not file.name.endswith(".so"):
        return False
    tag = _TAG.search(file.name)
    if tag is not None:
        minor = tag[1] or tag[3]
        return minor is None or minor == python.partition(".")[2]
    symbols = file.symbols
    if file.name.removesuffix(".so") in symbols.modules:
        return True
    if file.name.startswith("lib"):
        return False
    return symbols.python or any(_TORCH.fullmatch(soname) for soname in file.needs.sonames)


def is_program(file: PlacedFile) -> bool:
    """Whether the file is an executable that stands on the environment's PATH."""
    return file.needs.interpreter is not None and file.folder == "bin"
