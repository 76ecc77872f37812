"""Reading TOML that a program wrote, on every Python that envbundle supports."""

from __future__ import annotations

import importlib
import sys
from typing import Any, cast

from envbundle.errors import IntegrityError


def read_toml(text: str, subject: str) -> dict[str, Any]:
    """Return the document; raises ``IntegrityError`` (E-FORMAT) about ``subject`` for what is no TOML."""
    reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return cast("dict[str, Any]", reader.loads(text))
    except (ValueError, RecursionError) as fault:
        raise IntegrityError("E-FORMAT", subject, expected="TOML", found=str(fault)[:200]) from fault
