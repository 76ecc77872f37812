"""From what is asked to wheels that serve the target: solve, look at the bytes, refuse, solve again.

* An artifact that cannot serve becomes the constraint ``name!=version`` and the solver is asked again; of one
  distribution at most ``max_tries`` versions are fetched and refused.
* An exact pin, a direct reference and a version fixed by a hash are never moved: they refuse.
* With ``complete`` no solver is asked: every pin is looked up, and the wheel chosen by the target's tags.
* A refusal names every version that was tried and what it lacked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.host.fetch import public_url
from envbundle.spec.finding import Finding, errors_in

from .requirements import exact_pins
from .solver import Candidate, CandidateWheel, NoSolution, filename_of
from .wheel_choice import choose, name_and_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from envbundle.progress import Reporter
    from envbundle.spec.target import Target

    from .contents import WheelScan
    from .gather import Artifact, Gatherer
    from .judge import DistributionJudgement
    from .listing import Listing, Offer
    from .requirements import Asked, AskedFor
    from .scan import Scanner
    from .solver import Question, Solver

    Judge = Callable[[WheelScan, str], DistributionJudgement]

_SHOWN_ALTERNATIVES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One distribution as chosen: its wheel's URL as the index said it, its bytes, scan and judgement."""

    candidate: Candidate
    url: str
    artifact: Artifact
    scan: WheelScan
    judgement: DistributionJudgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of a search. ``chosen`` is empty where it was refused; ``rounds`` counts the solver's turns."""

    chosen: tuple[Chosen, ...]
    findings: tuple[Finding, ...]
    rounds: int


