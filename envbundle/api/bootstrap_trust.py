"""``install.pyz`` of a store: read, judged, carried. Apart from its making, so that a far host has it too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from envbundle.bundler.bootstrap import ARTIFACT, NAME, TAG, put_bootstrap
from envbundle.errors import IntegrityError, TrustError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding, findings_of
from envbundle.store.artifact import read_artifact
from envbundle.trust.sshsig import BOOTSTRAP_NAMESPACE
from envbundle.trust.trusted import accept_bootstrap, check_signatures, signature_status

if TYPE_CHECKING:
    from envbundle.store.protocol import Store
    from envbundle.trust.policy import TrustPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapAnswer:
    """The ``install.pyz`` of a store: its digest, its size in bytes, and what was found on the way."""

    sha256: str = ""
    size: int = 0
    pythons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"sha256": self.sha256, "size": self.size, "pythons": list(self.pythons)}


def read_bootstrap(store: Store) -> dict[str, bytes]:
    """Return the bootstrap's files, by name: ``install.pyz`` and its signatures; {} where there is none.

    Raises ``IntegrityError`` for one that is damaged or is another artifact.
    """
    if store.read_index().find(TAG) is None:
        return {}
    return {file.name: file.data for file in read_artifact(store, TAG, ARTIFACT)}


def judge_bootstrap(files: dict[str, bytes], policy: TrustPolicy | None) -> tuple[Finding, ...]:
    """Return what is to be said of a bootstrap's signatures; None judges nobody, but a bad one is fatal.

    Raises ``TrustError``. A pinned id is a bundle's and says nothing about it.
    """
    signatures = [data for name, data in files.items() if name != NAME]
    if policy is None or not (policy.allowed_signers or policy.allow_unsigned):
        check_signatures(files[NAME], signatures, namespace=BOOTSTRAP_NAMESPACE, subject=NAME)
        return ()
    return accept_bootstrap(files[NAME], signatures, policy=replace(policy, pinned_id=None)).findings


def copy_bootstrap(
    source: Store, destination: Store, policy: TrustPolicy | None, *, dry_run: bool = False
) -> BootstrapAnswer:
    """Carry the bootstrap of ``source`` over, after judging it; one that nobody vouches for stays behind.

    Raises ``TrustError`` for a bad signature, ``IntegrityError``, and what writing raises.
    """
    files = read_bootstrap(source)
    if NAME not in files:
        return BootstrapAnswer()
    try:
        findings = judge_bootstrap(files, policy)
    except TrustError as fault:
        if signature_status(fault) == "bad":
            raise
        return BootstrapAnswer(findings=(_untrusted(fault),))
    if not dry_run:
        put_bootstrap(destination, files)
    return BootstrapAnswer(sha256=Digest.of(files[NAME]).hex, size=len(files[NAME]), findings=findings)


def verify_bootstrap(store: Store, policy: TrustPolicy | None) -> tuple[Finding, ...]:
    """Return what is wrong with the signatures of a store's bootstrap; nothing where there is none."""
    try:
        files = read_bootstrap(store)
        return judge_bootstrap(files, policy) if NAME in files else ()
    except TrustError as fault:
        return findings_of(fault) if signature_status(fault) == "bad" else (_untrusted(fault),)
    except IntegrityError as fault:
        return findings_of(fault)


def _untrusted(fault: TrustError) -> Finding:
    return Finding(
        code="W-BOOTSTRAP-TRUST",
        severity="warning",
        subject=NAME,
        expected=f"a signature by a trusted signer, made for {BOOTSTRAP_NAMESPACE}",
        found=f"{fault.code}: {fault.found}",
        hint="do not run it; the bundles are judged by their own signatures. A line of allowed_signers that "
        f'names namespaces must name both: namespaces="envbundle,{BOOTSTRAP_NAMESPACE}"',
    )
