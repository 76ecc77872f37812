"""Reading each wheel once: its members' digests and its GPU code, kept as JSON per digest and rule table.

A kept scan that cannot be read (another version, a damaged disk) is made anew; it is written by rename, so
two locks on one cache at worst do the same work twice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError
from envbundle.host.files import atomic_write, host_errors
from envbundle.inspection.declared import declared_archs
from envbundle.inspection.members import read_members
from envbundle.inspection.wheel import read_wheel
from envbundle.progress import SILENT, Reporter

from .contents import FORMAT, Member, WheelScan

if TYPE_CHECKING:
    from pathlib import Path

    from .gather import Artifact

# Raised whenever reading or the form of a scan changes; the rules of what runs where are not in a scan.
READER = 2
_SCRIPT_GROUPS = ("console_scripts", "gui_scripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanner:
    """Scans wheels with a memory. ``cache`` is envbundle's cache folder."""

    cache: Path
    reporter: Reporter = SILENT

    def scan(self, artifact: Artifact) -> WheelScan:
        """Return what a wheel holds.

        Raises ``IntegrityError`` for a wheel that is damaged, contradicts itself or its RECORD.
        """
        place = (
            self.cache / "scans" / f"{FORMAT}.{READER}" / f"{artifact.sha256.hex}-{_name_key(artifact)}.json"
        )
        kept = _kept(place)
        if kept is not None:
            return kept
        task = f"scan {artifact.filename}"
        self.reporter.start(task, total=artifact.size)
        scan = scan_wheel_file(artifact)
        self.reporter.finish(task)
        with host_errors(place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(place, json.dumps(scan.to_dict(), separators=(",", ":")).encode(), sync=False)
        return scan


def scan_wheel_file(artifact: Artifact) -> WheelScan:
    """Read a wheel's every byte once: for its digests, and for what its binaries hold and need."""
    with host_errors(artifact.path), artifact.path.open("rb") as stream:
        contents = read_wheel(stream, artifact.filename)
        members, files = [], []
        for member, digest, scan in read_members(stream, contents):
            members.append(Member(path=str(member.path), member=member.name, sha256=digest, size=member.size))
            if scan is not None:
                files.append(scan)
        declared = declared_archs(stream, contents)
    scripts = {point.name: point.value for point in contents.entry_points if point.group in _SCRIPT_GROUPS}
    return WheelScan(
        name=contents.name,
        version=contents.version,
        members=tuple(members),
        files=tuple(files),
        scripts=tuple(sorted(scripts.items())),
        findings=contents.findings,
        requires=contents.metadata.requires_dist,
        requires_python=contents.metadata.requires_python or "",
        declared=declared,
    )


def _name_key(artifact: Artifact) -> str:
    """Return what of the file name takes part in a scan: findings and checks name it."""
    return hashlib.sha256(artifact.filename.encode("utf-8", "replace")).hexdigest()[:8]


def _kept(place: Path) -> WheelScan | None:
    try:
        return WheelScan.from_dict(json.loads(place.read_bytes()))
    except (OSError, ValueError, TypeError, EnvbundleError):
        return None
