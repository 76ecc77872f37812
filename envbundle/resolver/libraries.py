"""The table of shared libraries (``library_rules.toml``): what a host gives, who brings the rest.

Everything here is a hint or a host's promise; which files an environment has is told by its files alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from envbundle.spec.toml_text import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PYTHON = re.compile(r"libpython3(?:\.[0-9]+)?t?\.so(?:\.1\.0)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRules:
    """The table, read. ``libstdcxx`` rows are (glibc minor, newest GLIBCXX_3.4.N, newest CXXABI_1.3.N)."""

    given: tuple[str, ...]
    driver: tuple[str, ...]
    common: tuple[str, ...]
    plain_c: tuple[str, ...]
    system_folders: tuple[str, ...]
    families: tuple[tuple[str, tuple[str, ...]], ...]
    optional: tuple[tuple[str, tuple[str, ...]], ...]
    brings: tuple[tuple[str, str], ...]
    libstdcxx: tuple[tuple[int, int, int], ...]

    def is_given(self, soname: str) -> bool:
        """Whether every host with glibc has it, or every host with a GPU driver."""
        return _matches(soname, self.given) or _matches(soname, self.driver)

    def is_driver(self, soname: str) -> bool:
        """Whether it belongs to the GPU driver."""
        return _matches(soname, self.driver)

    def is_common(self, soname: str) -> bool:
        """Whether platform tags allow a wheel to expect it of a host; the interpreter's library too."""
        return _matches(soname, self.common) or _PYTHON.fullmatch(soname) is not None

    def is_plain_c(self, soname: str) -> bool:
        """Whether its absence hides no C++ symbol."""
        return self.is_given(soname) or _matches(soname, self.plain_c)

    def is_optional(self, distribution: str, soname: str) -> bool:
        """Whether the distribution's own code gets along without it."""
        return any(fnmatchcase(distribution, d) and _matches(soname, s) for d, s in self.optional)

    def bringer(self, soname: str) -> str:
        """Return which distribution brings a soname, '' where the table does not know."""
        return next((name for pattern, name in self.brings if fnmatchcase(soname, pattern)), "")

    def is_system_folder(self, folder: str) -> bool:
        """Whether a host has that folder in its loader's own list."""
        return any(folder.rstrip("/") == f or folder.startswith(f + "/") for f in self.system_folders)

    def newest_libstdcxx(self, glibc_minor: int) -> tuple[int, int]:
        """Return (GLIBCXX_3.4.N, CXXABI_1.3.N) of the oldest usual host with that glibc."""
        known = [(cxx, abi) for minor, cxx, abi in self.libstdcxx if minor <= glibc_minor]
        return known[-1] if known else (0, 0)


def is_python_library(soname: str) -> bool:
    """Whether a soname is the shared library of an interpreter."""
    return _PYTHON.fullmatch(soname) is not None


def soname_stem(soname: str) -> str:
    """Return a soname without its version: ``libcudart`` for ``libcudart.so.12``."""
    return soname.partition(".so")[0]


@cache
def library_rules() -> LibraryRules:
    """Return the shipped table."""
    return _read(read_rules("library_rules.toml"))


def read_rules(name: str) -> Mapping[str, Any]:
    """Return one of the shipped tables."""
    text = files("envbundle.resolver").joinpath(name).read_text("utf-8")
    return read_toml(text, filename=name)


def _read(table: Mapping[str, Any]) -> LibraryRules:
    rows = [
        (int(row["glibc"].partition(".")[2]), row["glibcxx"], row["cxxabi"]) for row in table["libstdcxx"]
    ]
    return LibraryRules(
        given=tuple(table["given"]),
        driver=tuple(table["driver"]),
        common=tuple(table["common"]),
        plain_c=tuple(table["plain-c"]),
        system_folders=tuple(table["system-folders"]),
        families=tuple((row["name"], tuple(row["files"])) for row in table["family"]),
        optional=tuple((row["distribution"], tuple(row["sonames"])) for row in table["optional"]),
        brings=tuple(table["brings"].items()),
        libstdcxx=tuple(sorted(rows)),
    )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