@dataclass(slots=True, kw_only=True)
class Search:
    """One search for one target."""

    target: Target
    asked: AskedFor
    listing: Listing
    gatherer: Gatherer
    scanner: Scanner
    judge: Judge
    reporter: Reporter
    max_tries: int = 5
    _tried: dict[str, list[Chosen]] = field(default_factory=dict, init=False)
    _looked: dict[tuple[str, str], Chosen] = field(default_factory=dict, init=False)

    def solve(self, question: Question, solver: Solver) -> Found:
        """Search with the solver. Raises ``TransferError``, ``IntegrityError``, ``HostError``."""
        pins = exact_pins((*self.asked.requirements, *self.asked.constraints))
        excluded: list[str] = []
        rounds = 0
        while True:
            rounds += 1
            self.reporter.note(f"{self.target.name}: round {rounds}, asking {solver.name}")
            answer = solver.solve(replace(question, constraints=(*question.constraints, *excluded)))
            if isinstance(answer, NoSolution):
                return Found(chosen=(), findings=self._no_solution(answer), rounds=rounds)
            moved = self._send_to_sources(question, answer.candidates)
            if moved is not None:
                question = moved
                continue
            chosen, findings = self._look(answer.candidates)
            unfit = [one for one in chosen if not one.judgement.fits]
            if errors_in(findings):
                return Found(chosen=(), findings=(*findings, *self._gaps(unfit, pins)), rounds=rounds)
            if not unfit:
                notes = (
                    *self._passed_over(),
                    *self._local_versions(chosen, pins),
                    *self._yanked(chosen, pins),
                )
                return Found(chosen=tuple(chosen), findings=(*findings, *notes), rounds=rounds)
            fixed = [one for one in unfit if one.candidate.name in pins or one.candidate.direct]
            for one in unfit:
                self._tried.setdefault(one.candidate.name, []).append(one)
            spent = [name for name, tried in self._tried.items() if len(tried) >= self.max_tries]
            if fixed or spent:
                findings = (*self._gaps(unfit, pins), *self._spent(spent, pins))
                return Found(chosen=(), findings=findings, rounds=rounds)
            excluded += [f"{one.candidate.name}!={one.candidate.version}" for one in unfit]

    def complete(self) -> Found:
        """Take every pin as it is: no versions are chosen, no dependencies followed."""
        asked = self.asked.requirements
        loose = [one for one in asked if one.pin is None and one.url is None]
        if loose:
            raise UserInputError.of(
                Finding(
                    code="E-NOT-PINNED",
                    severity="error",
                    subject=one.origin,
                    expected=f"{one.name}==VERSION, since resolve.complete = true",
                    found=one.text,
                )
                for one in loose
            )
        self.listing.prefetch(one.name for one in asked if one.url is None)
        looked_up = [self._pinned(one) for one in {one.name: one for one in asked}.values()]
        candidates = [one for one in looked_up if isinstance(one, Candidate)]
        findings = [one for one in looked_up if isinstance(one, Finding)]
        pins = exact_pins(asked)
        chosen, more = self._look(sorted(candidates, key=lambda each: each.name))
        findings += more
        unfit = [one for one in chosen if not one.judgement.fits]
        if errors_in(findings) or unfit:
            return Found(chosen=(), findings=(*findings, *self._gaps(unfit, pins)), rounds=0)
        notes = (*self._local_versions(chosen, pins), *self._yanked(chosen, pins))
        return Found(chosen=tuple(chosen), findings=(*findings, *notes), rounds=0)

    # --- looking at bytes

    def _look(self, candidates: Iterable[Candidate]) -> tuple[list[Chosen], tuple[Finding, ...]]:
        """Fetch, scan and judge each candidate; findings are about those without a wheel for the target."""
        chosen, findings = [], []
        hashes = {one.name: one.hashes for one in self.asked.requirements if one.hashes}
        for candidate in candidates:
            key = (candidate.name, candidate.version)
            if key not in self._looked or candidate.direct:
                allowed = hashes.get(candidate.name, ())
                wheels = [
                    w for w in candidate.wheels if not allowed or w.sha256 is None or w.sha256 in allowed
                ]
                wheel = choose(wheels, self.target)
                if wheel is None:
                    findings.append(
                        no_wheel(candidate.name, candidate.version, candidate.wheels, self.target)
                    )
                    continue
                self._looked[key] = self._open(candidate, wheel)
            chosen.append(self._looked[key])
        return chosen, tuple(findings)

    def _open(self, candidate: Candidate, wheel: CandidateWheel) -> Chosen:
        self.reporter.note(f"{self.target.name}: looking at {wheel.filename}")
        artifact = self.gatherer.gather(
            filename=wheel.filename, url=wheel.url, sha256=wheel.sha256, size=wheel.size
        )
        scan = self.scanner.scan(artifact)
        named = replace(candidate, version=candidate.version or scan.version)
        return Chosen(
            candidate=named,
            url=wheel.url,
            artifact=artifact,
            scan=scan,
            judgement=self.judge(scan, wheel.filename),
        )

    # --- pins

    def _pinned(self, one: Asked) -> Candidate | Finding:
        """Return the candidate of an exact pin or direct reference, or why there is none."""
        if one.url is not None:
            filename = filename_of(one.url)
            wheel = CandidateWheel(filename=filename, url=one.url, sha256=next(iter(one.hashes), None))
            parsed = name_and_version(filename)
            if parsed is None or parsed[0] != one.name:
                return _refusal(
                    "E-NO-WHEEL",
                    one.origin,
                    expected=f"a wheel of {one.name}",
                    found=filename or one.url[:120],
                )
            return Candidate(name=one.name, version=str(parsed[1]), wheels=(wheel,), direct=True)
        offers = self.listing.offers(one.name)
        matching = [offer for offer in offers if _matches_pin(offer.version, one.pin or "")]
        exact = [offer for offer in matching if str(offer.version) == _canonical(one.pin or "")]
        taken = exact or matching
        versions = sorted({offer.version for offer in taken}, reverse=True)
        if not taken:
            return _refusal(
                "E-NO-WHEEL",
                f"{one.name}=={one.pin}",
                expected="a wheel of that version",
                found=_versions_text(offers, self.target),
                hint=f"asked by {one.origin}; looked in {self._places(one.name)}",
            )
        if len(versions) > 1:
            return _refusal(
                "E-LOCAL-VERSION",
                f"{one.name}=={one.pin}",
                expected="one build of that version",
                found=", ".join(map(str, versions)),
                hint=f"pin one of them, as in {one.name}=={versions[0]}",
            )
        first = taken[0].index
        return Candidate(
            name=one.name,
            version=str(versions[0]),
            wheels=tuple(_as_wheel(offer) for offer in taken if offer.index == first or offer.index is None),
            index=first,
        )

    def _places(self, name: str) -> str:
        places = [*self.listing.find_links, *map(public_url, self.listing.index_urls(name))]
        return ", ".join(places) or "no index and no find-links folder"

    def _send_to_sources(self, question: Question, candidates: Sequence[Candidate]) -> Question | None:
        """Return the question that also sends indirect requirements to their index, if one went elsewhere.

        uv takes an index for direct requirements only, so such a distribution is asked for by name.
        """
        named = dict(question.sources)
        direct = {one.name for one in self.asked.requirements}
        asked_by_name = {line for line in question.requirements if line in named}
        urls = {index.name: index.url for index in question.indexes}
        more = []
        for candidate in candidates:
            wanted = urls.get(named.get(candidate.name, ""))
            if wanted is None or candidate.name in direct or candidate.name in asked_by_name:
                continue
            if candidate.index is None or candidate.index.rstrip("/") != public_url(wanted).rstrip("/"):
                more.append(candidate.name)
        return replace(question, requirements=(*question.requirements, *more)) if more else None

    # --- telling

    def _gaps(self, unfit: Sequence[Chosen], pins: dict[str, Asked]) -> tuple[Finding, ...]:
        findings: list[Finding] = [finding for one in unfit for finding in one.judgement.findings]
        for one in unfit:
            name = one.candidate.name
            pin = pins.get(name)
            if pin is None and not one.candidate.direct:
                continue
            findings.append(
                Finding(
                    code="N-PINNED",
                    severity="note",
                    subject=f"{name} {one.candidate.version}",
                    expected="a pin that may be moved",
                    found=f"asked exactly by {pin.origin if pin else 'a direct reference'}",
                    hint=self._alternatives(name, one.candidate.version),
                )
            )
        earlier = [one for tried in self._tried.values() for one in tried if one not in unfit]
        findings += [finding for one in earlier for finding in errors_in(one.judgement.findings)]
        return tuple(dict.fromkeys(findings))

    def _spent(self, spent: Sequence[str], pins: dict[str, Asked]) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                code="E-MAX-TRIES",
                severity="error",
                subject=name,
                expected=f"a version that serves {self.target.name} within max-tries = {self.max_tries}",
                found="refused: " + ", ".join(one.candidate.version for one in self._tried[name]),
                hint="raise [resolve] max-tries, or ask for other versions or another index",
            )
            for name in spent
            if name not in pins
        )

    def _passed_over(self) -> tuple[Finding, ...]:
        """Tell, as notes, of the versions that were refused on the way to one that serves."""
        return tuple(
            Finding(
                code="N-PASSED-OVER",
                severity="note",
                subject=one.artifact.filename,
                expected=finding.expected,
                found=f"{finding.code}: {finding.found}",
                hint=finding.subject,
            )
            for tried in self._tried.values()
            for one in tried
            for finding in errors_in(one.judgement.findings)[:3]
        )

    def _alternatives(self, name: str, version: str) -> str:
        """Say which other versions have a wheel for the target; nobody has looked into them yet."""
        try:
            offers = self.listing.offers(name)
        except EnvbundleError:
            return "no index could be asked for other versions"
        fitting = sorted(
            {
                offer.version
                for offer in offers
                if choose([offer], self.target) and str(offer.version) != version
            },
            reverse=True,
        )
        if not fitting:
            return (
                f"no other version on offer has a wheel for {self.target.name}: name another index, or build"
            )
        shown = ", ".join(map(str, fitting[:_SHOWN_ALTERNATIVES]))
        more = f" and {len(fitting) - _SHOWN_ALTERNATIVES} more" if len(fitting) > _SHOWN_ALTERNATIVES else ""
        return f"other versions with a wheel for {self.target.name}, not looked into: {shown}{more}"

    def _local_versions(self, chosen: Iterable[Chosen], pins: dict[str, Asked]) -> tuple[Finding, ...]:
        """Warn where a pin without a local part was served by a build that has one."""
        found = []
        for one in chosen:
            pin = pins.get(one.candidate.name)
            local = one.candidate.version.partition("+")[2]
            if pin is None or pin.pin is None or not local or "+" in pin.pin:
                continue
            found.append(
                Finding(
                    code="W-LOCAL-VERSION",
                    severity="warning",
                    subject=f"{pin.name}=={pin.pin}",
                    expected=f"{pin.name} {pin.pin}, no build named",
                    found=one.candidate.version,
                    hint=f"pin {pin.name}=={one.candidate.version}, or name its index in [resolve] from",
                )
            )
        return tuple(found)

    def _yanked(self, chosen: Iterable[Chosen], pins: dict[str, Asked]) -> tuple[Finding, ...]:
        """Warn of chosen files that their index calls yanked; only pins can have reached them."""
        pinned = [one for one in chosen if one.candidate.name in pins and not one.candidate.direct]
        listed = [one for one in pinned if one.candidate.index is not None]
        if not self.gatherer.offline:
            self.listing.prefetch(one.candidate.name for one in listed)
        found = []
        for one in listed:
            if self.gatherer.offline and not self.listing.knows(one.candidate.name):
                continue
            offers = [
                o for o in self.listing.offers(one.candidate.name) if o.filename == one.artifact.filename
            ]
            reasons = {o.file.yanked for o in offers if o.file.yanked is not None}
            found += [
                Finding(
                    code="W-YANKED",
                    severity="warning",
                    subject=one.artifact.filename,
                    expected="a file that its maintainers stand by",
                    found=f"yanked: {reason or 'no reason given'}",
                    hint="taken because it is pinned exactly; plan to move on",
                )
                for reason in sorted(reasons)
            ]
        return tuple(found)

    def _no_solution(self, answer: NoSolution) -> tuple[Finding, ...]:
        """Tell why nothing is left: what was refused, else what the indexes offer, and the solver's words."""
        findings = [
            f for tried in self._tried.values() for one in tried for f in errors_in(one.judgement.findings)
        ]
        if not findings:
            for one in (*self.asked.requirements, *self.asked.constraints):
                findings += self._unservable(one)
        findings.append(
            Finding(
                code="E-NO-SOLUTION",
                severity="error",
                subject=self.target.name,
                expected="versions that hold together" + (" without the refused ones" if self._tried else ""),
                found=answer.prose[:4000],
            )
        )
        return tuple(dict.fromkeys(findings))

    def _unservable(self, one: Asked) -> list[Finding]:
        """Return why no file on offer can serve a requirement, if none can."""
        try:
            offers = self.listing.offers(one.name) if one.url is None else ()
        except EnvbundleError:
            return []
        matching = [offer for offer in offers if one.specifier.contains(offer.version, prereleases=True)]
        if not matching:
            return []
        if not any(choose([offer], self.target) for offer in matching):
            version = max(offer.version for offer in matching)
            same = [offer for offer in matching if offer.version == version]
            return [no_wheel(one.name, str(version), same, self.target)]
        if all(offer.file.yanked is not None for offer in matching):
            reason = next((offer.file.yanked for offer in matching if offer.file.yanked), "no reason given")
            return [
                Finding(
                    code="E-YANKED",
                    severity="error",
                    subject=one.text,
                    expected="a version that is not yanked",
                    found=f"only yanked ones: {reason}",
                    hint=f"pin {one.name}=={matching[-1].version} to take it all the same",
                )
            ]
        return []


