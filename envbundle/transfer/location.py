"""Locations: what a person types for a store, and the store that it opens.

* ``folder`` or ``./folder``, ``dir:folder``: an OCI image layout in a directory.
* ``ssh://``, ``https://``, ``oci://``, ``file.tar`` and ``-`` are known words of DESIGN's command line whose
  transports are not built yet: each is refused with what to use instead.

A new transport is one module beside ``directory.py`` and one line in ``TRANSPORTS``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import HostError, UserInputError
from envbundle.store.memory import MemoryStore

from .directory import open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from envbundle.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """``kind`` is a key of ``TRANSPORTS``; ``path`` what its transport opens; ``text`` what was typed."""

    kind: str
    path: str
    text: str

    def __str__(self) -> str:
        return self.text


#: Opens the store at a location's path; with True it may be created.
TRANSPORTS: dict[str, Callable[[str, bool], Store]] = {"dir": open_directory}

_DIRECT = "copy to a folder and carry that: `envbundle copy SRC DIR`, then rsync or scp -r of DIR"
_NOT_BUILT: dict[str, str] = {
    "ssh": f"{_DIRECT} to the host, then `envbundle verify DIR` there",
    "http": "download the store's folder (`wget -r -np`), then name the folder",
    "https": "download the store's folder (`wget -r -np`), then name the folder",
    "oci": "`skopeo copy docker://REGISTRY/REPO:TAG oci:DIR:TAG`, then name DIR",
    "tar": "unpack it (`tar xf`) and name the folder; to write one, copy to a folder and `tar cf` that",
    "-": "a pipe needs the archive form: `tar cf - -C DIR .` and `tar xf - -C DIR` carry a store's folder",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP_LIKE = re.compile(r"(?:[^/:@]+@)?[^/:]+:")


def parse_location(text: str) -> Location:
    """Return the location that ``text`` names; nothing is opened.

    Raises ``UserInputError`` (E-LOCATION) for what is no location, and for transports that are not built.
    """
    if not text or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise _refused(text, "a folder", "an empty or unprintable text")
    scheme = _SCHEME.match(text)
    if scheme:
        name = scheme[1].lower()
        if name in _NOT_BUILT:
            raise _not_built(text, name)
        raise _refused(text, "a folder, ssh://, https:// or oci://", f"the unknown scheme {name}://")
    if text == "-":
        raise _not_built(text, "-")
    if text.startswith("dir:"):
        if len(text) == len("dir:"):
            raise _refused(text, "dir:FOLDER", "no folder")
        return Location(kind="dir", path=text[len("dir:") :], text=text)
    if text.endswith(".tar"):
        raise _not_built(text, "tar")
    if _SCP_LIKE.match(text):
        hint = f"for a folder write ./{text} or dir:{text}; for a host write ssh://host/path"
        raise _refused(text, "a folder", "a name with a colon, as scp writes hosts", hint)
    return Location(kind="dir", path=text, text=text)


def open_location(location: Location, *, create: bool = False) -> Store:
    """Return the store at ``location``; with ``create`` it may come to be. Raises as its transport does."""
    return TRANSPORTS[location.kind](location.path, create)


def open_destination(location: Location, *, dry_run: bool) -> Store:
    """Return the store to copy to, made where it is missing; with ``dry_run`` an empty one stands in."""
    try:
        return open_location(location, create=not dry_run)
    except HostError as fault:
        if dry_run and fault.code in ("E-NOT-FOUND", "E-NOT-A-STORE"):
            return MemoryStore(location.text)
        raise


def _refused(text: str, expected: str, found: str, hint: str = "") -> UserInputError:
    return UserInputError("E-LOCATION", ascii(text)[1:-1][:200], expected=expected, found=found, hint=hint)


def _not_built(text: str, kind: str) -> UserInputError:
    found = f"{kind if kind in ('tar', '-') else kind + '://'}, which is not built yet"
    return _refused(text, "a folder", found, f"instead: {_NOT_BUILT[kind]}")
