"""``lock``: one target of a manifest becomes a ``Lock``, or the reasons why it cannot.

Order: what is asked, the indexes (a dead one is known before the solver starts), versions and wheels
(``search``), overlays, paths claimed twice, groups. Same manifest, same indexes, same tool: same bytes.
Nothing is written but the cache; ``write_lock`` writes the file, by rename.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

from envbundle import __version__
from envbundle.errors import HostError, UserInputError, VerdictError
from envbundle.host.fetch import Fetcher, HttpFetcher, path_of_file_url
from envbundle.host.files import atomic_write, read_bounded
from envbundle.host.folder import FileSource, Folder
from envbundle.host.run import Runner, run
from envbundle.inspection.cuda import RULES_VERSION
from envbundle.progress import SILENT, Reporter
from envbundle.spec.finding import Finding, errors_in, findings_of
from envbundle.spec.lock import Lock, LockedPackage, LockedWheel
from envbundle.spec.lock_text import MAX_LOCK, lock_filename, render_lock
from envbundle.spec.manifest_document import manifest_digest

from .gather import Gatherer
from .judge import Request, judge_distribution, source_gpus
from .listing import Listing, absolute_indexes, absolute_links
from .overlays import Base, read_overlay
from .ownership import claims_of, judge_groups, judge_ownership
from .requirements import Asked, AskedFor, read_asked
from .scan import Scanner
from .search import Chosen, Found, Search
from .solver import Question, Solver, UvSolver, find_uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from envbundle.spec.lock import Contested, LockedOverlay
    from envbundle.spec.manifest import Manifest, PackagePolicy, Resolve
    from envbundle.spec.target import Target

    from .contents import WheelScan
    from .judge import DistributionJudgement

DEFAULT_INDEX = "https://pypi.org/simple"
Status = Literal["written", "unchanged", "stale", "refused"]
_GLIBC = re.compile(r"GLIBC_2\.([0-9]{1,3})(?:\.[0-9]+)?")
_CUDART = re.compile(r"libcudart\.so\.([0-9]+)")
_COMPILERS = re.compile(r"(nvcc|ptxas(?:-[a-z]+)?|libnvrtc\.so[0-9.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """Everything outside the manifest that takes part.

    ``folder`` is the manifest's; ``cache`` envbundle's own cache folder (made if need be). ``previous`` is
    the present lock of the target: its versions stay where they may, unless ``upgrade`` (all) or
    ``upgrade_packages`` (these, whose overlays may also find a moved base). ``default_index`` is asked
    where the manifest names no default one. ``solver`` is None for uv, as found by ``find_uv``.
    """

    folder: Path
    cache: Path
    fetcher: Fetcher = field(default_factory=HttpFetcher)
    runner: Runner = run
    solver: Solver | None = None
    offline: bool = False
    previous: Lock | None = None
    upgrade: bool = False
    upgrade_packages: tuple[str, ...] = ()
    default_index: str = DEFAULT_INDEX
    tool: str = f"envbundle {__version__}"

    def overlay_source(self, path: str) -> FileSource:
        """Return the reader of an overlay's folder, which must be a real one below the manifest's."""
        place = self.folder / path
        if not place.resolve().is_relative_to(self.folder.resolve()):
            raise UserInputError(
                "E-OVERLAY-LINK", path, expected="a folder beside the manifest", found=str(place.resolve())
            )
        return Folder(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOutcome:
    """How locking one target ended. ``lock`` is None exactly where ``status`` is ``refused``.

    ``status`` compares with the previous lock: ``unchanged``, or ``stale`` until ``write_lock`` wrote it.
    """

    target: str
    lock: Lock | None
    findings: tuple[Finding, ...]
    rounds: int
    status: Status

    @property
    def packages(self) -> int:
        """The number of locked distributions."""
        return len(self.lock.packages) if self.lock is not None else 0


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
        target=made.target.name, lock=made, findings=findings, rounds=work.rounds, status=status
    )


def write_lock(outcome: LockOutcome, path: Path, *, check: bool = False) -> LockOutcome:
    """Write the outcome's lock to ``path`` by rename and return the outcome as it then stands.

    A refused outcome writes nothing. With ``check`` nothing is ever written and a difference is ``stale``.
    Raises ``HostError``.
    """
    if outcome.lock is None:
        return outcome
    text = render_lock(outcome.lock).encode("utf-8")
    try:
        present: bytes | None = read_bounded(path, MAX_LOCK)
    except HostError as fault:
        if fault.code not in ("E-NOT-FOUND", "E-SIZE"):
            raise
        present = None
    if present == text:
        return replace(outcome, status="unchanged")
    if check:
        stale = Finding(
            code="E-LOCK-STALE",
            severity="error",
            subject=path.name,
            expected="the lock of the present manifest",
            found="no lock" if present is None else "another lock",
            hint="run `envbundle lock`",
        )
        return replace(outcome, status="stale", findings=(*outcome.findings, stale))
    atomic_write(path, text)
    return replace(outcome, status="written")


def lock_path(folder: Path, target: str) -> Path:
    """Return where the lock of a target stands beside its manifest."""
    return folder / lock_filename(target)


class _Locking:
    """One target being locked."""

    def __init__(
        self, manifest: Manifest, target_name: str, context: LockContext, reporter: Reporter
    ) -> None:
        self.manifest, self.context, self.reporter = manifest, context, reporter
        spec = manifest.find_target(target_name)
        self.target: Target = spec.target
        self.resolve: Resolve = manifest.resolve_for(spec.target.name)
        self.findings: tuple[Finding, ...] = ()
        self.rounds = 0

    def refused(self, findings: Iterable[Finding]) -> LockOutcome:
        """Return the outcome of a refusal."""
        return LockOutcome(
            target=self.target.name,
            lock=None,
            findings=tuple(dict.fromkeys(findings)),
            rounds=self.rounds,
            status="refused",
        )

    def make(self) -> tuple[Lock | None, tuple[Finding, ...]]:
        """Return the lock (None: refused) and all findings."""
        asked = read_asked(self.resolve, self.context.folder, self.target)
        digest = manifest_digest(self.manifest, self.target.name, asked.files)
        asked = self._with_bases(asked)
        listing = self._listing()
        found, solver_name = self._search(asked, listing)
        self.rounds, self.findings = found.rounds, found.findings
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
            requires=self._requires(found.chosen),
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

    def _listing(self) -> Listing:
        folder = self.context.folder
        return Listing(
            fetcher=self.context.fetcher,
            indexes=absolute_indexes(self.resolve.indexes, folder),
            default_index=self.context.default_index,
            find_links=absolute_links(self.resolve.find_links, folder),
            sources=dict(self.resolve.sources),
            no_index=self.resolve.no_index,
        )

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
            sources=self.resolve.sources,
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
        contested, findings = judge_ownership(claims_of(scans, overlays, python), policies, python)
        packages = {name: self._package(one) for name, one in chosen.items()}
        groups = judge_groups(self.manifest.groups, packages, _torch_cuda(scans.get("torch")))
        compilers = self._compilers(scans.values())
        jit = [
            finding
            for name, one in chosen.items()
            if policies[name].coverage == "runtime-jit"
            for finding in self._judge(one.scan, one.artifact.filename, compilers).findings
            if finding.severity == "error"
        ]
        return contested, (*findings, *groups, *jit)

    def _compilers(self, scans: Iterable[WheelScan]) -> tuple[str, ...]:
        """Return the GPU compilers that the target will have: in locked files, or demanded of the host."""
        found = {
            member.member
            for scan in scans
            for member in scan.members
            if _COMPILERS.fullmatch(member.member.rpartition("/")[2])
        }
        for invariant in self.manifest.invariants:
            values = dict(invariant.fields)
            name = values.get("tool", values.get("name"))
            if invariant.kind == "tool" and isinstance(name, str) and _COMPILERS.fullmatch(name):
                found.add(name)
        return tuple(sorted(found))

    # --- writing down

    def _package(self, one: Chosen) -> LockedPackage:
        url, path = self._place(one.url)
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
        )

    def _place(self, url: str) -> tuple[str | None, str | None]:
        """Return (url, path): a path where the file lies beside the lock, else a URL without credentials."""
        if urlsplit(url).scheme != "file":
            return _without_credentials(url), None
        path, folder = path_of_file_url(url), self.context.folder.resolve()
        if path.is_relative_to(folder):
            return None, path.relative_to(folder).as_posix()
        return path.as_uri(), None

    def _requires(self, chosen: Sequence[Chosen]) -> dict[str, str]:
        """Return what the locked files ask of a host, by content."""
        requires: dict[str, str] = {}
        glibc = max((minor for one in chosen for minor in _glibc_minors(one.scan)), default=None)
        if glibc is not None:
            requires["glibc"] = f"2.{glibc}"
        isas = [one.judgement.ptx_isa for one in chosen if one.judgement.ptx_isa is not None]
        if isas:
            major, minor = max(isas)
            requires["ptx-isa"] = f"{major}.{minor}"
        if self.target.driver is not None:
            requires["driver"] = self.target.driver
        return requires


def _glibc_minors(scan: WheelScan) -> Iterable[int]:
    for file in scan.files:
        if file.needs is None:
            continue
        for _, versions in file.needs.versions:
            for version in versions:
                match = _GLIBC.fullmatch(version)
                if match is not None:
                    yield int(match[1])


def _torch_cuda(scan: WheelScan | None) -> str | None:
    """Return the CUDA major that torch's libraries ask for, None where they ask for none or several."""
    sonames = [s for file in scan.files if file.needs for s in file.needs.sonames] if scan is not None else []
    majors = {match[1] for soname in sonames if (match := _CUDART.fullmatch(soname))}
    return majors.pop() if len(majors) == 1 else None


def _without_credentials(url: str) -> str:
    """Return a URL without user, password and fragment; a query may be part of its name and stays."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
