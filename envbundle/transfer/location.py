"""Locations: what a person types for a store, and the store that it opens.

* ``folder`` or ``./folder``, ``dir:folder``: an OCI image layout in a directory.
* ``file.tar``: the same in one file; ``-``: such a file through a pipe, which ``copy`` alone can take.
* ``ssh://[user@]host[:port]/path``: a folder of another host.
* ``https://host/folder``: a folder behind a web server, to read. ``oci://registry/repository[:tag]``.

A new transport is one module beside ``directory.py`` and one line in ``TRANSPORTS``.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envbundle.errors import HostError, UserInputError
from envbundle.host.file_urls import public_url
from envbundle.store.memory import MemoryStore

from .archive import open_archive
from .directory import open_directory
from .http import open_http
from .oci import open_oci
from .options import DEFAULTS, TransferOptions
from .registry import parse_reference
from .ssh import open_ssh, parse_ssh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
TRANSPORTS: dict[str, Callable[[str, bool, TransferOptions], Store]] = {
    "dir": open_directory,
    "archive": open_archive,
    "ssh": open_ssh,
    "http": open_http,
    "oci": open_oci,
}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP_LIKE = re.compile(r"(?:[^/:@]+@)?[^/:]+:")


def parse_location(text: str) -> Location:
    """Return the location that ``text`` names; nothing is opened.

    Raises ``UserInputError`` (E-LOCATION) for what is no location.
    """
    if not text or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise _refused(text, "a folder", "an empty or unprintable text")
    scheme = _SCHEME.match(text)
    if scheme:
        name = scheme[1].lower()
        if name == "ssh":
            parse_ssh(text[scheme.end() :])
            return Location(kind="ssh", path=text[scheme.end() :], text=text)
        if name == "oci":
            parse_reference(text[scheme.end() :])
            return Location(kind="oci", path=text[scheme.end() :], text=text)
        if name in ("http", "https"):
            if not urlsplit(text).hostname:
                raise _refused(text, "https://host/folder", "no host")
            return Location(kind="http", path=text, text=public_url(text))
        raise _refused(text, "a folder, ssh://, https:// or oci://", f"the unknown scheme {name}://")
    if text == "-":
        return Location(kind="pipe", path="-", text=text)
    if text.startswith("dir:"):
        if len(text) == len("dir:"):
            raise _refused(text, "dir:FOLDER", "no folder")
        return Location(kind="dir", path=text[len("dir:") :], text=text)
    if text.endswith(".tar"):
        return Location(kind="archive", path=text, text=text)
    if _SCP_LIKE.match(text):
        hint = f"for a folder write ./{text} or dir:{text}; for a host write ssh://host/path"
        raise _refused(text, "a folder", "a name with a colon, as scp writes hosts", hint)
    return Location(kind="dir", path=text, text=text)


def open_location(location: Location, *, create: bool = False, options: TransferOptions = DEFAULTS) -> Store:
    """Return the store at ``location``; with ``create`` it may come to be. Raises as its transport does.

    Where it has a ``close``, what was written to it can be seen by others after that call: see ``opened``.
    """
    if location.kind == "pipe":
        raise _refused(
            "-", "a store that can be asked", "a pipe", "copy it to a folder first: envbundle copy - DIR"
        )
    return TRANSPORTS[location.kind](location.path, create, options)


@contextlib.contextmanager
def opened(store: Store) -> Iterator[Store]:
    """Give the store; close it on the way out, or after an error let go of it as it is."""
    try:
        yield store
    except BaseException:
        abandon = getattr(store, "abandon", None) or getattr(store, "close", None)
        if abandon is not None:
            abandon()
        raise
    close = getattr(store, "close", None)
    if close is not None:
        close()


def open_destination(location: Location, *, dry_run: bool, options: TransferOptions = DEFAULTS) -> Store:
    """Return the store to copy to, made where it is missing; with ``dry_run`` an empty one stands in."""
    try:
        return open_location(location, create=not dry_run, options=options)
    except HostError as fault:
        if dry_run and fault.code in ("E-NOT-FOUND", "E-NOT-A-STORE"):
            return MemoryStore(location.text)
        raise


def _refused(text: str, expected: str, found: str, hint: str = "") -> UserInputError:
    return UserInputError("E-LOCATION", ascii(text)[1:-1][:200], expected=expected, found=found, hint=hint)
