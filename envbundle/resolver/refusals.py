"""What a search has to tell: gaps, pins that stay, versions passed over, yanked files, no solution at all.

Other versions are named as what they are: on offer, with a wheel for the target, not looked into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.errors import EnvbundleError
from envbundle.spec.finding import Finding, errors_in

from .requirements import exact_pins
from .wheel_choice import choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from envbundle.spec.target import Target

    from .chosen import Chosen
    from .listing import Listing, Offer
    from .requirements import Asked, AskedFor
    from .solver import CandidateWheel, NoSolution

_SHOWN = 8


@dataclass(slots=True, kw_only=True)
class Account:
    """What happened in one search. ``tried`` holds every version that was refused, by distribution."""

    target: Target
    asked: AskedFor
    listing: Listing
    offline: bool = False
    tried: dict[str, list[Chosen]] = field(default_factory=dict)

    @property
    def pins(self) -> dict[str, Asked]:
        """Requirements and constraints that name one version or one file, by distribution."""
        return exact_pins((*self.asked.requirements, *self.asked.constraints))

    def gaps(self, unfit: Sequence[Chosen]) -> tuple[Finding, ...]:
        """Tell what those lack that cannot serve, why a pin stays, and what was refused before."""
        findings: list[Finding] = [finding for one in unfit for finding in one.judgement.findings]
        for one in unfit:
            name = one.candidate.name
            pin = self.pins.get(name)
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
        earlier = [one for tried in self.tried.values() for one in tried if one not in unfit]
        findings += [finding for one in earlier for finding in errors_in(one.judgement.findings)]
        return tuple(dict.fromkeys(findings))

    def spent(self, spent: Sequence[str], max_tries: int) -> tuple[Finding, ...]:
        """Tell of distributions of which enough versions were fetched and refused."""
        return tuple(
            Finding(
                code="E-MAX-TRIES",
                severity="error",
                subject=name,
                expected=f"a version that serves {self.target.name} within max-tries = {max_tries}",
                found="refused: " + ", ".join(one.candidate.version for one in self.tried[name]),
                hint="raise [resolve] max-tries, or ask for other versions or another index",
            )
            for name in spent
            if name not in self.pins
        )

    def passed_over(self) -> tuple[Finding, ...]:
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
            for tried in self.tried.values()
            for one in tried
            for finding in errors_in(one.judgement.findings)[:3]
        )

    def _alternatives(self, name: str, version: str) -> str:
        """Say which other versions have a wheel for the target; nobody has looked into them yet."""
        try:
            offers = self.listing.offers_everywhere(name)
        except EnvbundleError:
            return "no index could be asked for other versions"
        others = {
            offer.version: f"{offer.version} ({offer.index})" if offer.index else str(offer.version)
            for offer in reversed(offers)
            if choose([offer], self.target) and str(offer.version) != version
        }
        if not others:
            name = self.target.name
            return f"no other version on offer has a wheel for {name}: name another index, or build one"
        shown = [others[each] for each in sorted(others, reverse=True)]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        return (
            f"others with a wheel for {self.target.name}, not looked into: {', '.join(shown[:_SHOWN])}{more}"
        )

    def local_versions(self, chosen: Iterable[Chosen]) -> tuple[Finding, ...]:
        """Warn where a pin without a local part was served by a build that has one."""
        found = []
        for one in chosen:
            pin = self.pins.get(one.candidate.name)
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

    def yanked(self, chosen: Iterable[Chosen]) -> tuple[Finding, ...]:
        """Warn of chosen files that their index calls yanked; only pins can have reached them."""
        pinned = [one for one in chosen if one.candidate.name in self.pins and not one.candidate.direct]
        listed = [one for one in pinned if one.candidate.index is not None]
        if not self.offline:
            self.listing.prefetch(one.candidate.name for one in listed)
        found = []
        for one in listed:
            if self.offline and not self.listing.knows(one.candidate.name):
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

    def no_solution(self, answer: NoSolution) -> tuple[Finding, ...]:
        """Tell why nothing is left: what was refused, else what the indexes offer, and the solver's words.

        Raises ``TransferError`` where an index that could say so does not answer (any more).
        """
        findings = [
            f for tried in self.tried.values() for one in tried for f in errors_in(one.judgement.findings)
        ]
        if not findings:
            for one in (*self.asked.requirements, *self.asked.constraints):
                findings += self._unservable(one)
        findings.append(
            Finding(
                code="E-NO-SOLUTION",
                severity="error",
                subject=self.target.name,
                expected="versions that hold together" + (" without the refused ones" if self.tried else ""),
                found=answer.prose[:4000],
                hint="--offline leaves the solver with what is in the cache: run once without it"
                if self.offline and not self.tried
                else "",
            )
        )
        return tuple(dict.fromkeys(findings))

    def _unservable(self, one: Asked) -> list[Finding]:
        """Return why no file on offer can serve a requirement, if none can."""
        if one.url is not None or (self.offline and not self.listing.knows(one.name)):
            return []
        offers = self.listing.offers(one.name)
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


def versions_text(offers: Iterable[Offer], target: Target) -> str:
    """Say which versions on offer have a wheel for the target."""
    versions = sorted({offer.version for offer in offers if choose([offer], target)}, reverse=True)
    if not versions:
        return "no wheel of it for the target"
    return "versions " + ", ".join(map(str, versions[:_SHOWN]))


def refusal(code: str, subject: str, *, expected: str, found: str, hint: str = "") -> Finding:
    """Return a finding that refuses."""
    return Finding(code=code, severity="error", subject=subject, expected=expected, found=found, hint=hint)
