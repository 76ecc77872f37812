"""Reading the two documents of a layout that came from somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.errors import FormatError
from envbundle.store.oci import INDEX_FILE, LAYOUT, LAYOUT_FILE, MAX_INDEX, ImageIndex, parse_document

if TYPE_CHECKING:
    from collections.abc import Mapping


def parse_layout(documents: Mapping[str, bytes]) -> ImageIndex:
    """Return the index of a layout; raises ``FormatError`` (E-STORE-LAYOUT, E-STORE-INDEX)."""
    value = parse_document(documents[LAYOUT_FILE], LAYOUT_FILE, "E-STORE-LAYOUT", MAX_INDEX)
    if not isinstance(value, dict) or value.get("imageLayoutVersion") != LAYOUT["imageLayoutVersion"]:
        raise FormatError("E-STORE-LAYOUT", LAYOUT_FILE, expected=str(LAYOUT), found=str(value)[:100])
    return ImageIndex.from_bytes(documents[INDEX_FILE])
