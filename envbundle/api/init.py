"""``init``: a manifest to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.errors import UserInputError
from envbundle.host.files import atomic_write, host_errors
from envbundle.spec.manifest_template import manifest_template

if TYPE_CHECKING:
    from pathlib import Path


def init(folder: Path, *, python: str) -> Path:
    """Write ``envbundle.toml`` into ``folder`` (made where it is not there) and return its path.

    ``python`` is ``3.N``. Raises ``UserInputError`` (E-EXISTS) where a manifest is there already.
    """
    with host_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / "envbundle.toml"
    if path.exists():
        raise UserInputError(
            "E-EXISTS", str(path), found="a manifest", hint="edit it, or choose another folder"
        )
    name = "".join(c if c.isalnum() else "-" for c in folder.resolve().name.lower()).strip("-") or "my-env"
    atomic_write(path, manifest_template(name=name, python=python).encode("utf-8"))
    return path
