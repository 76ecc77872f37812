"""From what is asked to wheels that serve the target: solve, look at the bytes, refuse, solve again.

* An artifact that cannot serve becomes the constraint ``name!=version`` and the solver is asked again; of one
  distribution at most ``max_tries`` versions are fetched and refused.
* An exact pin, a direct reference and a version fixed by a hash are never moved: they refuse.
* With ``complete`` no solver is asked: every pin is looked up, and the wheel chosen by the target's tags.
* Looked at first is what was asked for by name, then the rest, small wheels first; after a refusal the rest
  waits: the next round may well want other versions of it, and most of it is large (``complete`` looks at
  everything, once).
* A refusal names every version that was tried and what it lacked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envbundle.errors import IntegrityError, UserInputError
from envbundle.host.file_urls import public_url
from envbundle.spec.finding import Finding, errors_in

from .chosen import Chosen
from .damage import look_for_damage
from .refusals import Account, no_wheel, refusal, versions_text
from .solver import Candidate, CandidateWheel, NoSolution, filename_of
from .wheel_choice import choose, name_and_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from envbundle.progress import Reporter
    from envbundle.spec.descriptor import Exemption
    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import Lock
    from envbundle.spec.target import Target

    from .contents import WheelScan
    from .gather import Gatherer
    from .judge import DistributionJudgement
    from .listing import Listing, Offer
    from .requirements import Asked, AskedFor
    from .scan import Scanner
    from .solver import Question, Solver

    Judge = Callable[[WheelScan, str], DistributionJudgement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of a search. ``chosen`` is empty where it was refused; ``rounds`` counts the solver's turns.

    ``gaps`` are those of the refused that a person could accept.
    """

    chosen: tuple[Chosen, ...]
    findings: tuple[Finding, ...]
    rounds: int
    gaps: tuple[Exemption, ...] = ()


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
    previous: Lock | None = None
    _looked: dict[tuple[str, str], Chosen] = field(default_factory=dict, init=False)

    def solve(self, question: Question, solver: Solver) -> Found:
        """Search with the solver. Raises ``TransferError``, ``IntegrityError``, ``HostError``."""
        account = self._account()
        excluded: list[str] = []
        rounds = 0
        while True:
            rounds += 1
            self.reporter.note(f"{self.target.name}: round {rounds}, asking {solver.name}")
            answer = solver.solve(replace(question, constraints=(*question.constraints, *excluded)))
            if isinstance(answer, NoSolution):
                refused = [one for tried in account.tried.values() for one in tried]
                if not refused:
                    asked = self.asked.requirements
                    look_for_damage(asked, self.target, self.listing, self.gatherer, self.scanner)
                findings = account.no_solution(answer)
                return Found(chosen=(), findings=findings, rounds=rounds, gaps=_acceptable(refused))
            moved = self._send_to_sources(question, answer.candidates)
            if moved is not None:
                question = moved
                continue
            chosen, findings = self._look(answer.candidates, hasty=True)
            unfit = [one for one in chosen if not one.judgement.fits]
            if errors_in(findings):
                findings = (*findings, *account.gaps(unfit))
                return Found(chosen=(), findings=findings, rounds=rounds, gaps=_acceptable(unfit))
            if not unfit:
                chosen = self._with_indexes(chosen)
                notes = (*account.passed_over(), *account.local_versions(chosen), *account.yanked(chosen))
                return Found(chosen=tuple(chosen), findings=(*_warnings(chosen), *notes), rounds=rounds)
            fixed = [one for one in unfit if one.candidate.name in account.pins or one.candidate.direct]
            for one in unfit:
                account.tried.setdefault(one.candidate.name, []).append(one)
            spent = [name for name, tried in account.tried.items() if len(tried) >= self.max_tries]
            if fixed or spent:
                findings = (*account.gaps(unfit), *account.spent(spent, self.max_tries))
                return Found(chosen=(), findings=findings, rounds=rounds, gaps=_acceptable(unfit))
            excluded += [f"{one.candidate.name}!={one.candidate.version}" for one in unfit]

    def complete(self) -> Found:
        """Take every pin as it is: no versions are chosen, no dependencies followed.

        Raises ``UserInputError``: E-NOT-PINNED for what leaves a choice, E-REQUIREMENT for two pins of one
        distribution; else as ``solve``.
        """
        asked = self.asked.requirements
        _refuse_loose(asked)
        self.listing.prefetch(one.name for one in asked if one.url is None)
        looked_up = [self._pinned(one) for one in {one.name: one for one in asked}.values()]
        candidates = sorted(
            (one for one in looked_up if isinstance(one, Candidate)), key=lambda one: one.name
        )
        chosen, missing = self._look(candidates)
        findings = (*(one for one in looked_up if isinstance(one, Finding)), *missing)
        unfit = [one for one in chosen if not one.judgement.fits]
        account = self._account()
        if errors_in(findings) or unfit:
            findings = (*findings, *account.gaps(unfit))
            return Found(chosen=(), findings=findings, rounds=0, gaps=_acceptable(unfit))
        notes = (*_warnings(chosen), *account.local_versions(chosen), *account.yanked(chosen))
        return Found(chosen=tuple(chosen), findings=(*findings, *notes), rounds=0)

    def _account(self) -> Account:
        return Account(
            target=self.target, asked=self.asked, listing=self.listing, offline=self.gatherer.offline
        )

    # --- looking at bytes

    def _look(
        self, candidates: Iterable[Candidate], *, hasty: bool = False
    ) -> tuple[list[Chosen], tuple[Finding, ...]]:
        """Fetch, scan and judge each candidate; findings are about those without a wheel for the target.

        With ``hasty`` what was not asked for by name is left out once something is refused.
        """
        found: dict[int, Chosen] = {}
        findings: list[Finding] = []
        asked = {one.name for one in self.asked.requirements}
        wheels = [(number, one, self._wheel_of(one)) for number, one in enumerate(candidates)]
        if hasty:
            wheels.sort(key=lambda row: (row[1].name not in asked, _cost(row[2]), row[0]))
        for number, candidate, wheel in wheels:
            refused = bool(findings) or not all(one.judgement.fits for one in found.values())
            if hasty and refused and candidate.name not in asked:
                break
            key = (candidate.name, candidate.version)
            if wheel is None:
                findings.append(no_wheel(candidate.name, candidate.version, candidate.wheels, self.target))
                continue
            if key not in self._looked or candidate.direct:
                self._looked[key] = self._open(candidate, wheel)
            found[number] = self._looked[key]
        return [found[number] for number in sorted(found)], tuple(findings)

    def _wheel_of(self, candidate: Candidate) -> CandidateWheel | None:
        """Return the wheel of a candidate that serves the target and any hashes asked for."""
        allowed = self._hashes(candidate.name)
        wheels = [w for w in candidate.wheels if not allowed or w.sha256 is None or w.sha256 in allowed]
        return choose(wheels, self.target)

    def _hashes(self, name: str) -> frozenset[Digest]:
        """Return the digests that requirement files allow for a distribution; none means any."""
        return frozenset(
            digest for one in self.asked.requirements if one.name == name for digest in one.hashes
        )

    def _open(self, candidate: Candidate, wheel: CandidateWheel) -> Chosen:
        self.reporter.note(f"{self.target.name}: looking at {wheel.filename}")
        artifact = self.gatherer.gather(
            filename=wheel.filename, url=wheel.url, sha256=wheel.sha256, size=wheel.size
        )
        allowed = self._hashes(candidate.name)
        if allowed and artifact.sha256 not in allowed:  # a folder states no digests: only the bytes do
            raise IntegrityError(
                "E-HASH",
                wheel.filename,
                expected=" or ".join(sorted(map(str, allowed))),
                found=str(artifact.sha256),
                hint="another build of that version: take it out of the find-links folder",
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
                return refusal(
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
            return refusal(
                "E-NO-WHEEL",
                f"{one.name}=={one.pin}",
                expected="a wheel of that version",
                found=versions_text(offers, self.target),
                hint=f"asked by {one.origin}; looked in {self._places(one.name)}",
            )
        if len(versions) > 1:
            return refusal(
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

    def _with_indexes(self, chosen: Sequence[Chosen]) -> list[Chosen]:
        """Name the index that each wheel came from, which a solver need not say.

        Where several could have offered it, their pages are asked; offline, what was known before counts.
        """
        local = {offer.file.url for offer in self.listing.local_offers()}
        unknown = [
            one
            for one in chosen
            if one.candidate.index is None and not one.candidate.direct and one.url not in local
        ]
        several = [one for one in unknown if len(self.listing.index_urls(one.candidate.name)) > 1]
        if not self.gatherer.offline:
            self.listing.prefetch(one.candidate.name for one in several)
        named = {id(one): self._index_of(one) for one in unknown}
        return [
            replace(one, candidate=replace(one.candidate, index=named[id(one)])) if id(one) in named else one
            for one in chosen
        ]

    def _index_of(self, one: Chosen) -> str | None:
        name = one.candidate.name
        urls = self.listing.index_urls(name)
        if len(urls) <= 1:
            return public_url(urls[0]) if urls else None
        before = self.previous.package(name) if self.previous is not None else None
        if before is not None and before.wheel.sha256 == one.artifact.sha256:
            return before.wheel.index
        if self.gatherer.offline:
            return None
        offers = self.listing.offers(name)
        return next((o.index for o in offers if o.filename == one.artifact.filename), None)

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


def _cost(wheel: CandidateWheel | None) -> float:
    """Return the bytes that looking at a wheel may fetch: none of a local one, of an unknown one the most."""
    if wheel is None or urlsplit(wheel.url).scheme == "file":
        return 0
    return float("inf") if wheel.size is None else wheel.size


def _warnings(chosen: Iterable[Chosen]) -> Iterable[Finding]:
    """Return what is to be said of distributions that serve."""
    return (finding for one in chosen for finding in one.judgement.findings)


def _acceptable(unfit: Iterable[Chosen]) -> tuple[Exemption, ...]:
    return tuple(dict.fromkeys(gap for one in unfit for gap in one.judgement.gaps))


def _refuse_loose(asked: Sequence[Asked]) -> None:
    faults = [
        refusal(
            "E-NOT-PINNED",
            one.origin,
            expected=f"{one.name}==VERSION, since resolve.complete = true",
            found=one.text,
        )
        for one in asked
        if one.pin is None and one.url is None
    ]
    first: dict[str, Asked] = {}
    for one in asked:
        other = first.setdefault(one.name, one)
        if (other.pin, other.url) != (one.pin, one.url):
            faults.append(
                refusal(
                    "E-REQUIREMENT",
                    one.origin,
                    expected=f"{other.text}, as in {other.origin}",
                    found=one.text,
                )
            )
    if faults:
        raise UserInputError.of(faults)


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
