"""The distributions that an environment says it has: one value for each ``*.dist-info`` directory.

PyPA "Recording installed projects" (METADATA, RECORD, INSTALLER, direct_url.json), "Recording the Direct URL
Origin", the WHEEL file's tags, entry points. RECORD is what an installer said once; it is compared with the
disk and with the published wheel, never believed.
"""

# ruff: noqa: PTH123 - a few small files for each of many distributions
from __future__ import annotations

import base64
import csv
import io
import json
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from packaging.metadata import parse_email
from packaging.version import InvalidVersion, Version

from envbundle.errors import EnvbundleError
from envbundle.host.files import host_errors
from envbundle.inspection.metadata import SCRIPT_GROUPS, read_entry_points
from envbundle.spec.names import RelPath, check_version, normalise_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .inventory import File, Inventory

Direct = Literal["", "editable", "path", "vcs", "archive"]
MAX_METADATA = 64 * 1024 * 1024
# What installers write beside what a wheel holds; every installation writes it anew.
_INSTALLERS = frozenset(("INSTALLER", "REQUESTED", "RECORD", "RECORD.jws", "RECORD.p7s", "uv_cache.json"))
_TAG = re.compile(r"Tag:[ \t]*([^\s-]+-[^\s-]+-[^\s-]+)[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What ``direct_url.json`` says: the kind of origin, its URL (without credentials), its revision."""

    kind: Direct = ""
    url: str = ""
    commit: str = ""
    requested: str = ""
    subdirectory: str = ""
    sha256: str = ""

    @property
    def folder(self) -> str:
        """The local path of a ``file:`` URL, '' for another one."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One distribution as its ``dist-info`` directory ``info`` (below the prefix) describes it.

    ``name`` is normalised, ``version`` as METADATA has it. ``record`` maps paths below the prefix to RECORD's
    ``sha256=...`` ('' where it promises nothing); None where there is no RECORD. ``tags`` are WHEEL's.
    ``scripts`` are entry points by name; ``problems`` are what could not be read, in words.
    """

    name: str
    version: str
    info: str
    record: Mapping[str, str] | None
    tags: tuple[str, ...] = ()
    installer: str = ""
    origin: Origin = field(default_factory=Origin)
    scripts: Mapping[str, str] = field(default_factory=dict)
    requires_dist: tuple[str, ...] = ()
    has_wheel_file: bool = True
    problems: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version, for people."""
        return f"{self.name} {self.version}"


def is_installers(path: str) -> bool:
    """Say whether a path is a file of a dist-info directory that every installation writes anew."""
    folder, _, name = path.rpartition("/")
    return name in _INSTALLERS and folder.endswith(".dist-info")


def record_hash(digest: str) -> str:
    """Return a sha256 (hex) as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode("ascii")


def read_distributions(inventory: Inventory) -> tuple[Installed, ...]:
    """Return the distributions in order of their names; what cannot be read at all is left to the unowned."""
    site = inventory.site + "/"
    infos: dict[str, dict[str, File]] = {}
    for path, file in inventory.files.items():
        if ".dist-info/" not in path or not path.startswith(site):
            continue
        top, _, rest = path[len(site) :].partition("/")
        if top.endswith(".dist-info") and not top.startswith("~") and "/" not in rest:
            infos.setdefault(site + top, {})[rest] = file
    found = [one for info, files in infos.items() if (one := _read(inventory, info, files)) is not None]
    return tuple(sorted(found, key=lambda one: (one.name, one.info)))


def _read(inventory: Inventory, info: str, files: Mapping[str, File]) -> Installed | None:
    problems: list[str] = []
    name, version = _identity(info, files, problems)
    if not name:
        return None
    record_file = files.get("RECORD")
    record = None if record_file is None else _read_record(inventory, info, _bytes(record_file), problems)
    if record is None:
        problems.append("no RECORD")
    wheel = files.get("WHEEL")
    points = files.get("entry_points.txt")
    installer = files.get("INSTALLER")
    direct = files.get("direct_url.json")
    return Installed(
        name=name,
        version=version,
        info=info,
        record=record,
        tags=tuple(_TAG.findall(_text(wheel))) if wheel is not None else (),
        installer=_text(installer).strip()[:40] if installer is not None else "",
        origin=_origin(_bytes(direct), problems) if direct is not None else Origin(),
        scripts=_scripts(points, problems) if points is not None else {},
        has_wheel_file=wheel is not None,
        problems=tuple(problems),
    )


def _identity(info: str, files: Mapping[str, File], problems: list[str]) -> tuple[str, str]:
    """Return normalised name and version, from METADATA or else from the directory's name; '' for neither."""
    stem = posixpath.basename(info).removesuffix(".dist-info")
    name, _, version = stem.partition("-")
    metadata = files.get("METADATA")
    if metadata is not None:
        # The header is all that counts here; the description behind it may be long.
        head = re.split(rb"\r?\n\r?\n", _bytes(metadata), maxsplit=1)[0] + b"\n\n"
        raw, _ = parse_email(head)
        name, version = raw.get("name") or name, raw.get("version") or version
    else:
        problems.append("no METADATA")
    try:
        return normalise_name(name), check_version(str(Version(version)) and version)
    except (EnvbundleError, InvalidVersion):
        problems.append(f"name and version {ascii(stem)[:80]}")
        return "", ""


def _read_record(
    inventory: Inventory, info: str, data: bytes, problems: list[str]
) -> Mapping[str, str] | None:
    base = posixpath.dirname(info)
    rows: dict[str, str] = {}
    try:
        for row in csv.reader(io.StringIO(data.decode("utf-8"), newline="")):
            if len(row) != 3:
                continue
            path = row[0]
            if path.endswith(".pyc"):
                continue
            if path.startswith("/"):
                inside = [p for p in inventory.prefixes if path.startswith(p + "/")]
                if not inside:
                    problems.append(f"RECORD names {ascii(path)[:120]}, outside")
                    continue
                path = path[len(inside[0]) + 1 :]
            elif path.startswith(".") or "//" in path or "/." in path:
                path = posixpath.normpath(f"{base}/{path}")
            else:
                path = f"{base}/{path}"
            if path.startswith(".."):
                problems.append(f"RECORD names {ascii(path)[:120]}, outside")
                continue
            rows[path] = row[1]
    except (csv.Error, UnicodeDecodeError) as fault:
        problems.append(f"RECORD: {str(fault)[:120]}")
        return None
    return rows


def _origin(data: bytes, problems: list[str]) -> Origin:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        problems.append("direct_url.json cannot be read")
        return Origin()
    url = _without_credentials(value["url"])
    folder, vcs, archive = (value.get(key) for key in ("dir_info", "vcs_info", "archive_info"))
    below = _text_of(value.get("subdirectory"))
    if isinstance(vcs, dict):
        return Origin(
            kind="vcs",
            url=f"{_text_of(vcs.get('vcs'))}+{url}",
            commit=_text_of(vcs.get("commit_id")),
            requested=_text_of(vcs.get("requested_revision")),
            subdirectory=below,
        )
    if isinstance(folder, dict):
        kind: Direct = "editable" if folder.get("editable") is True else "path"
        return Origin(kind=kind, url=url, subdirectory=below)
    sha256 = ""
    if isinstance(archive, dict):
        hashes = archive.get("hashes")
        stated = _text_of(hashes.get("sha256")) if isinstance(hashes, dict) else ""
        sha256 = stated or _text_of(archive.get("hash")).removeprefix("sha256=")
    return Origin(kind="archive", url=url, sha256=sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else "")


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _scripts(file: File, problems: list[str]) -> dict[str, str]:
    try:
        points = read_entry_points(_bytes(file), file.path)
    except EnvbundleError as fault:
        problems.append(f"entry_points.txt: {fault.found}"[:200])
        return {}
    return {
        point.name: f"{point.module}:{point.attribute}" if point.attribute else point.module
        for point in points
        if point.group in SCRIPT_GROUPS
    }


def _bytes(file: File) -> bytes:
    with host_errors(file.place), open(file.place, "rb") as stream:
        return stream.read(MAX_METADATA)


def _text(file: File) -> str:
    return _bytes(file).decode("utf-8", "replace")


def pick_live(
    several: Iterable[Installed], digests: Mapping[str, str]
) -> tuple[Installed, tuple[Installed, ...]]:
    """Of several ``dist-info`` directories of one distribution return the one that fits, and the rest.

    Fitting: the larger share of RECORD's promises that hold, then the higher version.
    """

    def fit(one: Installed) -> tuple[float, Version]:
        promised = {path: said for path, said in (one.record or {}).items() if said}
        held = sum(path in digests and record_hash(digests[path]) == said for path, said in promised.items())
        return held / len(promised) if promised else 0.0, Version(one.version)

    ranked = sorted(several, key=fit, reverse=True)
    return ranked[0], tuple(ranked[1:])


def is_contained(path: str) -> bool:
    """Say whether a path may stand in a bundle."""
    try:
        RelPath(path)
    except EnvbundleError:
        return False
    return True
