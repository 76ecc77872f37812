"""``lock``: one target of a manifest becomes a ``Lock``, or the reasons why it cannot.

Order: what is asked, the indexes (a dead one is known before the solver starts), versions and wheels
(``search``), overlays, paths claimed twice, groups. Same manifest, same indexes, same tool: same bytes.
Nothing is written but the cache; ``write_lock`` writes the file, by rename.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from envbundle.errors import UserInputError, VerdictError
from envbundle.host.file_urls import path_of_file_url
from envbundle.inspection.cuda import RULES_VERSION
from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding, errors_in, findings_of
from envbundle.spec.lock import Lock, LockedPackage, LockedWheel
from envbundle.spec.manifest_document import manifest_digest

from .build import Builder, Built, build_options, with_built
from .capture.origin import read_origin
from .gather import Gatherer
from .host_needs import compilers, host_needs, torch_cuda
from .jit import default_groups
from .judge import Request, judge_distribution, source_gpus
from .linkage import judge_set
from .listing import Listing, absolute_indexes, absolute_links
from .lock_outcome import LockContext, LockOutcome, Status, lock_path, write_lock
from .overlays import Base, read_overlay
from .ownership import claims_of, judge_groups, judge_ownership
from .requirements import Asked, AskedFor, read_asked
from .scan import Scanner
from .search import Found, Search
from .solver import Question, UvSolver, find_uv, uv_default_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.spec.descriptor import Exemption
    from envbundle.spec.lock import Contested, LockedOverlay
    from envbundle.spec.manifest import Manifest, PackagePolicy, Resolve
    from envbundle.spec.target import Target

    from .chosen import Chosen
    from .contents import WheelScan
    from .judge import DistributionJudgement

__all__ = ["LockContext", "LockOutcome", "lock", "lock_path", "write_lock"]


def lock(
    manifest: Manifest, target_name: str, *, context: LockContext, reporter: Reporter = SILENT
) -> LockOutcome:
    """Lock one target.

    A verdict that refuses comes back as an outcome with its findings; the rest raises: ``UserInputError``
    (what the manifest asks is wrong), ``IntegrityError`` (bytes are not what was promised),
    ``TransferError`` (an index or a download failed), ``HostError``.
    """
    work = _Locking(manifest, target_name, context, reporter)
    try:
        made, findings = work.make()
    except VerdictError as refusal:
        return work.refused((*work.findings, *findings_of(refusal)))
    if made is None:
        return work.refused(findings)
    status: Status = "unchanged" if made == context.previous else "stale"
    return LockOutcome(
        target=made.target.name,
        lock=made,
        findings=findings,
        rounds=work.rounds,
        status=status,
        built=tuple(built.path for built in work.built.values()),
    )


class _Locking:
    """One target being locked."""

    def __init__(
        self, manifest: Manifest, target_name: str, context: LockContext, reporter: Reporter
    ) -> None:
        self.manifest, self.context, self.reporter = manifest, context, reporter
        spec = manifest.spec(target_name)
        self.target: Target = spec.target
        self.resolve: Resolve = manifest.resolve_for(spec.target.name)
        self.findings: tuple[Finding, ...] = ()
        self.gaps: tuple[Exemption, ...] = ()
        self.rounds = 0
        self.requires: dict[str, str] = {}
        self.built: dict[str, Built] = {}

    def refused(self, findings: Iterable[Finding]) -> LockOutcome:
        """Return the outcome of a refusal."""
        return LockOutcome(
            target=self.target.name,
            lock=None,
            findings=tuple(dict.fromkeys(findings)),
            rounds=self.rounds,
            status="refused",
            gaps=self.gaps,
        )

    def make(self) -> tuple[Lock | None, tuple[Finding, ...]]:
        """Return the lock (None: refused) and all findings."""
        asked = read_asked(self.resolve, self.context.folder, self.target)
        digest = manifest_digest(self.manifest, self.target.name, asked.files)
        listing = self._listing()
        asked = self._with_builds(self._with_bases(asked), listing)
        found, solver_name = self._search(asked, listing)
        self.rounds, self.findings, self.gaps = found.rounds, found.findings, found.gaps
        if not found.chosen:
            if errors_in(found.findings):
                return None, found.findings
            raise UserInputError(
                "E-REQUIREMENT",
                "resolve",
                expected="something to install",
                found="no requirement for this target",
            )
        chosen = {one.candidate.name: one for one in found.chosen}
        overlays, notes = self._overlays(chosen)
        self.findings += notes
        contested, verdicts = self._whole_set(chosen, overlays)
        self.findings = tuple(dict.fromkeys((*self.findings, *verdicts)))
        if errors_in(self.findings):
            return None, self.findings
        judged = [one.judgement for one in found.chosen]
        made = Lock(
            target=self.target,
            manifest=digest,
            tool=self.context.tool,
            rules=RULES_VERSION,
            solver=solver_name,
            packages=tuple(self._package(one) for one in found.chosen),
            overlays=overlays,
            coverage=tuple(j.evidence for j in judged if j.evidence is not None),
            contested=contested,
            exemptions=tuple(item for j in judged for item in j.exemptions),
            builds=tuple(self.built[name].record for name in sorted(self.built) if name in chosen),
            requires={**host_needs(found.chosen, self.target), **self.requires},
        )
        return made, self.findings

    # --- versions and wheels

    def _with_bases(self, asked: AskedFor) -> AskedFor:
        """Add the versions that overlays were made for to the constraints."""
        bases = [
            Asked(
                name=o.distribution,
                text=f"{o.distribution}=={o.base}",
                origin=f"overlay {o.path}",
                pin=o.base,
            )
            for o in self.manifest.overlays
            if o.base is not None
        ]
        return replace(asked, constraints=(*asked.constraints, *bases))

    def _with_builds(self, asked: AskedFor, listing: Listing) -> AskedFor:
        """Build what the manifest says is to be built, and ask for these wheels by their bytes."""
        wanted = {
            name: policy.build
            for name, policy in self.manifest.policies(self.target.name).items()
            if policy.build is not None
        }
        if not wanted:
            return asked
        context = self.context
        builder = Builder(
            folder=context.folder,
            cache=context.cache,
            runner=context.runner,
            uv=find_uv(),
            target=self.target,
            options=build_options(listing, offline=context.offline),
            reporter=self.reporter,
        )
        self.built = {name: builder.build(name, build) for name, build in wanted.items()}
        return with_built(asked, self.built)

    def _listing(self) -> Listing:
        folder = self.context.folder
        return Listing(
            fetcher=self.context.fetcher,
            indexes=absolute_indexes(self.resolve.indexes, folder),
            default_index=self._default_index(),
            find_links=absolute_links(self.resolve.find_links, folder),
            sources=dict(self.resolve.sources),
            no_index=self.resolve.no_index,
        )

    def _default_index(self) -> str | None:
        """Return the index to ask where the manifest names no default one; None where none is asked."""
        resolve, context = self.resolve, self.context
        if resolve.no_index or any(index.default for index in resolve.indexes):
            return None
        return context.default_index or uv_default_index(context.runner, find_uv())

    def _search(self, asked: AskedFor, listing: Listing) -> tuple[Found, str]:
        context = self.context
        gatherer = Gatherer(
            cache=context.cache,
            fetcher=context.fetcher,
            folders=tuple(Path(place) for place in listing.find_links if not urlsplit(place).scheme),
            offline=context.offline,
            reporter=self.reporter,
        )
        search = Search(
            target=self.target,
            asked=asked,
            listing=listing,
            gatherer=gatherer,
            scanner=Scanner(cache=context.cache, reporter=self.reporter),
            judge=self._judge,
            reporter=self.reporter,
            max_tries=self.resolve.max_tries,
            previous=context.previous,
        )
        if self.resolve.complete:
            return search.complete(), "none (complete)"
        solver = context.solver or UvSolver(runner=context.runner, uv=find_uv(), cache=context.cache / "uv")
        if not context.offline and asked.requirements:
            listing.ask_indexes(asked.requirements[0].name)
        question = Question(
            target=self.target,
            requirements=tuple(one.text for one in asked.requirements),
            constraints=tuple(one.text for one in asked.constraints),
            indexes=listing.indexes,
            default_index=listing.default_index,
            find_links=listing.find_links,
            sources=tuple(item for item in self.resolve.sources if item[0] not in self.built),
            no_index=self.resolve.no_index,
            offline=context.offline,
            preferred=None if context.upgrade else context.previous,
            upgrade=context.upgrade_packages,
        )
        return search.solve(question, solver), solver.name

    def _judge(
        self, scan: WheelScan, wheel: str, compilers: tuple[str, ...] | None = None
    ) -> DistributionJudgement:
        """Judge one distribution; until the whole set is known, compilers are taken to be there."""
        source = self.manifest.source
        return judge_distribution(
            scan,
            Request(
                target=self.target,
                policy=self._policy(scan.name),
                wheel=wheel,
                sources=source_gpus(source.gpus) if source is not None else (),
                compilers=("",) if compilers is None else compilers,
            ),
        )

    def _policy(self, name: str) -> PackagePolicy:
        return self.manifest.policy(self.target.name, name)

    # --- the whole set

    def _overlays(
        self, chosen: Mapping[str, Chosen]
    ) -> tuple[tuple[LockedOverlay, ...], tuple[Finding, ...]]:
        unlocked = [o for o in self.manifest.overlays if o.distribution not in chosen]
        if unlocked:
            raise UserInputError.of(
                Finding(
                    code="E-OVERLAY-UNLOCKED",
                    severity="error",
                    subject=f"overlay {overlay.path}",
                    expected=f"{overlay.distribution} among the locked distributions",
                    found="it is not asked for",
                    hint=f"add {overlay.distribution} to [resolve] requirements",
                )
                for overlay in unlocked
            )
        previous = (
            {o.distribution: o for o in self.context.previous.overlays} if self.context.previous else {}
        )
        locked: list[LockedOverlay] = []
        notes: list[Finding] = []
        refusals: list[Finding] = []
        for overlay in self.manifest.overlays:
            name = overlay.distribution
            one = chosen[name]
            known = None if name in self.context.upgrade_packages else previous.get(name)
            try:
                item, more = read_overlay(
                    self.context.overlay_source(overlay.path),
                    overlay,
                    Base(scan=one.scan, wheel=one.artifact.sha256),
                    python=self.target.python,
                    previous=known,
                )
            except VerdictError as fault:
                refusals += findings_of(fault)
                continue
            locked.append(item)
            notes += more
        if refusals:
            raise VerdictError.of(refusals)
        return tuple(locked), tuple(notes)

    def _whole_set(
        self, chosen: Mapping[str, Chosen], overlays: Sequence[LockedOverlay]
    ) -> tuple[tuple[Contested, ...], tuple[Finding, ...]]:
        scans = {name: one.scan for name, one in chosen.items()}
        policies = {name: self._policy(name) for name in scans}
        python = self.target.python
        claims = claims_of(scans, overlays, python)
        contested, findings = judge_ownership(claims, policies, python)
        linkage = judge_set(scans, self.target, self.manifest, claims=claims, contested=contested)
        self.requires = linkage.requires
        packages = {name: self._package(one) for name, one in chosen.items()}
        named = (*self.manifest.groups, *default_groups(self.manifest.groups))
        groups = judge_groups(named, packages, torch_cuda(scans.get("torch")))
        available = compilers(scans.values(), self.manifest.invariants)
        jit = [
            finding
            for name, one in chosen.items()
            if policies[name].coverage == "runtime-jit"
            for finding in self._judge(one.scan, one.artifact.filename, available).findings
            if finding.severity == "error"
        ]
        return contested, (*findings, *groups, *jit, *linkage.findings)

    # --- writing down

    def _package(self, one: Chosen) -> LockedPackage:
        built = one.candidate.name in self.built
        url, path = (None, f"built/{one.artifact.filename}") if built else self._place(one.url)
        index = one.candidate.index
        return LockedPackage(
            name=one.candidate.name,
            version=one.candidate.version,
            wheel=LockedWheel(
                filename=one.artifact.filename,
                sha256=one.artifact.sha256,
                size=one.artifact.size,
                url=url,
                path=path,
                index=None if index is None else _without_credentials(index),
            ),
            origin="built" if built else read_origin(one.artifact.path),
        )

    def _place(self, url: str) -> tuple[str | None, str | None]:
        """Return (url, path): a path where the file lies beside the lock, else a URL without credentials."""
        if urlsplit(url).scheme != "file":
            return _without_credentials(url), None
        path, folder = path_of_file_url(url), self.context.folder.resolve()
        if path.is_relative_to(folder):
            return None, path.relative_to(folder).as_posix()
        return path.as_uri(), None


def _without_credentials(url: str) -> str:
    """Return a URL without user, password and fragment; a query may be part of its name and stays."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
