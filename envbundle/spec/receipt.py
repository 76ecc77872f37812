"""The receipt: what an install did and found (docs/format.md, "Receipt").

It stands in the generation as ``.envbundle/receipt.json`` and is what ``verify PREFIX`` holds the tree
against. Paths are relative to the generation. Times are whole seconds UTC in RFC 3339 form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from envbundle.errors import FormatError

from .canonical import canonical
from .descriptor import Exemption
from .fields import Fields, known_format
from .finding import Finding
from .names import RelPath, check_bundle_name, check_version
from .target import Target

if TYPE_CHECKING:
    from .digest import Digest

FORMAT = "envbundle.receipt.v1"
RECEIPT_FOLDER = ".envbundle"

TrustStatus = Literal["verified", "pinned", "unsigned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFile:
    """One path of the generation as it was left.

    ``type`` is file, symlink or dir. ``sha256`` is of the installed bytes; ``packed`` is the digest the
    bundle gave where a fixer changed the file. ``source`` is the layer's index or None for what envbundle
    itself wrote. ``mtime_ns`` and ``inode`` with the receipt's ``device`` let a later install reuse the
    file without reading it. ``mutable`` files may change without being drift.
    """

    path: str
    type: Literal["file", "symlink"] = "file"
    mode: int = 0o644
    size: int = 0
    sha256: Digest | None = None
    link: str = ""
    packed: Digest | None = None
    source: int | None = None
    fixer: str = ""
    mtime_ns: int = 0
    inode: int = 0

    @classmethod
    def from_dict(cls, value: Any, where: str = "file") -> InstalledFile:
        """Read the JSON form."""
        fields = Fields(value, where)
        item = cls(
            path=RelPath(fields.text("path")),
            type=cast("Literal['file', 'symlink']", fields.choice("type", ("file", "symlink"), "file")),
            mode=fields.integer("mode", 0o644),
            size=fields.integer("size", 0),
            sha256=fields.opt_digest("sha256"),
            link=fields.text("link", ""),
            packed=fields.opt_digest("packed"),
            source=fields.opt_integer("source"),
            fixer=fields.text("fixer", ""),
            mtime_ns=fields.integer("mtime_ns", 0),
            inode=fields.integer("inode", 0),
        )
        fields.done()
        return item

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; defaults are left out."""
        if self.type == "symlink":
            value: dict[str, Any] = {"path": self.path, "type": "symlink", "link": self.link}
        else:
            value = {"path": self.path, "mode": self.mode, "size": self.size, "sha256": str(self.sha256)}
            value |= {"mtime_ns": self.mtime_ns, "inode": self.inode}
        if self.packed is not None:
            value["packed"] = str(self.packed)
        if self.source is not None:
            value["source"] = self.source
        if self.fixer:
            value["fixer"] = self.fixer
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one ``[[check]]`` gave. ``seconds`` is rounded up; ``output`` is its last 4,000 characters."""

    name: str
    ok: bool
    seconds: int
    isolation: str = ""
    output: str = ""

    @classmethod
    def from_dict(cls, value: Any, where: str = "check") -> CheckResult:
        """Read the JSON form."""
        fields = Fields(value, where)
        item = cls(
            name=fields.text("name"),
            ok=fields.boolean("ok"),
            seconds=fields.integer("seconds"),
            isolation=fields.text("isolation", ""),
            output=fields.text("output", ""),
        )
        fields.done()
        return item

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "ok": self.ok,
            "seconds": self.seconds,
            "isolation": self.isolation,
            "output": self.output,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an install did.

    ``interpreter`` holds path, version, abi, libc; ``host`` what preflight saw (gpus, driver, glibc).
    ``reused_bytes`` and ``written_bytes`` count file content. ``trust`` is verified (by ``principal`` with
    key ``fingerprint``), pinned or unsigned.
    """

    bundle_id: Digest
    content_id: Digest
    name: str
    version: str
    target: Target
    prefix: str
    generation: str
    installed_at: str
    tool: str
    trust: TrustStatus
    files: tuple[InstalledFile, ...]
    device: int
    principal: str = ""
    fingerprint: str = ""
    serial: int | None = None
    interpreter: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    exemptions: tuple[Exemption, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    reused_bytes: int = 0
    written_bytes: int = 0

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Read a receipt's bytes; raises ``FormatError``."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as fault:
            raise FormatError("E-FORMAT", "receipt", expected="JSON", found=str(fault)[:200]) from fault
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: Any, where: str = "receipt") -> Receipt:
        """Read the JSON form."""
        fields = Fields(value, where)
        known_format(fields, FORMAT)
        receipt = cls(
            bundle_id=fields.digest("bundle_id"),
            content_id=fields.digest("content_id"),
            name=fields.parsed("name", check_bundle_name),
            version=fields.parsed("version", check_version),
            target=Target.from_dict(fields.raw("target"), fields.path("target")),
            prefix=fields.text("prefix"),
            generation=fields.text("generation"),
            installed_at=fields.text("installed_at"),
            tool=fields.text("tool"),
            trust=cast("TrustStatus", fields.choice("trust", ("verified", "pinned", "unsigned"))),
            files=fields.items("files", InstalledFile.from_dict),
            device=fields.integer("device"),
            principal=fields.text("principal", ""),
            fingerprint=fields.text("fingerprint", ""),
            serial=fields.opt_integer("serial"),
            interpreter=fields.mapping("interpreter", _text, {}),
            host=_object(fields.raw("host", {}), fields.path("host")),
            exemptions=fields.items("exemptions", Exemption.from_dict, ()),
            checks=fields.items("checks", CheckResult.from_dict, ()),
            findings=fields.items("findings", Finding.from_dict, ()),
            reused_bytes=fields.integer("reused_bytes", 0),
            written_bytes=fields.integer("written_bytes", 0),
        )
        fields.done()
        return receipt

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "bundle_id": str(self.bundle_id),
            "content_id": str(self.content_id),
            "name": self.name,
            "version": self.version,
            "target": self.target.to_dict(),
            "prefix": self.prefix,
            "generation": self.generation,
            "installed_at": self.installed_at,
            "tool": self.tool,
            "trust": self.trust,
            "principal": self.principal,
            "fingerprint": self.fingerprint,
            "interpreter": dict(self.interpreter),
            "host": dict(self.host),
            "exemptions": [item.to_dict() for item in self.exemptions],
            "checks": [item.to_dict() for item in self.checks],
            "findings": [item.to_dict() for item in self.findings],
            "reused_bytes": self.reused_bytes,
            "written_bytes": self.written_bytes,
            "device": self.device,
            "files": [item.to_dict() for item in self.files],
        }
        if self.serial is not None:
            value["serial"] = self.serial
        return value

    def to_bytes(self) -> bytes:
        """Return the canonical bytes."""
        return canonical(self.to_dict())


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise FormatError("E-FORMAT", where, expected="a string")
    return value


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError("E-FORMAT", where, expected="an object")
    return value
