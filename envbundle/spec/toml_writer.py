"""Writing TOML 1.0 values deterministically: one text per value, always on one line.

Only what a lock holds: strings, integers, booleans, lists, and tables as inline tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def key_of(text: str) -> str:
    """Return a key as TOML writes it: bare where it may be, else a basic string."""
    return text if _BARE.fullmatch(text) else _string(text)


def value_of(value: Any) -> str:
    """Return a value on one line; raises ``TypeError`` for what a lock never holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_of(item) for item in value) + "]"
    if isinstance(value, dict):
        return inline(value)
    raise TypeError(f"a lock cannot hold {type(value).__name__}")


def inline(table: Mapping[str, Any]) -> str:
    """Return an inline table; its keys keep their order."""
    if not table:
        return "{}"
    return "{ " + ", ".join(f"{key_of(key)} = {value_of(value)}" for key, value in table.items()) + " }"


def _string(text: str) -> str:
    return '"' + "".join(_character(each) for each in text) + '"'


def _character(each: str) -> str:
    if each in _SHORT:
        return _SHORT[each]
    code = ord(each)
    # Controls must be escaped; the line separators may stand raw but would break tools that split lines.
    if code < 0x20 or 0x7F <= code <= 0x9F or code in (0x2028, 0x2029, 0xFEFF):
        return f"\\u{code:04X}"
    return each
