"""What a person sees of an edit: a unified diff of a text file against the published wheel's member."""

from __future__ import annotations

import difflib
import hashlib
import zipfile
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError
from envbundle.host.files import host_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .compare import Disk
    from .published import Published, PublishedWheel

_MAX = 2 * 1024 * 1024


def members_of(
    published: Published | None, wheel: PublishedWheel, paths: Iterable[str], *, cached_only: bool = False
) -> dict[str, bytes]:
    """Return the bytes of a wheel's files by installed path; those that cannot be had are left out."""
    wanted = {p: wheel.files[p][2] for p in paths if p in wheel.files and wheel.files[p][1] <= _MAX}
    wanted = {path: member for path, member in wanted.items() if member}
    artifact = (
        published.artifact(wheel, cached_only=cached_only) if published is not None and wanted else None
    )
    if artifact is None:
        return {}
    found = {}
    try:
        # Our own strict reader has read this wheel before; each member is held against what that found.
        with host_errors(artifact.path), zipfile.ZipFile(artifact.path) as archive:
            for path, member in wanted.items():
                data = archive.read(member)
                if hashlib.sha256(data).hexdigest() == wheel.files[path][0]:
                    found[path] = data
    except (EnvbundleError, KeyError, zipfile.BadZipFile):
        return found
    return found


def unified(
    changed: Iterable[str], added: Iterable[str], removed: Iterable[str], old: Mapping[str, bytes], disk: Disk
) -> dict[str, str]:
    """Return a diff by path; '' for a file that is no text, or whose published form cannot be had."""
    site = disk.inventory.site + "/"
    found = {}
    for path in sorted({*changed, *added, *removed}):
        new = _new(path, disk)
        before: bytes | None = old.get(path, b"" if path in added else None)
        name = path.removeprefix(site)
        found[path] = (
            ""
            if before is None or new is None
            else _diff(name, before, new, path in old, path in disk.digests)
        )
    return found


def _new(path: str, disk: Disk) -> bytes | None:
    file = disk.inventory.files.get(path)
    if file is None:
        return b""
    if file.size > _MAX:
        return None
    with host_errors(file.place), open(file.place, "rb") as stream:  # noqa: PTH123
        return stream.read(_MAX + 1)


def _diff(name: str, before: bytes, after: bytes, was: bool, now: bool) -> str:
    if b"\0" in before[:8192] or b"\0" in after[:8192]:
        return ""
    try:
        old, new = before.decode("utf-8"), after.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{name}" if was else "/dev/null",
        f"b/{name}" if now else "/dev/null",
    )
    ending = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + ending for line in lines)
