"""``init``: a manifest to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle import schemas
from envbundle.errors import UserInputError
from envbundle.host.files import atomic_write, host_errors
from envbundle.spec.manifest_template import SCHEMA_FILE, manifest_template, suggest_bundle_name

if TYPE_CHECKING:
    from pathlib import Path


def init(folder: Path, *, python: str) -> Path:
    """Write ``envbundle.toml`` into ``folder`` (made where it is not there) and return its path.

    The schema that editors read is written beside it.

    ``python`` is ``3.N``. Raises ``UserInputError`` (E-EXISTS) where a manifest is there already.
    """
    with host_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / "envbundle.toml"
    if path.exists():
        raise UserInputError(
            "E-EXISTS", str(path), found="a manifest", hint="edit it, or choose another folder"
        )
    name = suggest_bundle_name(folder.resolve().name)
    schema = folder / SCHEMA_FILE
    if not schema.exists():
        atomic_write(schema, schemas.text("manifest").encode("utf-8"))
    atomic_write(path, manifest_template(name=name, python=python).encode("utf-8"))
    return path
