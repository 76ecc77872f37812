"""The dynamic symbols of one ELF file, as few bytes as the judgement of a whole environment needs.

* Of what is exported only 64-bit hashes are kept (BLAKE2b of the mangled name, sorted): the question is
  always whether a known name is among them. A collision hides a fault once in 10^13 names and invents none.
* Of what is wanted only C++ names are kept, since C names of host libraries cannot be told from others.
* The JSON form is deflated text, so that a hundred thousand names cost a cache file two megabytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import sys
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.errors import FormatError

from .fields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_PLAIN = 1 << 28


def symbol_hash(name: bytes) -> int:
    """Return the hash that stands for a mangled name."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """What a file exports to and wants from the other files of its process.

    ``wanted`` are undefined C++ names that must be found (not weak ones, none that the file binds to a
    version of the C++ runtime), sorted. ``exported`` holds the sorted hashes of the C++ names it exports, 8
    bytes each, big end first; ``namespaces`` their outermost namespaces. ``modules`` are the names of its
    ``PyInit_`` functions; ``python`` says that it calls the interpreter.
    """

    wanted: tuple[str, ...] = ()
    exported: bytes = b""
    namespaces: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    python: bool = False

    @property
    def exported_hashes(self) -> array[int]:
        """The hashes as numbers, rising."""
        return _swapped(array("Q", self.exported))

    @classmethod
    def from_dict(cls, value: Any, where: str = "symbols") -> Symbols:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        symbols = cls(
            wanted=_names(fields, "wanted"),
            exported=_hashes(fields, "exported"),
            namespaces=fields.texts("namespaces", []),
            modules=fields.texts("modules", []),
            python=fields.boolean("python", default=False),
        )
        fields.done()
        return symbols

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; what is empty is left out."""
        value: dict[str, Any] = {}
        if self.wanted:
            value["wanted"] = _packed("\n".join(self.wanted).encode())
        if self.exported:
            value["exported"] = base64.b64encode(self.exported).decode()
        if self.namespaces:
            value["namespaces"] = list(self.namespaces)
        if self.modules:
            value["modules"] = list(self.modules)
        if self.python:
            value["python"] = True
        return value


def hashes_of(names: Iterable[bytes]) -> bytes:
    """Return the sorted hashes of mangled names, as ``Symbols.exported`` holds them."""
    return _swapped(array("Q", sorted({symbol_hash(name) for name in names}))).tobytes()


def _swapped(hashes: array[int]) -> array[int]:
    if sys.byteorder == "little":
        hashes.byteswap()
    return hashes


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode()


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    text = fields.text(key, "")
    if not text:
        return ()
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(base64.b64decode(text, validate=True), _MAX_PLAIN)
        names = tuple(plain.decode("utf-8", "surrogateescape").split("\n"))
    except (zlib.error, binascii.Error) as fault:
        raise FormatError("E-FORMAT", fields.path(key), expected="deflated names", found=str(fault)) from None
    if not inflater.eof:
        raise FormatError("E-FORMAT", fields.path(key), expected="deflated names", found="a cut text")
    return names


def _hashes(fields: Fields, key: str) -> bytes:
    try:
        hashes = base64.b64decode(fields.text(key, ""), validate=True)
    except binascii.Error as fault:
        raise FormatError("E-FORMAT", fields.path(key), expected="64-bit hashes", found=str(fault)) from None
    if len(hashes) % 8:
        raise FormatError("E-FORMAT", fields.path(key), expected="64-bit hashes", found="a part of one")
    return hashes
