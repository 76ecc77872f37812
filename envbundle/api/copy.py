"""``copy``: bundles from one store to another, judged where signers are configured."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envbundle.errors import UserInputError
from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding
from envbundle.store.bundle import parse_descriptor
from envbundle.store.layout import DirectoryStore
from envbundle.transfer.copy import CopyResult, copy_bundle
from envbundle.transfer.far_store import FarStore
from envbundle.transfer.location import Location, open_destination, open_location, opened, parse_location
from envbundle.transfer.options import DEFAULTS, TransferOptions
from envbundle.transfer.ssh import ssh_words
from envbundle.transfer.stream import receive_bundles, send_bundles
from envbundle.trust.trusted import accept, check_signatures

from .bootstrap_trust import BootstrapAnswer, copy_bootstrap
from .stores import choose_bundles
from .trust import TrustChoice, policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from envbundle.spec.descriptor import Descriptor
    from envbundle.store.bundle import BundleRef
    from envbundle.store.protocol import Store
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


#: How bytes travel; made by ``transfer_options``.
CopyOptions = TransferOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipes:
    """The binary streams that ``-`` means: where an archive is read from, and where one is written to."""

    source: BinaryIO
    destination: BinaryIO


def copy(
    source: str,
    destination: str,
    *,
    target: str | None,
    trust: TrustChoice,
    check: bool = False,
    dry_run: bool = False,
    pipes: Pipes | None = None,
    options: TransferOptions = DEFAULTS,
) -> CopyAnswer:
    """Copy the bundles that ``target`` names (all without) between two locations; see ``copy_bundle``.

    Trust is judged where ``trust`` says by whom, integrity always. Raises as ``copy_bundle`` does.
    """
    here, there = parse_location(source), parse_location(destination)
    findings: list[Finding] = []
    policy = policy_of(trust) if trust.says_whom else None
    judge = _judge(policy, findings)
    if "pipe" in (here.kind, there.kind):
        if pipes is None or here.kind == there.kind or dry_run:
            raise UserInputError(
                "E-LOCATION", "-", expected="one pipe and one store that can be asked", found="none to ask"
            )
        results = _through_pipe(here, there, target, pipes, judge, options)
        return CopyAnswer(results=results, findings=tuple(findings))
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(opened(open_location(here, options=options)))
        bundles = choose_bundles(store, target)
        far = stack.enter_context(_destination(there, dry_run, options))
        results = tuple(
            copy_bundle(
                store,
                far,
                bundle.tag,
                judge=judge,
                check=check,
                dry_run=dry_run,
                via=way(here, there),
                streams=_streams(here, there, options),
                rate=options.rate,
                reporter=options.reporter,
            )
            for bundle in bundles
        )
        beside = copy_bootstrap(store, far, policy, dry_run=dry_run)
    return CopyAnswer(results=results, findings=(*findings, *beside.findings), bootstrap=beside)


def transfer_options(
    *, ssh: str | None, streams: int, rate: float | None, reporter: Reporter = SILENT
) -> TransferOptions:
    """Return the options of a transfer; ``ssh`` is a command line to use for ssh, or None."""
    return TransferOptions(ssh=ssh_words(ssh), streams=streams, rate=rate, reporter=reporter)


def way(here: Location, there: Location) -> str:
    """Return the word for how bytes go between two locations."""
    kinds = (here.kind, there.kind)
    if kinds == ("ssh", "ssh"):
        return "relay"
    return next((kind for kind in ("oci", "ssh", "http", "archive") if kind in kinds), "dir")


def _streams(here: Location, there: Location, options: TransferOptions) -> int:
    """Return how many blobs are under way at once: two a stream where an answer takes its time."""
    return options.streams * (2 if "ssh" in (here.kind, there.kind) else 1)


@contextlib.contextmanager
def _destination(there: Location, dry_run: bool, options: TransferOptions) -> Iterator[Store]:
    store = open_destination(there, dry_run=dry_run, options=options)
    with opened(store):
        try:
            yield store
        finally:
            if isinstance(store, (DirectoryStore, FarStore)):
                store.unmake()  # a refusal before the first blob leaves no store; later ones are for resuming


def _through_pipe(
    here: Location,
    there: Location,
    target: str | None,
    pipes: Pipes,
    judge: Callable[[BundleRef], Descriptor],
    options: TransferOptions,
) -> tuple[CopyResult, ...]:
    if there.kind == "pipe":
        with opened(open_location(here, options=options)) as store:
            tags = [bundle.tag for bundle in choose_bundles(store, target)]
            return send_bundles(store, tags, pipes.destination, judge=judge, reporter=options.reporter)

    def wanted(stated: Descriptor) -> bool:
        names = {stated.tag, stated.content.target.name, *map(str, stated.content.target.gpus)}
        return target is None or target in names

    with _destination(there, dry_run=False, options=options) as store:
        results = receive_bundles(pipes.source, store, judge=judge, wanted=wanted, reporter=options.reporter)
    if not results:
        raise UserInputError("E-NO-BUNDLE", target or "-", expected="a bundle of the archive", found="none")
    return results


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
