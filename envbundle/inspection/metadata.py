"""The text files of a dist-info directory: METADATA, WHEEL, RECORD, entry_points.txt.

Rules: core metadata (PEP 566 and later), binary distribution format (WHEEL, RECORD), entry points
specification. Names and object references of entry points become files and code, so they are checked here.
"""

from __future__ import annotations

import base64
import binascii
import configparser
import csv
import io
import re
from dataclasses import dataclass
from email.parser import Parser

from packaging.metadata import parse_email

from envbundle.errors import EnvbundleError, IntegrityError
from envbundle.spec.names import RelPath, check_script_name

SCRIPT_GROUPS = ("console_scripts", "gui_scripts")
_HASHES = {"sha256": 32, "sha384": 48, "sha512": 64}
_REFERENCE = re.compile(
    r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*:\s*(?P<attr>[^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*(?:\[[^\]]*\])?\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreMetadata:
    """What METADATA says that envbundle needs; the texts are as written."""

    name: str
    version: str
    requires_python: str | None = None
    requires_dist: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EntryPoint:
    """One row of entry_points.txt; ``value`` is as written."""

    group: str
    name: str
    value: str

    @property
    def module(self) -> str:
        """The module of an object reference."""
        return self.value.partition(":")[0].strip()

    @property
    def attribute(self) -> str:
        """The dotted name in the module, '' where there is none."""
        return self.value.partition(":")[2].partition("[")[0].strip()


@dataclass(frozen=True, slots=True)
class RecordRow:
    """The hash and size that RECORD promises of one file; '' and None where it promises nothing."""

    algorithm: str
    hex: str
    size: int | None


def read_metadata(data: bytes, subject: str) -> CoreMetadata:
    """Read METADATA; raises ``IntegrityError`` (E-WHEEL-METADATA)."""
    raw, _ = parse_email(data)
    if not raw.get("name") or not raw.get("version"):
        expected = "Name and Version in METADATA"
        raise IntegrityError("E-WHEEL-METADATA", subject, expected=expected, found="none")
    return CoreMetadata(
        name=raw["name"],
        version=raw["version"],
        requires_python=raw.get("requires_python"),
        requires_dist=tuple(raw.get("requires_dist", ())),
        extras=tuple(raw.get("provides_extra", ())),
        summary=raw.get("summary", ""),
    )


def read_wheel_file(data: bytes, subject: str) -> tuple[bool, tuple[str, ...]]:
    """Read WHEEL; returns (Root-Is-Purelib, tags). Raises ``IntegrityError`` (E-WHEEL-VERSION)."""
    message = Parser().parsestr(data.decode("utf-8", "replace"), headersonly=True)
    version = (message.get("Wheel-Version") or "").strip()
    if version.partition(".")[0] != "1":
        found = repr(version[:40])
        raise IntegrityError("E-WHEEL-VERSION", subject, expected="Wheel-Version 1.x", found=found)
    purelib = (message.get("Root-Is-Purelib") or "").strip().lower() == "true"
    return purelib, tuple(tag.strip() for tag in message.get_all("Tag", ()))


def read_entry_points(data: bytes, subject: str) -> tuple[EntryPoint, ...]:
    """Read entry_points.txt, sorted; raises ``IntegrityError`` (E-ENTRY-POINT, E-NAME).

    In the groups that become scripts the name must be one file name and the value ``module:attribute``.
    """
    parser = configparser.RawConfigParser(delimiters=("=",), default_section="\0", strict=True)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(data.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as fault:
        found = str(fault).splitlines()[0][:200]
        raise IntegrityError("E-ENTRY-POINT", subject, expected="an INI file", found=found) from fault
    points = [
        EntryPoint(group=group, name=name, value=value)
        for group in parser.sections()
        for name, value in parser.items(group)
    ]
    for point in points:
        if point.group in SCRIPT_GROUPS:
            check_script_name(point.name)
            if not _REFERENCE.fullmatch(point.value):
                raise IntegrityError(
                    "E-ENTRY-POINT",
                    f"{subject}: {point.name}",
                    expected="module:attribute",
                    found=ascii(point.value)[:200],
                )
    return tuple(sorted(points))


def read_record(data: bytes, subject: str) -> dict[str, RecordRow]:
    """Read RECORD into path -> promise; raises ``IntegrityError`` (E-RECORD)."""
    rows: dict[str, RecordRow] = {}

    def fail(found: str, expected: str) -> IntegrityError:
        return IntegrityError("E-RECORD", f"{subject}: RECORD", expected=expected, found=found)

    try:
        for number, row in enumerate(csv.reader(io.StringIO(data.decode("utf-8"), newline="")), 1):
            if not row:
                continue
            if len(row) != 3:
                raise fail(f"line {number} with {len(row)}", "three fields a line")
            path, promise, size = row
            if path in rows:
                raise fail(f"{ascii(path)[:200]} twice", "each path once")
            rows[path] = _promise(promise, size, fail_at=f"line {number}", subject=subject)
    except (csv.Error, UnicodeDecodeError) as fault:
        raise fail(str(fault)[:200], "CSV in UTF-8") from fault
    return rows


def _promise(promise: str, size: str, *, fail_at: str, subject: str) -> RecordRow:
    algorithm, _, text = promise.partition("=")
    length = _HASHES.get(algorithm, 0)
    digest = b""
    if promise:
        try:
            digest = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            digest = b""
    if (promise and (not length or len(digest) != length)) or (size and not size.isdecimal()):
        raise IntegrityError(
            "E-RECORD",
            f"{subject}: RECORD {fail_at}",
            expected="sha256=<urlsafe base64> (or sha384, sha512) and a size",
            found=f"{promise[:90]!r}, {size[:20]!r}",
        )
    return RecordRow(algorithm if promise else "", digest.hex(), int(size) if size else None)


def contained(path: str, subject: str) -> RelPath:
    """Return ``path`` checked; its error names the wheel too (E-PATH)."""
    try:
        return RelPath(path)
    except EnvbundleError as fault:
        name = f"{subject}: {fault.subject}"
        raise IntegrityError(fault.code, name, expected=fault.expected, found=fault.found) from fault
