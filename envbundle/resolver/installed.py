"""A wheel made again from an installed distribution, for where its published wheel cannot be had.

Only what RECORD lists and still has its hash goes in; what installers add and what lies outside
site-packages stays out. The bytes are the same for the same files, but not those of the published wheel.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import HostError, IntegrityError
from envbundle.host.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDED = frozenset(("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD"))
_LIMIT = 512 * 1024 * 1024
_EPOCH = (1980, 1, 1, 0, 0, 0)


def installed_version(name: str) -> str | None:
    """Return the version of the distribution ``name`` that is installed beside envbundle, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def installed_filename(name: str) -> str | None:
    """Return the file name of the wheel that ``name`` was installed from, or None without its WHEEL file."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    tags = [
        line.partition(":")[2].strip().split("-")
        for line in (found.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag:")
    ]
    if not tags or any(len(tag) != 3 for tag in tags):
        return None
    plain = name.replace("-", "_").replace(".", "_").lower()
    parts = [".".join(dict.fromkeys(tag[place] for tag in tags)) for place in range(3)]
    return "-".join([plain, found.version, *parts]) + ".whl"


def rebuild_wheel(name: str) -> bytes:
    """Return a wheel of the files of the installed distribution ``name``.

    Raises ``HostError`` (E-NOT-INSTALLED, or what reading raises) and ``IntegrityError`` (E-INSTALLED-FILE)
    for a file that is not what RECORD says.
    """
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError as fault:
        raise HostError("E-NOT-INSTALLED", name, expected="an installed distribution") from fault
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        rows = []
        for path, data in sorted(_files(found, name)):
            rows.append(f"{path},{_hash(data)},{len(data)}\n")
            _add(wheel, path, data)
        record = f"{_info(found)}/RECORD"
        _add(wheel, record, "".join([*rows, f"{record},,\n"]).encode())
    return out.getvalue()


def _add(wheel: zipfile.ZipFile, path: str, data: bytes) -> None:
    member = zipfile.ZipInfo(path, _EPOCH)
    member.create_system = 3
    member.external_attr = 0o100644 << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(member, data)


def _info(found: metadata.Distribution) -> str:
    folder = next((p.parts[0] for p in found.files or () if p.name == "METADATA" and len(p.parts) == 2), "")
    if not folder.endswith(".dist-info"):
        raise HostError("E-NOT-INSTALLED", found.name, expected="a .dist-info folder with a RECORD")
    return folder


def _files(found: metadata.Distribution, name: str) -> Iterator[tuple[str, bytes]]:
    info = _info(found)
    for path in found.files or ():
        text = path.as_posix()
        if text.startswith(("..", "/")) or "__pycache__" in path.parts or text.endswith(".pyc"):
            continue
        if path.parts[0] == info and path.name in _ADDED:
            continue
        data = read_bounded(Path(str(path.locate())), _LIMIT)
        if path.hash is not None and f"{path.hash.mode}={path.hash.value}" != _hash(data):
            raise IntegrityError(
                "E-INSTALLED-FILE",
                f"{name}: {text}",
                expected=f"{path.hash.mode}={path.hash.value}, as RECORD says",
                found=_hash(data),
                hint="install that distribution again",
            )
        yield text, data


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
