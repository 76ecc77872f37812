"""``pack``: locked targets become signed bundles in one store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envbundle.bundler.pack import pack as pack_lock
from envbundle.bundler.sign import commit_signed
from envbundle.errors import EnvbundleError, VerdictError
from envbundle.host.files import read_bounded
from envbundle.host.folder import Folder
from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding, findings_of
from envbundle.spec.lock_text import parse_lock
from envbundle.store.gc import take_back
from envbundle.store.layout import DirectoryStore
from envbundle.trust.keys import fingerprint

from .bootstrap import make_bootstrap
from .bootstrap_trust import BootstrapAnswer
from .lock import lock_is_fresh, wheel_opener
from .settings import MAX_DOCUMENT, OpenManifest, choose_targets, open_manifest
from .trust import open_signer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from envbundle.trust.keys import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBundle:
    """What became of one target; ``error`` is set where it was refused, and then nothing else is."""

    id: str = ""
    content_id: str = ""
    tag: str = ""
    layers: int = 0
    layers_reused: int = 0
    chunks: int = 0
    plain_bytes: int = 0
    stored_bytes: int = 0
    new_bytes: int = 0
    signed_by: str | None = None
    findings: tuple[Finding, ...] = ()
    error: EnvbundleError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer of one target."""
        names = (
            "id",
            "content_id",
            "tag",
            "layers",
            "layers_reused",
            "chunks",
            "plain_bytes",
            "stored_bytes",
            "new_bytes",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "signed_by": self.signed_by,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PackAnswer:
    """What became of each target, and of ``install.pyz`` (empty where none was made)."""

    bundles: dict[str, PackedBundle] = field(default_factory=dict)
    bootstrap: BootstrapAnswer = field(default_factory=BootstrapAnswer)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {
            "bundles": {name: bundle.to_dict() for name, bundle in self.bundles.items()},
            "bootstrap": self.bootstrap.to_dict(),
        }


def pack(
    manifest_path: Path,
    *,
    targets: Sequence[str],
    store: Path,
    key: str | None,
    cache: Path,
    passphrase: Callable[[str], bytes],
    agent: str | None = None,
    level: int = 1,
    offline: bool = False,
    bootstrap: bool = True,
    reporter: Reporter = SILENT,
) -> PackAnswer:
    """Pack the targets that ``targets`` names (all without) into ``store``, made where it is not there.

    A refused target leaves nothing in the store, and a store that would hold nothing is not made. ``key``
    signs (None: unsigned), ``cache`` keeps fetched wheels and the packer's memory; ``bootstrap`` puts an
    ``install.pyz`` beside the bundles. Raises for what
    concerns all targets (the manifest, the key, the store); what concerns one is in its answer.
    """
    opened = open_manifest(manifest_path)
    chosen = choose_targets(opened.manifest, targets)
    signers = () if key is None else (open_signer(key, passphrase=passphrase, agent=agent),)
    destination = DirectoryStore(store, create=True)
    bundles: dict[str, PackedBundle] = {}
    for spec in chosen:
        name = spec.target.name
        try:
            with destination.writing():
                bundles[name] = _pack_one(
                    opened,
                    name,
                    destination,
                    signers,
                    cache=cache,
                    level=level,
                    offline=offline,
                    reporter=reporter,
                )
        except EnvbundleError as error:
            bundles[name] = PackedBundle(findings=findings_of(error), error=error)
            take_back(destination, destination.fresh())
    done = [spec.target for spec in chosen if bundles[spec.target.name].error is None]
    beside = BootstrapAnswer()
    if bootstrap and done:
        with destination.writing():
            beside = make_bootstrap(
                opened,
                done,
                store=destination,
                signers=signers,
                cache=cache,
                offline=offline,
                reporter=reporter,
            )
    destination.unmake()
    return PackAnswer(bundles=bundles, bootstrap=beside)


def _pack_one(
    opened: OpenManifest,
    target: str,
    store: DirectoryStore,
    signers: Sequence[Signer],
    *,
    cache: Path,
    level: int,
    offline: bool,
    reporter: Reporter,
) -> PackedBundle:
    path = opened.lock_path(target)
    if not path.exists():
        raise VerdictError(
            "E-LOCK-MISSING", str(path), found="no lock", hint=f"run `envbundle lock --arch {target}`"
        )
    data = read_bounded(path, MAX_DOCUMENT)
    lock = parse_lock(data.decode("utf-8", "replace"), filename=str(path))
    lock_is_fresh(opened, lock, path)
    result = pack_lock(
        lock,
        opened.manifest,
        lock_bytes=data,
        manifest_bytes=opened.text.encode("utf-8"),
        store=store,
        find_wheel=wheel_opener(opened, cache=cache, offline=offline, reporter=reporter),
        overlay_folder=lambda overlay: Folder(opened.folder / overlay.path),
        cache=cache / "layers",
        level=level,
        reporter=reporter,
    )
    done = commit_signed(store, result.descriptor, signers)
    return PackedBundle(
        id=str(done.bundle_id),
        content_id=str(done.content_id),
        tag=done.tag,
        layers=result.layers,
        layers_reused=result.layers_reused,
        chunks=result.chunks,
        plain_bytes=result.plain_bytes,
        stored_bytes=result.stored_bytes,
        new_bytes=result.new_bytes,
        signed_by=fingerprint(signers[0].public_blob) if signers else None,
        findings=result.findings,
    )
