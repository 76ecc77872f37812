"""``file:`` URLs, what of a URL may be shown, and the check that a file is the promised one."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from envbundle.errors import HostError, IntegrityError, TransferError
from envbundle.spec.digest import Digest

from .files import host_errors, read_bounded

_BLOCK = 1024 * 1024
_JSON = "application/vnd.pypi.simple.v1+json"


def public_url(url: str) -> str:
    """Return ``url`` without user, password, query and fragment: what may be shown and stored."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def file_digest(path: Path) -> tuple[Digest, int]:
    """Return the sha256 and the size in bytes of a file; raises ``HostError``."""
    state, size = hashlib.sha256(), 0
    with host_errors(path), path.open("rb", buffering=0) as stream:
        buffer = bytearray(_BLOCK)
        view = memoryview(buffer)
        while count := stream.readinto(buffer):
            state.update(view[:count])
            size += count
    return Digest(state.hexdigest()), size


def check_file(path: Path, subject: str, *, sha256: Digest, size: int | None) -> None:
    """Raise ``IntegrityError`` (E-SIZE, E-HASH) about ``subject`` unless the file is the promised one."""
    found, length = file_digest(path)
    if size is not None and length != size:
        raise IntegrityError("E-SIZE", subject, expected=f"{size} bytes", found=f"{length} bytes")
    if found != sha256:
        raise IntegrityError(
            "E-HASH",
            subject,
            expected=str(sha256),
            found=str(found),
            hint="the file is not the one the index or lock promised; nothing of it was kept",
        )


def path_of_file_url(url: str) -> Path:
    """Return the path that a ``file:`` URL names; raises ``TransferError`` for one of another host."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise TransferError("E-INDEX-UNREACHABLE", public_url(url), expected="a file of this machine")
    return Path(unquote(parts.path))


def copy_file(url: str, part: Path, limit: int) -> None:
    """Copy the file that a ``file:`` URL names to ``part``; raises E-SIZE above ``limit`` bytes."""
    source = path_of_file_url(url)
    with host_errors(source), source.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > limit:
            raise IntegrityError("E-SIZE", str(source), expected=f"{limit} bytes", found="more")
        with host_errors(part), part.open("wb") as out:
            shutil.copyfileobj(stream, out, _BLOCK)


def read_file_page(url: str, limit: int) -> tuple[str, bytes] | None:
    """Return type and bytes of a page on the disk (a folder's index.html), None where there is none."""
    path = path_of_file_url(url)
    if path.is_dir():
        path /= "index.html"
    try:
        body = read_bounded(path, limit)
    except HostError as fault:
        if fault.code == "E-NOT-FOUND":
            return None
        raise
    return (_JSON if path.suffix == ".json" else "text/html"), body
