"""Reading a lock's text; see ``lock_text`` for its rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from envbundle.errors import FormatError, UserInputError

from .coverage import Counts, Entry, EntryKind
from .descriptor import Exemption, Origin
from .digest import Digest
from .fields import Fields, read_digest, read_text
from .lock import (
    LOCK_FORMAT,
    Contested,
    DistributionEvidence,
    FileEvidence,
    Lock,
    LockedBuild,
    LockedOverlay,
    LockedPackage,
    LockedWheel,
    OverlayFile,
)
from .names import RelPath, check_version, normalise_name
from .target import Target
from .toml_text import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LOCK = 64 * 1024 * 1024
_ORIGINS = ("published", "built", "installed-tree")
_ENTRY = re.compile(r"([0-9]{1,9}) (sass|ptx|nvvm) (\S+)(?: isa (\S+))? in (.*)", re.DOTALL)
_COUNTS = re.compile(
    r"([a-z-]+): ([0-9]{1,9}) native, ([0-9]{1,9}) jit, ([0-9]{1,9}) missing"
    r"(?:; spare: ([0-9]{1,9}) jit, ([0-9]{1,9}) missing)?"
)


def parse_lock(text: str, *, filename: str = "lock") -> Lock:
    """Read a lock's text; ``filename`` stands in messages only.

    Raises ``FormatError``: E-FORMAT for text that is no TOML, no PEP 751 file, or breaks a rule of this
    module; E-FORMAT-VERSION for an unknown ``lock-format``. ``IntegrityError`` (E-PATH) names a path that
    leaves the lock's folder.
    """
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError  # noqa: PLC0415

    document = read_lock_toml(text, filename)
    tool = Fields(document.get("tool", {}), "tool").raw("envbundle", None)
    if tool is None:
        raise FormatError(
            "E-FORMAT",
            "tool.envbundle",
            expected="a lock written by `envbundle lock`",
            found="a pylock of another tool",
        )
    ours = Fields(tool, "tool.envbundle")
    _known_lock_format(ours)
    try:
        Pylock.from_dict(document)
    except PylockUnsupportedVersionError as fault:
        raise FormatError("E-FORMAT-VERSION", "lock-version", expected="1.0", found=str(fault)) from fault
    except PylockValidationError as fault:
        raise FormatError(
            "E-FORMAT", fault.context or "lock", expected="PEP 751", found=str(fault)
        ) from fault
    top = Fields(document, "")
    for name in ("lock-version", "created-by", "environments", "requires-python", "tool"):
        top.raw(name, None)
    packages = top.items("packages", _read_package)
    top.done()
    _once("packages", (package.name for package in packages))
    lock = Lock(
        target=Target.from_dict(ours.raw("target"), ours.path("target")),
        manifest=ours.digest("manifest"),
        tool=ours.text("tool"),
        rules=ours.text("rules"),
        solver=ours.text("solver"),
        packages=packages,
        overlays=ours.items("overlays", _read_overlay, []),
        coverage=ours.items("coverage", _read_coverage, []),
        contested=ours.items("contested", _read_contested, []),
        exemptions=ours.items("exemptions", Exemption.from_dict, []),
        builds=ours.items("builds", LockedBuild.from_dict, []),
        requires=ours.mapping("requires", read_text, {}),
    )
    ours.done()
    for overlay in lock.overlays:
        if lock.package(overlay.distribution) is None:
            raise FormatError(
                "E-FORMAT", ours.path("overlays"), expected="locked distributions", found=overlay.distribution
            )
    return lock


def read_lock_toml(text: str, filename: str) -> dict[str, Any]:
    """Return the document of a lock's text; raises ``FormatError`` (E-FORMAT) for what is no TOML."""
    if len(text) > MAX_LOCK:
        raise FormatError(
            "E-FORMAT", filename, expected=f"at most {MAX_LOCK} characters", found=str(len(text))
        )
    try:
        return read_toml(text, filename=filename)
    except UserInputError as fault:
        raise FormatError("E-FORMAT", fault.subject, expected=fault.expected, found=fault.found) from fault


def _known_lock_format(ours: Fields) -> None:
    found = ours.integer("lock-format")
    if found != LOCK_FORMAT:
        newer = found > LOCK_FORMAT
        raise FormatError(
            "E-FORMAT-VERSION",
            ours.path("lock-format"),
            expected=str(LOCK_FORMAT),
            found=str(found),
            hint="upgrade envbundle on this machine: a newer one wrote this lock"
            if newer
            else "run `envbundle lock` again: this envbundle no longer reads that form",
        )


def _read_package(value: Any, where: str) -> LockedPackage:
    fields = Fields(value, where)
    name = fields.parsed("name", normalise_name)
    version = fields.parsed("version", check_version)
    index = fields.opt_text("index")
    wheels = fields.items("wheels", _read_wheel)
    if len(wheels) != 1:
        raise FormatError(
            "E-FORMAT", fields.path("wheels"), expected="exactly one wheel", found=str(len(wheels))
        )
    origin = "published"
    tool = fields.raw("tool", None)
    if tool is not None:
        outer = Fields(tool, fields.path("tool"))
        inner = Fields(outer.raw("envbundle"), outer.path("envbundle"))
        origin = inner.choice("origin", _ORIGINS)
        inner.done()
        outer.done()
    fields.done()
    if index is not None:
        _no_credentials(index, fields.path("index"))
    wheel = wheels[0]
    return LockedPackage(
        name=name,
        version=version,
        origin=cast("Origin", origin),
        wheel=LockedWheel(
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=wheel.size,
            url=wheel.url,
            path=wheel.path,
            index=index,
        ),
    )


