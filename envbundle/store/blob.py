"""Judging a blob's bytes against what was promised, and the three errors that follow."""

from __future__ import annotations

import re

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest

from .oci import INDEX_FILE, LAYOUT_FILE

_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_AGAIN = "copy the bundle again; `envbundle copy --check` sends what is damaged"


def missing_blob(digest: Digest, place: str) -> IntegrityError:
    """Return the error for a blob that ``place`` should hold and does not."""
    return IntegrityError(
        "E-BLOB-MISSING", str(digest), expected=f"a blob in {place}", found="none", hint=_AGAIN
    )


def wrong_size(digest: Digest, place: str, expected: int, found: str) -> IntegrityError:
    """Return the error for a blob of another size than ``expected`` bytes."""
    return IntegrityError(
        "E-BLOB-SIZE",
        f"{digest} in {place}",
        expected=f"{expected} bytes",
        found=f"{found} bytes",
        hint=_AGAIN,
    )


def check_blob(data: bytes, digest: Digest, size: int, place: str) -> bytes:
    """Return ``data`` if it has ``size`` bytes and ``digest``; raises ``IntegrityError``."""
    if len(data) != size:
        raise wrong_size(digest, place, size, str(len(data)))
    found = Digest.of(data)
    if found != digest:
        raise IntegrityError(
            "E-BLOB-HASH", f"blob in {place}", expected=str(digest), found=str(found), hint=_AGAIN
        )
    return data


def check_extra_name(name: str) -> str:
    """Return ``name`` if a file beside the layout may have it, else raise ``IntegrityError`` (E-PATH)."""
    if not _EXTRA.fullmatch(name) or name in (LAYOUT_FILE, INDEX_FILE, "blobs"):
        raise IntegrityError("E-PATH", ascii(name)[:200], expected="one plain file name beside the layout")
    return name
