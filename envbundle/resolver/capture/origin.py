"""Where a wheel's bytes come from, as the wheel itself says: wheels that capture made carry a mark.

The mark is the comment of the zip archive: installers pass it over, and the wheel's sha256 covers it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from envbundle.host.files import host_errors

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.descriptor import Origin

INSTALLED_TREE = b"envbundle-origin: installed-tree"


def read_origin(place: Path) -> Origin:
    """Return ``installed-tree`` for a wheel that capture made from a disk, else ``published``."""
    with host_errors(place), place.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(INSTALLED_TREE)))
        return "installed-tree" if stream.read() == INSTALLED_TREE else "published"
