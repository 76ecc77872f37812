"""RECORD (PyPA "Recording installed projects"): rewritten from what is installed.

Rows are every installed file of the distribution and its overlays, scripts and INSTALLER with them, sorted,
with the digest the file has on this disk; bytecode is listed without one, as pip does, because Python may
write it anew.
"""

from __future__ import annotations

import base64
import csv
import io
import os.path
from typing import TYPE_CHECKING

from .interface import Fixed

if TYPE_CHECKING:
    from .interface import Place, Subject


def fix(subject: Subject, place: Place) -> Fixed:
    """Return the RECORD of the distribution that ``subject`` belongs to."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows: dict[str, tuple[str, str]] = {_relative(subject.path, place.site): ("", "")}
    for file in place.files_of(subject.layer):
        if file.path == subject.path:
            continue
        known = file.type == "file" and file.sha256 is not None and not file.path.endswith(".pyc")
        row = (_hash(file.sha256.hex), str(file.size)) if known and file.sha256 else ("", "")
        rows[_relative(file.path, place.site)] = row
    for path, row in sorted(rows.items()):
        writer.writerow([path, *row])
    return Fixed(data=text.getvalue().encode("utf-8", "surrogateescape"))


def _relative(path: str, site: str) -> str:
    return os.path.relpath(path, site)


def _hash(digest: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode("ascii")
