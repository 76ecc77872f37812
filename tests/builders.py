"""True tiny artifacts for tests: wheels here; ELF files, cubins, fatbins and PTX in the lower half.

Everything is built from the published formats, byte for byte, and is deterministic: same arguments, same
bytes. Nothing here imports envbundle, so a fault in the package cannot hide itself in its own tests.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)


# --- wheels ---------------------------------------------------------------------------------------------


def record_hash(data: bytes) -> str:
    """Return ``sha256=<urlsafe base64 without padding>`` as RECORD wants it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def escape_name(name: str) -> str:
    """Return the name as it stands in wheel file names and dist-info directories."""
    return re.sub(r"[-_.]+", "_", name).lower()


def wheel_filename(name: str, version: str, tag: str = "py3-none-any", build: str = "") -> str:
    """Return ``name-version[-build]-tag.whl``."""
    parts = [escape_name(name), version.replace("-", "_"), *([build] if build else []), tag]
    return "-".join(parts) + ".whl"


def expand_tags(tag: str) -> list[str]:
    """Return the single tags of a compressed tag set (``py2.py3-none-any``)."""
    pythons, abis, platforms = tag.split("-")
    return [f"{p}-{a}-{q}" for p in pythons.split(".") for a in abis.split(".") for q in platforms.split(".")]


def wheel_bytes(
    name: str,
    version: str,
    files: Mapping[str, bytes | str] | None = None,
    *,
    tag: str = "py3-none-any",
    build: str = "",
    purelib: bool = True,
    requires: Iterable[str] = (),
    requires_python: str | None = None,
    extras: Iterable[str] = (),
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
    scripts: Mapping[str, bytes | str] | None = None,
    data: Mapping[str, bytes | str] | None = None,
    dist_info: Mapping[str, bytes | str] | None = None,
    metadata_lines: Iterable[str] = (),
    metadata_name: str | None = None,
    metadata_version: str | None = None,
    modes: Mapping[str, int] | None = None,
    stored: Iterable[str] = (),
    record: bytes | None = None,
    record_overrides: Mapping[str, tuple[str, str] | None] | None = None,
    level: int = 6,
) -> bytes:
    """Return the bytes of one wheel with a correct METADATA, WHEEL and RECORD.

    ``files`` are members below the root (default: one module ``<name>/__init__.py``); ``scripts`` go to
    ``.data/scripts/`` with mode 0755; ``data`` are other ``.data/`` members keyed ``scheme/path``;
    ``dist_info`` are more files of the dist-info directory. ``modes`` overrides the mode of a member.
    ``record`` replaces RECORD as a whole; ``record_overrides`` replaces (hash, size) of one row, or drops
    the row where the value is None: the two are for tests of bad wheels, as is ``metadata_name``.
    """
    base = f"{escape_name(name)}-{version.replace('-', '_')}"
    info = f"{base}.dist-info"
    if files is None:
        files = {f"{escape_name(name)}/__init__.py": f"__version__ = {version!r}\n"}
    members: dict[str, bytes] = {path: _bytes(content) for path, content in files.items()}
    for script, content in (scripts or {}).items():
        members[f"{base}.data/scripts/{script}"] = _bytes(content)
    for path, content in (data or {}).items():
        members[f"{base}.data/{path}"] = _bytes(content)
    metadata = ["Metadata-Version: 2.1", f"Name: {metadata_name or name}"]
    metadata += [f"Version: {metadata_version or version}"]
    metadata += [f"Requires-Python: {requires_python}"] if requires_python else []
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    metadata += list(metadata_lines)
    members[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    wheel = ["Wheel-Version: 1.0", "Generator: builders", f"Root-Is-Purelib: {str(purelib).lower()}"]
    wheel += [f"Build: {build}"] if build else []
    wheel += [f"Tag: {one}" for one in expand_tags(tag)]
    members[f"{info}/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    if entry_points:
        lines = []
        for group, points in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items()), ""]
        members[f"{info}/entry_points.txt"] = "\n".join(lines).encode()
    for path, content in (dist_info or {}).items():
        members[f"{info}/{path}"] = _bytes(content)
    if record is None:
        record = _record(members, f"{info}/RECORD", record_overrides or {})
    members[f"{info}/RECORD"] = record
    stored, modes = set(stored), dict(modes or {})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in members.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.create_system = 3
            default = 0o100755 if ".data/scripts/" in path else 0o100644
            mode = modes.get(path, default)
            entry.external_attr = (mode if mode > 0o7777 else 0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_STORED if path in stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=level)
    return out.getvalue()


def make_wheel(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes | str] | None = None,
    *,
    tag: str = "py3-none-any",
    build: str = "",
    **more: object,
) -> Path:
    """Write one wheel into ``directory`` under its right file name; ``more`` as for ``wheel_bytes``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / wheel_filename(name, version, tag, build)
    path.write_bytes(wheel_bytes(name, version, files, tag=tag, build=build, **more))  # type: ignore[arg-type]
    return path


def _record(members: Mapping[str, bytes], own: str, overrides: Mapping[str, tuple[str, str] | None]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, content in members.items():
        row = overrides.get(path, (record_hash(content), str(len(content))))
        if row is not None:
            writer.writerow([path, *row])
    writer.writerow([own, "", ""])
    return text.getvalue().encode()


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content
