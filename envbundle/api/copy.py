"""``copy``: bundles from one store to another, judged where signers are configured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding
from envbundle.store.bundle import parse_descriptor
from envbundle.store.layout import DirectoryStore
from envbundle.transfer.copy import CopyResult, copy_bundle
from envbundle.transfer.location import open_destination, open_location, parse_location
from envbundle.trust.trusted import accept, check_signatures

from .bootstrap_trust import BootstrapAnswer, copy_bootstrap
from .stores import choose_bundles
from .trust import TrustChoice, policy_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from envbundle.spec.descriptor import Descriptor
    from envbundle.store.bundle import BundleRef
    from envbundle.trust.policy import TrustPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyAnswer:
    """What a copy did, over all bundles that were meant; sizes in bytes."""

    results: tuple[CopyResult, ...]
    findings: tuple[Finding, ...]
    bootstrap: BootstrapAnswer = field(default_factory=BootstrapAnswer)

    @property
    def tags(self) -> tuple[str, ...]:
        """The bundles' tags."""
        return tuple(result.tag for result in self.results)

    @property
    def sent_blobs(self) -> int:
        """Blobs that travelled."""
        return sum(result.sent_blobs for result in self.results)

    @property
    def sent_bytes(self) -> int:
        """Bytes that travelled."""
        return sum(result.sent_bytes for result in self.results)

    @property
    def skipped_blobs(self) -> int:
        """Blobs that were there."""
        return sum(result.skipped_blobs for result in self.results)

    @property
    def skipped_bytes(self) -> int:
        """Bytes that were there."""
        return sum(result.skipped_bytes for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {
            "via": self.results[0].via if self.results else "dir",
            "sent": {"blobs": self.sent_blobs, "bytes": self.sent_bytes},
            "skipped": {"blobs": self.skipped_blobs, "bytes": self.skipped_bytes},
            "bundles": [{"tag": result.tag, "id": str(result.bundle)} for result in self.results],
            "bootstrap": self.bootstrap.to_dict(),
        }


def copy(
    source: str,
    destination: str,
    *,
    target: str | None,
    trust: TrustChoice,
    check: bool = False,
    dry_run: bool = False,
    reporter: Reporter = SILENT,
) -> CopyAnswer:
    """Copy the bundles that ``target`` names (all without) between two locations; see ``copy_bundle``.

    Trust is judged where ``trust`` says by whom, integrity always. Raises as ``copy_bundle`` does.
    """
    here, there = open_location(parse_location(source)), parse_location(destination)
    bundles = choose_bundles(here, target)
    policy = policy_of(trust) if trust.says_whom else None
    findings: list[Finding] = []
    judge = _judge(policy, findings)
    opened = open_destination(there, dry_run=dry_run)
    try:
        results = tuple(
            copy_bundle(
                here, opened, bundle.tag, judge=judge, check=check, dry_run=dry_run, reporter=reporter
            )
            for bundle in bundles
        )
        beside = copy_bootstrap(here, opened, policy, dry_run=dry_run)
    finally:
        if isinstance(opened, DirectoryStore):
            opened.unmake()  # a refusal before the first blob leaves no store; later ones are for resuming
    return CopyAnswer(results=results, findings=(*findings, *beside.findings), bootstrap=beside)


def _judge(policy: TrustPolicy | None, findings: list[Finding]) -> Callable[[BundleRef], Descriptor]:
    def judge(ref: BundleRef) -> Descriptor:
        if policy is not None:
            trusted = accept(
                ref.descriptor, ref.signatures, policy=policy, parse=parse_descriptor, subject=ref.tag
            )
            findings.extend(trusted.trust.findings)
            return trusted.descriptor
        check_signatures(ref.descriptor, ref.signatures, subject=ref.tag)
        findings.append(
            Finding(
                code="N-SIG-NOT-JUDGED",
                severity="note",
                subject=ref.tag,
                found="signature not judged here: no signers are configured on this machine",
                hint="name them with --allowed-signers; the install judges in any case",
            )
        )
        return parse_descriptor(ref.descriptor)

    return judge
