"""``verify``: every byte of a store's bundles, or of an installed environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from envbundle.errors import EnvbundleError, IntegrityError, TrustError, UserInputError
from envbundle.host.run import run
from envbundle.installer.layout import Prefix
from envbundle.installer.plan import plan
from envbundle.installer.values import check_values
from envbundle.installer.verify import require_clean, verify_environment
from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding, findings_of
from envbundle.store.bundle import parse_descriptor, read_bundle
from envbundle.store.layout import DirectoryStore
from envbundle.store.read import read_layer
from envbundle.store.verify import verify_store
from envbundle.trust.trusted import check_signatures, signature_status

from .bootstrap_trust import verify_bootstrap
from .stores import choose_bundle, choose_bundles, trusted_bundle
from .trust import TrustChoice, policy_of

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.store.bundle import BundleSummary

SignatureStatus = Literal["verified", "pinned", "unsigned", "untrusted", "bad", "not judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAnswer:
    """What verifying found. ``ok`` is false for any error finding, drift, or bad signature."""

    kind: Literal["bundle", "environment"]
    ok: bool
    signature: SignatureStatus
    principal: str | None = None
    partial: bool = False
    checked: int = 0
    modified: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {
            "kind": self.kind,
            "ok": self.ok,
            "partial": self.partial,
            "signature": {"status": self.signature, "principal": self.principal},
            "files": {
                "checked": self.checked,
                "modified": list(self.modified),
                "missing": list(self.missing),
                "extra": list(self.extra),
            },
        }


def verify(
    place: Path,
    *,
    target: str | None = None,
    quick: bool = False,
    trust: TrustChoice,
    reporter: Reporter = SILENT,
) -> VerifyAnswer:
    """Verify what stands at ``place``: an environment that envbundle installed, or a store.

    Faults are in the answer; raises ``UserInputError`` where nothing known stands there, ``HostError`` where
    it cannot be read.
    """
    if Prefix.of(place).home.is_dir():
        return _environment(place, quick=quick)
    if (place / "oci-layout").exists() or (place / "index.json").exists() or (place / "blobs").is_dir():
        return _store(place, target=target, trust=trust, reporter=reporter)
    raise UserInputError(
        "E-NOTHING-TO-VERIFY",
        str(place),
        expected="a store, or a prefix that envbundle installed",
        found="something else" if place.exists() else "nothing",
    )


def _environment(prefix: Path, *, quick: bool) -> VerifyAnswer:
    report = verify_environment(prefix, runner=run, quick=quick)
    findings = report.findings
    try:
        require_clean(report)
    except IntegrityError as drift:
        findings = tuple(dict.fromkeys((*findings, *findings_of(drift))))
    return VerifyAnswer(
        kind="environment",
        ok=report.ok,
        signature=report.receipt.trust,
        principal=report.receipt.principal or None,
        checked=report.checked,
        modified=report.modified,
        missing=report.missing,
        extra=report.extra,
        findings=findings,
    )


def _store(place: Path, *, target: str | None, trust: TrustChoice, reporter: Reporter) -> VerifyAnswer:
    store = DirectoryStore(place)
    try:
        bundles = choose_bundles(store, target)
    except IntegrityError as fault:
        return _damaged(findings_of(fault))
    tag = choose_bundle(store, target).tag if target is not None else None
    findings = list(verify_store(store, tag, reporter))
    if not any(finding.severity == "error" for finding in findings):
        for bundle in bundles:
            findings += _installable(store, bundle)
    signatures = [_signature(store, bundle, trust, findings) for bundle in bundles]
    if target is None:
        findings += verify_bootstrap(store, policy_of(trust) if trust.says_whom else None)
    order: tuple[SignatureStatus, ...] = ("bad", "untrusted", "unsigned", "not judged", "pinned", "verified")
    status, principal = min(signatures, key=lambda item: order.index(item[0]))
    refused = status in ("bad", "untrusted") or (
        status == "unsigned" and trust.says_whom and not trust.allow_unsigned
    )
    return VerifyAnswer(
        kind="bundle",
        ok=not refused and not any(finding.severity == "error" for finding in findings),
        signature=status,
        principal=principal,
        checked=sum(1 for _ in store.blobs()),
        findings=tuple(findings),
    )


def _installable(store: DirectoryStore, bundle: BundleSummary) -> tuple[Finding, ...]:
    """Return why a bundle of sound bytes could be installed nowhere: its layers contradict each other."""
    try:
        descriptor = parse_descriptor(read_bundle(store, bundle.tag).descriptor)
        content = descriptor.content
        check_values(content)
        plan(content, [read_layer(store, descriptor, ref) for ref in content.layers])
    except IntegrityError as fault:
        return findings_of(fault)
    return ()


def _signature(
    store: DirectoryStore, bundle: BundleSummary, trust: TrustChoice, findings: list[Finding]
) -> tuple[SignatureStatus, str | None]:
    try:
        if trust.says_whom:
            _, trusted = trusted_bundle(store, bundle.tag, policy_of(trust))
            findings += trusted.trust.findings
            return trusted.trust.status, trusted.trust.principal
        ref = read_bundle(store, bundle.tag)
        check_signatures(ref.descriptor, ref.signatures, subject=bundle.tag)
    except TrustError as fault:
        status = signature_status(fault)
        if status != "unsigned" or not trust.allow_unsigned:
            findings += [f for f in findings_of(fault) if f not in findings]
        return status, None
    except EnvbundleError as fault:
        findings += [f for f in findings_of(fault) if f not in findings]
        return "bad", None
    return ("not judged" if ref.signatures else "unsigned"), None


def _damaged(findings: tuple[Finding, ...]) -> VerifyAnswer:
    return VerifyAnswer(kind="bundle", ok=False, signature="bad", findings=findings)
