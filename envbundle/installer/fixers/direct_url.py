"""``direct_url.json`` (PyPA "Recording the Direct URL Origin"): nothing is editable here any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .interface import Fixed

if TYPE_CHECKING:
    from .interface import Place, Subject


def fix(subject: Subject, place: Place) -> Fixed:  # noqa: ARG001 - every fixer has one signature
    """Return the file without its mark of an editable install; what is no such document stays as it is."""
    try:
        value = json.loads(subject.data)
    except (ValueError, RecursionError):
        return Fixed(data=subject.data)
    folder = value.get("dir_info") if isinstance(value, dict) else None
    if not isinstance(folder, dict) or "editable" not in folder:
        return Fixed(data=subject.data)
    del folder["editable"]
    return Fixed(data=json.dumps(value, sort_keys=True).encode())
