"""The published contract: JSON Schemas (draft-07) of every document and answer, and the table of codes.

Names are file names without ``.schema.json``: ``manifest``, ``descriptor``, ``answers/lock``. Each one's
``$id`` is ``urn:envbundle:<name>.v1``; a ``$ref`` to another one uses that id (``registry`` has them all).
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

_SUFFIX = ".schema.json"
_FOLDERS = ("", "answers")


def names() -> tuple[str, ...]:
    """Return the names of all schemas, sorted."""
    found = []
    for folder in _FOLDERS:
        place = resources.files(__name__).joinpath(folder) if folder else resources.files(__name__)
        for file in place.iterdir():
            if file.name.endswith(_SUFFIX):
                stem = file.name.removesuffix(_SUFFIX)
                found.append(f"{folder}/{stem}" if folder else stem)
    return tuple(sorted(found))


def text(name: str) -> str:
    """Return a schema's JSON text; an unknown name is a wrong call (``KeyError``)."""
    if name not in names():
        raise KeyError(name)
    return resources.files(__name__).joinpath(*f"{name}{_SUFFIX}".split("/")).read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return a schema as a fresh JSON value."""
    schema: dict[str, Any] = json.loads(text(name))
    return schema


def registry() -> dict[str, dict[str, Any]]:
    """Return every schema by its ``$id``, for validators that follow references."""
    schemas = map(load, names())
    return {schema["$id"]: schema for schema in schemas}


def codes() -> dict[str, tuple[str, str]]:
    """Return every stable code with its exit status and the sentence that explains it.

    The status is text, ``3``, or ``2 or 3`` where it depends on who wrote what is wrong. The table is
    ``codes.tsv`` beside this file; ``make docs`` writes it from docs/codes.d.
    """
    rows = resources.files(__name__).joinpath("codes.tsv").read_text("utf-8").splitlines()
    table = (row.split("\t") for row in rows)
    return {code: (status, text) for code, status, text in table}
