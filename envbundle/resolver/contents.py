"""What one wheel holds, as this room needs it: every member with its digest, and its GPU code.

All digests are of the bytes in the wheel, not of its RECORD. ``WheelScan`` has a JSON form, so that a wheel
is read once per digest and rule table, whatever is locked afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envbundle.spec.coverage import FileScan
from envbundle.spec.digest import Digest
from envbundle.spec.fields import Fields
from envbundle.spec.finding import Finding
from envbundle.spec.layer import installed_path
from envbundle.spec.names import RelPath, check_version, normalise_name

FORMAT = 2
_SITE = ("purelib", "platlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of a wheel.

    ``path`` is its scheme path (``purelib/pkg/x.py``, ``scripts/tool``), ``member`` its name in the archive;
    ``size`` in bytes.
    """

    path: str
    member: str
    sha256: Digest
    size: int

    @property
    def site_path(self) -> str | None:
        """The path below site-packages, or None for a file of another scheme."""
        scheme, _, rest = self.path.partition("/")
        return rest if scheme in _SITE else None

    @classmethod
    def from_list(cls, value: Any, where: str) -> Member:
        """Read the JSON form ``[path, member, sha256, size]``."""
        fields = Fields(dict(zip(("path", "member", "sha256", "size"), value, strict=False)), where)
        return cls(
            path=str(RelPath(fields.text("path"))),
            member=str(RelPath(fields.text("member"))),
            sha256=fields.parsed("sha256", Digest),
            size=fields.integer("size"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelScan:
    """One wheel, read.

    ``files`` are those with GPU code or ELF; ``scripts`` are entry points as (name, reference). ``findings``
    are what reading it noticed: warnings and notes, as errors refuse the wheel at once. ``requires`` and
    ``requires_python`` are its metadata's, as written; ``declared`` are GPU architectures that its labels
    claim, as ``sm_90``.
    """

    name: str
    version: str
    members: tuple[Member, ...]
    files: tuple[FileScan, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    declared: tuple[str, ...] = ()

    @property
    def site_files(self) -> dict[str, Member]:
        """The files below site-packages, by their path there."""
        return {path: member for member in self.members if (path := member.site_path) is not None}

    def installed(self, python: str) -> dict[str, Digest]:
        """Return the digest of every installed path, relative to the prefix, entry points included.

        An entry point has no bytes yet; the digest is of its reference, so that equal ones are equal.
        """
        paths = {
            installed_path(member.path, python=python, distribution=self.name): member.sha256
            for member in self.members
        }
        for script, reference in self.scripts:
            paths[f"bin/{script}"] = Digest.of(f"entry-point:{reference}".encode())
        return paths

    @classmethod
    def from_dict(cls, value: Any, where: str = "wheel scan") -> WheelScan:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        fields.integer("format", minimum=FORMAT)
        scan = cls(
            name=fields.parsed("name", normalise_name),
            version=fields.parsed("version", check_version),
            members=fields.items("members", Member.from_list),
            files=fields.items("files", FileScan.from_dict),
            scripts=tuple(fields.mapping("scripts", lambda text, _: str(text)).items()),
            findings=fields.items("findings", Finding.from_dict),
            requires=fields.texts("requires"),
            requires_python=fields.text("requires_python"),
            declared=fields.texts("declared"),
        )
        fields.done()
        return scan

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "members": [[m.path, m.member, m.sha256.hex, m.size] for m in self.members],
            "files": [file.to_dict() for file in self.files],
            "scripts": dict(self.scripts),
            "findings": [finding.to_dict() for finding in self.findings],
            "requires": list(self.requires),
            "requires_python": self.requires_python,
            "declared": list(self.declared),
        }
