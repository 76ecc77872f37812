"""Jupyter kernelspecs: ``argv[0]`` of ``kernel.json`` where it names the old environment's interpreter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from envbundle.installer.shebang import is_inside

from .interface import Fixed

if TYPE_CHECKING:
    from .interface import Place, Subject


def fix(subject: Subject, place: Place) -> Fixed:
    """Return the kernelspec with the interpreter of ``place``; a bare ``python`` is Jupyter's to find."""
    try:
        value = json.loads(subject.data)
    except (ValueError, RecursionError):
        return Fixed(data=subject.data)
    words = value.get("argv") if isinstance(value, dict) else None
    if not isinstance(words, list) or not words or not isinstance(words[0], str):
        return Fixed(data=subject.data)
    if not is_inside(words[0], place.old_prefixes):
        return Fixed(data=subject.data)
    words[0] = place.interpreter
    return Fixed(data=json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")
