"""``.pth`` files (Python's ``site``): which lines run code, which lead outside the environment.

An absolute line that leads into the environment itself is rewritten relative to site-packages, which ``site``
understands: it then holds at any prefix. All other lines stay as they are.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODE = re.compile(r"import[ \t]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFile:
    """A ``.pth`` file read: lines that run code, absolute folders outside, and the text to carry."""

    code: tuple[str, ...]
    outside: tuple[str, ...]
    text: bytes


def read_path_file(data: bytes, prefixes: Sequence[str], site: str) -> PathFile:
    """Read a ``.pth`` file.

    ``prefixes`` are the absolute paths of the environment, ``site`` the path of site-packages below it.
    """
    code, outside, lines = [], [], []
    for raw in data.decode("utf-8", "surrogateescape").splitlines(keepends=True):
        text = raw.rstrip("\r\n")
        bare = text.strip()
        if not bare or bare.startswith("#"):
            lines.append(raw)
        elif _CODE.match(text):
            code.append(bare)
            lines.append(raw)
        elif bare.startswith("/"):
            inside = _inside(bare, prefixes)
            if inside is None:
                outside.append(bare)
                lines.append(raw)
            else:
                lines.append(posixpath.relpath(inside or ".", site) + raw[len(text) :])
        else:
            lines.append(raw)
    text = "".join(lines)
    return PathFile(code=tuple(code), outside=tuple(outside), text=text.encode("utf-8", "surrogateescape"))


def _inside(path: str, prefixes: Sequence[str]) -> str | None:
    """Return a path below the environment relative to it, None for another one."""
    plain = os.path.normpath(path)
    for prefix in prefixes:
        if plain == prefix:
            return ""
        if plain.startswith(prefix + "/"):
            return plain[len(prefix) + 1 :]
    return None
