"""TOML that people write, read by the standard library's parser (``tomli`` where Python has none).

A fault of syntax is a ``UserInputError`` with code E-TOML and the subject ``FILE:LINE:COLUMN``.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from envbundle.errors import UserInputError

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def decode_toml(data: bytes, *, filename: str) -> str:
    """Return the text of a document's bytes: UTF-8, a byte order mark is dropped. Raises E-TOML."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        column = len(data[data.rfind(b"\n", 0, fault.start) + 1 : fault.start].decode("utf-8", "replace")) + 1
        raise _syntax(filename, line, column, f"the byte 0x{data[fault.start]:02x}", "UTF-8 text") from None


def read_toml(text: str, *, filename: str) -> dict[str, Any]:
    """Return the document; ``filename`` stands in messages only. Raises E-TOML for the first fault."""
    reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        text.encode("utf-8")
        document: dict[str, Any] = reader.loads(text)
    except UnicodeEncodeError as fault:
        line, column = _end(text[: fault.start])
        raise _syntax(filename, line, column, "half of a surrogate pair", "UTF-8 text") from None
    except RecursionError:
        raise _syntax(filename, 1, 1, "brackets nested too deeply") from None
    except ValueError as fault:  # a fault of syntax, or an integer of thousands of digits, which has no place
        message = str(fault)
        place = _PLACE.search(message)
        line, column = (1, 1) if place is None else (int(place[1]), int(place[2])) if place[1] else _end(text)
        raise _syntax(filename, line, column, message[: place.start()] if place else message) from None
    return document


def _syntax(filename: str, line: int, column: int, found: str, expected: str = "TOML 1.0") -> UserInputError:
    return UserInputError("E-TOML", f"{filename}:{line}:{column}", expected=expected, found=found)


def _end(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")
