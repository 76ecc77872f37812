"""Canonical JSON: one byte string per value, so that digests of documents mean something.

Rules (a subset of RFC 8785 that needs no number formatting): UTF-8, keys sorted by code point, no white
space, no floats, integers only, strings escaped minimally by the standard library with non-ASCII kept.
"""

from __future__ import annotations

import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Return the canonical UTF-8 bytes of a JSON value of dicts, lists, str, int, bool and None.

    Raises ``TypeError`` for a float or a non-string key: no document of envbundle may hold one.
    """
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _refuse_floats(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                raise TypeError("canonical JSON has string keys only")
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif item is not None and not isinstance(item, (str, int)):
            raise TypeError(f"canonical JSON cannot hold {type(item).__name__}")