def _read_wheel(value: Any, where: str) -> LockedWheel:
    fields = Fields(value, where)
    filename = RelPath(fields.text("name"))
    url, path = fields.opt_text("url"), fields.opt_text("path")
    size = fields.integer("size")
    hashes = Fields(fields.raw("hashes"), fields.path("hashes"))
    sha256 = hashes.parsed("sha256", Digest)
    hashes.done()
    fields.done()
    if "/" in filename or not filename.endswith(".whl"):
        raise FormatError(
            "E-FORMAT", fields.path("name"), expected="a wheel's file name", found=ascii(filename)[:80]
        )
    if (url is None) == (path is None):
        raise FormatError("E-FORMAT", where, expected="a url or a path, and not both")
    if url is not None:
        _no_credentials(url, fields.path("url"))
    return LockedWheel(
        filename=str(filename),
        sha256=sha256,
        size=size,
        url=url,
        path=None if path is None else str(RelPath(path)),
    )


def _no_credentials(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise FormatError("E-FORMAT", where, expected="a URL", found=str(fault)) from fault
    if parts.scheme not in ("https", "http", "file"):
        raise FormatError(
            "E-FORMAT", where, expected="an https, http or file URL", found=ascii(parts.scheme)[:40]
        )
    if parts.username is not None or parts.password is not None:
        raise FormatError("E-FORMAT", where, expected="a URL without credentials", found="a user name in it")


def _read_overlay(value: Any, where: str) -> LockedOverlay:
    fields = Fields(value, where)
    overlay = LockedOverlay(
        distribution=fields.parsed("distribution", normalise_name),
        path=str(RelPath(fields.text("path"))),
        mode=fields.choice("mode", ("merge", "replace")),
        base_version=fields.parsed("base-version", check_version),
        base_wheel=fields.digest("base-wheel"),
        below=_read_below(fields),
        files=fields.items("files", _read_overlay_file, []),
        removes=fields.items("removes", _read_removed, []),
    )
    fields.done()
    named = [item.path for item in overlay.files] + [path for path, _ in overlay.removes]
    _once(fields.path("files"), named)
    return overlay


def _read_below(fields: Fields) -> str:
    below = fields.text("below", "")
    if below and (not below.endswith("/") or "/" in RelPath(below[:-1])):
        raise FormatError(
            "E-FORMAT", fields.path("below"), expected="a package and a slash", found=ascii(below)[:80]
        )
    return below


def _read_overlay_file(value: Any, where: str) -> OverlayFile:
    fields = Fields(value, where)
    item = OverlayFile(
        path=str(RelPath(fields.text("path"))),
        sha256=fields.digest("sha256"),
        size=fields.integer("size"),
        mode=int(fields.choice("mode", ("644", "755"), "644"), 8),
        replaces=fields.opt_digest("replaces"),
    )
    fields.done()
    return item


def _read_removed(value: Any, where: str) -> tuple[str, Digest]:
    fields = Fields(value, where)
    pair = str(RelPath(fields.text("path"))), fields.digest("sha256")
    fields.done()
    return pair


def _read_contested(value: Any, where: str) -> Contested:
    fields = Fields(value, where)
    contested = Contested(
        path=str(RelPath(fields.text("path"))),
        claims=fields.items("claims", _read_claim),
        winner=fields.parsed("winner", normalise_name),
    )
    fields.done()
    if contested.winner not in [name for name, _ in contested.claims]:
        raise FormatError(
            "E-FORMAT", fields.path("winner"), expected="one of the claimants", found=contested.winner
        )
    return contested


def _read_claim(value: Any, where: str) -> tuple[str, Digest]:
    if not isinstance(value, list) or len(value) != 2:
        raise FormatError("E-FORMAT", where, expected="[distribution, digest]")
    return normalise_name(read_text(value[0], f"{where}[0]")), read_digest(value[1], f"{where}[1]")


def _read_coverage(value: Any, where: str) -> DistributionEvidence:
    fields = Fields(value, where)
    evidence = DistributionEvidence(
        distribution=fields.parsed("distribution", normalise_name),
        counts=_read_all_counts(fields),
        files=fields.items("files", _read_file, []),
    )
    fields.done()
    return evidence


def _read_file(value: Any, where: str) -> FileEvidence:
    fields = Fields(value, where)
    evidence = FileEvidence(
        path=str(RelPath(fields.text("path"))),
        entries=fields.items("entries", _read_entry),
        counts=_read_all_counts(fields),
    )
    fields.done()
    return evidence


def _read_all_counts(fields: Fields) -> tuple[tuple[str, Counts], ...]:
    return tuple(fields.mapping("counts", _read_counts).items())


def _read_counts(value: Any, where: str) -> Counts:
    match = _COUNTS.fullmatch(read_text(value, where))
    if match is None:
        raise FormatError(
            "E-FORMAT", where, expected="VERDICT: N native, N jit, N missing", found=ascii(value)[:80]
        )
    counts = Counts(
        native=int(match[2]),
        jit=int(match[3]),
        missing=int(match[4]),
        unknown=match[1] == "unknown",
        spare_jit=int(match[5] or 0),
        spare_missing=int(match[6] or 0),
    )
    if counts.verdict != match[1]:
        raise FormatError("E-FORMAT", where, expected=f"the verdict {counts.verdict}", found=match[1])
    return counts


def _read_entry(value: Any, where: str) -> Entry:
    match = _ENTRY.fullmatch(read_text(value, where))
    if match is None:
        raise FormatError(
            "E-FORMAT", where, expected="N KIND ARCH [isa N.N] in SECTION", found=ascii(value)[:80]
        )
    return Entry(
        kind=cast("EntryKind", match[2]), arch=match[3], isa=match[4], section=match[5], modules=int(match[1])
    )


def _once(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FormatError("E-FORMAT", where, expected="each one once", found=ascii(name)[:200])
        seen.add(name)
