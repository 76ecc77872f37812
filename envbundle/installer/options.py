"""What an install is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.spec.digest import Digest
    from envbundle.spec.finding import Finding
    from envbundle.spec.receipt import CheckResult, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """How to install.

    ``prefix`` is absolute. ``interpreter`` names a Python to use instead of looking for one. ``signatures``
    are kept beside the descriptor. ``reuse`` = "copy" forbids links; ``verify_all`` hashes reused files too;
    ``compile`` makes bytecode; ``checks`` runs the bundle's checks, for an unsigned bundle only with
    ``run_checks``. ``no_device`` silences the warning that no GPU is visible, ``force_arch`` turns a GPU of
    another architecture into a warning. ``workers`` bounds the threads that write.
    """

    prefix: Path
    interpreter: str | None = None
    signatures: tuple[bytes, ...] = ()
    reuse: Literal["auto", "copy"] = "auto"
    verify_all: bool = False
    compile: bool = True
    checks: bool = True
    run_checks: bool = False
    no_device: bool = False
    force_arch: bool = False
    allow_downgrade: bool = False
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallResult:
    """What an install did.

    ``status``: installed (new bytes were staged), switched (a complete generation of the same content was
    made live) or unchanged (it was live already, and was verified). ``receipt_path`` is absolute.
    ``users`` are (pid, command) of processes that still run from the generation that was live before.
    """

    status: Literal["installed", "switched", "unchanged"]
    bundle_id: Digest
    content_id: Digest
    prefix: str
    generation: str
    receipt: Receipt
    receipt_path: str
    reused_bytes: int = 0
    written_bytes: int = 0
    checks: tuple[CheckResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    users: tuple[tuple[int, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `install --json`."""
        return {
            "status": self.status,
            "bundle": str(self.bundle_id),
            "content_id": str(self.content_id),
            "prefix": self.prefix,
            "generation": self.generation,
            "reused_bytes": self.reused_bytes,
            "written_bytes": self.written_bytes,
            "receipt": self.receipt_path,
            "checks": [{"name": c.name, "ok": c.ok, "seconds": c.seconds} for c in self.checks],
            "users": [{"pid": pid, "command": command} for pid, command in self.users],
            "findings": [finding.to_dict() for finding in self.findings],
        }