def no_wheel(name: str, version: str, wheels: Iterable[CandidateWheel | Offer], target: Target) -> Finding:
    """Return E-NO-WHEEL for a version none of whose files fits the target."""
    names = sorted(wheel.filename for wheel in wheels)
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return Finding(
        code="E-NO-WHEEL",
        severity="error",
        subject=f"{name} {version}",
        expected=f"a wheel for Python {target.python} on {target.platform}",
        found=(", ".join(names[:6]) + more) or "no wheel",
        hint=f"take another version or index, or [package.{name}.build]",
    )


def _as_wheel(offer: Offer) -> CandidateWheel:
    return CandidateWheel(
        filename=offer.filename, url=offer.file.url, sha256=offer.file.sha256, size=offer.file.size
    )


def _matches_pin(version: Version, pin: str) -> bool:
    try:
        return SpecifierSet(f"=={pin}").contains(version, prereleases=True)
    except ValueError:
        return str(version) == pin


def _canonical(pin: str) -> str:
    try:
        return str(Version(pin))
    except InvalidVersion:
        return pin


def _versions_text(offers: Iterable[Offer], target: Target) -> str:
    versions = sorted({offer.version for offer in offers if choose([offer], target)}, reverse=True)
    if not versions:
        return "no wheel of it for the target"
    return "versions " + ", ".join(map(str, versions[:_SHOWN_ALTERNATIVES]))


def _refusal(code: str, subject: str, *, expected: str, found: str, hint: str = "") -> Finding:
    return Finding(code=code, severity="error", subject=subject, expected=expected, found=found, hint=hint)
