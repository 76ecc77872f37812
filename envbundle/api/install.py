"""``install``: a bundle of a store becomes the live, verified environment under a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import UserInputError
from envbundle.installer.install import check_install
from envbundle.installer.install import install as install_bundle
from envbundle.installer.options import InstallOptions
from envbundle.installer.preflight import refuse
from envbundle.installer.values import check_values
from envbundle.progress import SILENT, Reporter
from envbundle.spec.prefix import check_prefix
from envbundle.store.layout import DirectoryStore
from envbundle.store.read import read_plain

from .stores import choose_bundle, trusted_bundle
from .trust import TrustChoice, policy_of

if TYPE_CHECKING:
    from envbundle.spec.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallChoice:
    """What the person says about an install; see ``InstallOptions`` for the meanings."""

    prefix: str | None = None
    check: bool = False
    no_device: bool = False
    reuse: Literal["auto", "copy"] = "auto"
    verify_all: bool = False
    compile: bool = True
    checks: bool = True
    run_checks: bool = False
    python: str | None = None
    allow_downgrade: bool = False
    force_arch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAnswer:
    """What an install did; ``status`` is installed, switched, unchanged, or checked (preflight alone)."""

    status: str
    bundle: str
    content_id: str
    prefix: str
    signature: str
    generation: str = ""
    receipt: str = ""
    reused_bytes: int = 0
    written_bytes: int = 0
    checks: tuple[dict[str, Any], ...] = ()
    live_users: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {
            "status": self.status,
            "bundle": self.bundle,
            "content_id": self.content_id,
            "prefix": self.prefix,
            "generation": self.generation,
            "reused_bytes": self.reused_bytes,
            "written_bytes": self.written_bytes,
            "receipt": self.receipt,
            "checks": list(self.checks),
        }


def install(
    source: Path,
    *,
    target: str | None,
    choice: InstallChoice,
    trust: TrustChoice,
    reporter: Reporter = SILENT,
    now: datetime | None = None,
) -> InstallAnswer:
    """Install the bundle that ``target`` names from the store at ``source``.

    The signature is judged before anything else is read; the prefix is the one given, else the bundle's
    own. Raises what ``envbundle.installer.install`` raises.
    """
    store = DirectoryStore(source)
    bundle = choose_bundle(store, target)
    ref, trusted = trusted_bundle(store, bundle.tag, policy_of(trust, now))
    content = trusted.descriptor.content
    check_values(content)
    for document in (content.lock, trusted.descriptor.manifest):
        read_plain(store, trusted.descriptor, document)  # nothing installs from a bundle that is not whole
    prefix = choice.prefix or content.layout.get("prefix")
    if not prefix:
        raise UserInputError(
            "E-PREFIX-MISSING",
            bundle.tag,
            expected="--prefix",
            found="a bundle that states no prefix of its own",
        )
    options = InstallOptions(
        prefix=Path(check_prefix(str(Path(prefix).absolute()))),
        interpreter=choice.python,
        signatures=ref.signatures,
        reuse=choice.reuse,
        verify_all=choice.verify_all,
        compile=choice.compile,
        checks=choice.checks,
        run_checks=choice.run_checks,
        no_device=choice.no_device,
        force_arch=choice.force_arch,
        allow_downgrade=choice.allow_downgrade,
    )
    told = trusted.trust
    signature = f"{told.status} by {told.principal}" if told.principal else told.status
    if choice.check:
        findings = (*told.findings, *check_install(trusted, store, options))
        refuse(list(findings))
        return InstallAnswer(
            status="checked",
            bundle=str(trusted.id),
            content_id=str(trusted.descriptor.content_id),
            prefix=str(options.prefix),
            signature=signature,
            findings=findings,
        )
    done = install_bundle(trusted, store, options, reporter=reporter, now=now or datetime.now(timezone.utc))
    return InstallAnswer(
        status=done.status,
        bundle=str(done.bundle_id),
        content_id=str(done.content_id),
        prefix=done.prefix,
        signature=signature,
        generation=done.generation,
        receipt=done.receipt_path,
        reused_bytes=done.reused_bytes,
        written_bytes=done.written_bytes,
        checks=tuple({"name": c.name, "ok": c.ok, "seconds": c.seconds} for c in done.checks),
        live_users=tuple(f"pid {pid}: {command}" for pid, command in done.users),
        findings=done.findings,
    )
