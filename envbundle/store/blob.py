"""Judging a blob's bytes against what was promised, and the three errors that follow."""

from __future__ import annotations

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest

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
