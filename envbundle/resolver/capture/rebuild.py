"""A wheel made again from what lies on the disk: same name, same version, new RECORD, same bytes for ever.

* Members are stored and not compressed, sorted, with the zip format's first date and plain modes: the wheel
  depends on the files alone, not on zlib, clock, umask or user.
* Scripts go to ``.data/scripts`` with the wheel format's ``#!python``; what lies elsewhere below the prefix
  to ``.data/data``.
* The archive's comment says that the bytes come from a disk (``origin``).
"""

# ruff: noqa: PTH123
from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.tags import parse_tag
from packaging.version import Version

from envbundle.host.files import host_errors
from envbundle.resolver.wheel_choice import target_tags

from .content import Content, is_compiled
from .origin import INSTALLED_TREE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .published import Machine

_EPOCH = (1980, 1, 1, 0, 0, 0)
_BIG = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A wheel that was written: its file name, sha256 (hex) and size, and whether it holds compiled code."""

    filename: str
    sha256: str
    size: int
    compiled: bool


def wheel_stem(name: str, version: str) -> str:
    """Return ``name-version`` as it stands in the names of wheels and dist-info directories."""
    return f"{re.sub(r'[-_.]+', '_', name)}-{str(Version(version)).replace('-', '_')}"


def fits_stem(info: str, name: str, version: str) -> bool:
    """Say whether a dist-info directory is named as the distribution that it describes."""
    own, _, own_version = posixpath.basename(info).removesuffix(".dist-info").partition("-")
    try:
        same = Version(own_version.replace("_", "+", 1) if "+" in version else own_version)
        return re.sub(r"[-_.]+", "-", own).lower() == name and same == Version(version)
    except ValueError:
        return False


def write_wheel(
    folder: Path,
    *,
    name: str,
    version: str,
    info: str,
    site: str,
    contents: Iterable[Content],
    tags: Sequence[str],
    machine: Machine,
) -> Rebuilt:
    """Write the wheel of one distribution into ``folder``.

    ``info`` is the dist-info directory and ``site`` site-packages, both below the prefix. ``contents`` are
    the distribution's files without RECORD; METADATA and WHEEL are made where they are missing. ``tags`` are
    those of its WHEEL. Raises ``HostError``.
    """
    stem = posixpath.basename(info).removesuffix(".dist-info")
    members = {_member(c, stem, site): c for c in contents}
    _add_missing(members, stem, name, version)
    ordered = sorted(members.items(), key=lambda item: (_is_info(item[0], stem), item[0].encode()))
    compiled = False
    partial = folder / f".{stem}.partial"
    rows: list[tuple[str, str, str]] = []
    with host_errors(partial), open(partial, "wb") as out, zipfile.ZipFile(out, "w") as archive:
        for member, content in ordered:
            head = content.head()
            compiled = compiled or (is_compiled(head, member) and not member.endswith(".pyc"))
            rows.append((member, *_add(archive, member, content, executable=content.executable)))
        record = f"{stem}.dist-info/RECORD"
        _add(archive, record, Content.of(record, _record(rows, record)), executable=False)
        archive.comment = INSTALLED_TREE
    filename = f"{wheel_stem(name, version)}-{_tag(tags, machine, compiled=compiled)}.whl"
    with host_errors(partial):
        with open(partial, "rb") as stream:
            state = hashlib.sha256()
            while block := stream.read(1 << 20):
                state.update(block)
            size = stream.tell()
        partial.chmod(0o644)
        partial.rename(folder / filename)
    return Rebuilt(filename=filename, sha256=state.hexdigest(), size=size, compiled=compiled)


def _member(content: Content, stem: str, site: str) -> str:
    path = content.path
    if path.startswith(site + "/"):
        return path[len(site) + 1 :]
    # What lies in bin and is no program keeps its mode as a data file.
    if path.startswith("bin/") and (content.executable or content.head().startswith(b"#!")):
        return f"{stem}.data/scripts/{path[4:]}"
    return f"{stem}.data/data/{path}"


def _is_info(member: str, stem: str) -> bool:
    return member.startswith(f"{stem}.dist-info/")


def _add_missing(members: dict[str, Content], stem: str, name: str, version: str) -> None:
    texts = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: envbundle\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    for member, text in texts.items():
        if member not in members:
            members[member] = Content.of(member, text.encode())


def _add(archive: zipfile.ZipFile, member: str, content: Content, *, executable: bool) -> tuple[str, str]:
    """Add one member and return what RECORD says of it."""
    entry = zipfile.ZipInfo(member, _EPOCH)
    entry.create_system = 3
    script = ".data/scripts/" in member
    entry.external_attr = (0o100755 if executable or script else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_STORED
    entry.file_size = content.size
    state = hashlib.sha256()
    with archive.open(entry, "w", force_zip64=content.size > _BIG) as stream:
        for block in content.blocks():
            state.update(block)
            stream.write(block)
    digest = base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode("ascii")
    return f"sha256={digest}", str(content.size)


def _record(rows: Iterable[tuple[str, str, str]], record: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(rows)
    writer.writerow([record, "", ""])
    return text.getvalue().encode("utf-8")


def _tag(tags: Sequence[str], machine: Machine, *, compiled: bool) -> str:
    """Return the file name's tag: WHEEL's where it serves this interpreter, else this interpreter's."""
    order = target_tags(machine.python, machine.machine, machine.glibc)
    said = [tag for tag in tags if parse_tag(tag) & set(order)]
    if said and not (compiled and all(tag.endswith("-any") for tag in said)):
        return _compressed(said)
    if not compiled and not tags:
        return "py3-none-any"
    plain = "cp" + machine.python.replace(".", "")
    return f"{plain}-{plain}-linux_{machine.machine}" if compiled else f"{plain}-none-any"


def _compressed(tags: Sequence[str]) -> str:
    """Return several tags as one, where they are a product of sets, else the first."""
    parts = [tag.split("-") for tag in tags]
    sets = [sorted({part[i] for part in parts}) for i in range(3)]
    if len(sets[0]) * len(sets[1]) * len(sets[2]) == len(set(tags)):
        return "-".join(".".join(names) for names in sets)
    return tags[0]
