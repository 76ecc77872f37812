"""``install.pyz`` beside the bundles of a store, made by ``pack`` for the hosts that they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.bundler.bootstrap import COMMANDS, Part, Served, build_bootstrap, commit_bootstrap
from envbundle.bundler.source import source_part
from envbundle.errors import EnvbundleError
from envbundle.host.fetch import HttpFetcher
from envbundle.host.run import run
from envbundle.resolver.gather import Gatherer
from envbundle.resolver.listing import Listing, absolute_indexes, absolute_links
from envbundle.resolver.parts import find_parts
from envbundle.resolver.solver import find_uv, uv_default_index
from envbundle.spec.finding import Finding
from envbundle.store.bundle import find_bundles

from .bootstrap_trust import BootstrapAnswer
from .stores import stated_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from envbundle.progress import Reporter
    from envbundle.resolver.parts import FoundPart
    from envbundle.spec.target import Target
    from envbundle.store.protocol import Store
    from envbundle.trust.keys import Signer

    from .settings import OpenManifest


def make_bootstrap(
    opened: OpenManifest,
    packed: Iterable[Target],
    *,
    store: Store,
    signers: Sequence[Signer],
    cache: Path,
    offline: bool,
    reporter: Reporter,
) -> BootstrapAnswer:
    """Put an ``install.pyz`` into ``store`` for the hosts of ``packed`` and of what it held before.

    Its wheels come from where the manifest's come from; that none can be had is a warning, not an error: the
    bundles are whole without.
    """
    part = source_part(COMMANDS)
    kinds = {(t.python, t.machine): t for t in (*_held(store), *packed)}
    served, findings = [], []
    for target in kinds.values():
        try:
            found = _parts(opened, target, part.libraries, cache=cache, offline=offline, reporter=reporter)
        except EnvbundleError as fault:
            findings.append(_without(target, fault))
            continue
        parts = tuple(Part(filename=f.filename, data=f.data, origin=f.origin) for f in found)
        served.append(Served(python=target.python, machine=target.machine, glibc=target.glibc, parts=parts))
    if not served:
        return BootstrapAnswer(findings=tuple(findings))
    done = commit_bootstrap(store, build_bootstrap(served, part), signers)
    return BootstrapAnswer(
        sha256=done.digest.hex,
        size=done.size,
        pythons=tuple(sorted(f"{one.python} {one.machine}" for one in served)),
        findings=tuple(findings),
    )


def _held(store: Store) -> list[Target]:
    """Return the targets of the bundles that a store holds."""
    stated = (stated_target(store, bundle) for bundle in find_bundles(store))
    return [target for target in stated if target is not None]


def _parts(
    opened: OpenManifest,
    target: Target,
    libraries: Iterable[str],
    *,
    cache: Path,
    offline: bool,
    reporter: Reporter,
) -> tuple[FoundPart, ...]:
    """Find the wheels for hosts of ``target`` where the manifest finds its own."""
    fetcher = HttpFetcher(offline=offline)
    named = {spec.target.name for spec in opened.manifest.targets}
    resolve = opened.manifest.resolve_for(target.name) if target.name in named else opened.manifest.resolve
    gatherer = Gatherer(cache=cache, fetcher=fetcher, offline=offline, reporter=reporter)

    def listing() -> Listing:
        asks = not resolve.no_index and not offline
        default = asks and not any(index.default for index in resolve.indexes)
        return Listing(
            fetcher=fetcher,
            indexes=absolute_indexes(resolve.indexes, opened.folder),
            default_index=uv_default_index(run, find_uv()) if default else None,
            find_links=absolute_links(resolve.find_links, opened.folder),
            no_index=not asks,
        )

    try:
        return find_parts(libraries, target, cache=cache, gatherer=gatherer, listing=listing)
    finally:
        fetcher.close()


def _without(target: Target, fault: EnvbundleError) -> Finding:
    return Finding(
        code="W-BOOTSTRAP",
        severity="warning",
        subject=f"install.pyz for Python {target.python} on {target.machine}",
        expected=fault.expected or "its wheels",
        found=f"{fault.subject}: {fault.found}" if fault.found else fault.subject,
        hint=fault.hint
        or "hosts of that kind need envbundle installed; --no-bootstrap says that this is meant",
    )
