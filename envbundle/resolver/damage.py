"""Why a solver gave up, where a file is at fault and not the versions: our own reader looks into the wheels.

uv answers a damaged wheel, or a download that was cut, by "no solution"; only its English tells them apart,
and that is not read. So what was asked for is opened here, with what it requires in turn: the wheels on this
disk, and of those that only an index has the best one, if uv had to open it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from envbundle.host.files import host_errors
from envbundle.inspection.wheel import read_wheel
from envbundle.spec.names import normalise_name

from .requirements import marker_environment
from .solver import filename_of
from .wheel_choice import choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.specifiers import SpecifierSet

    from envbundle.spec.digest import Digest
    from envbundle.spec.target import Target

    from .gather import Artifact, Gatherer
    from .listing import Listing, Offer
    from .requirements import Asked
    from .scan import Scanner

#: Larger files are neither fetched nor read through only to explain a refusal.
MOST = 256 * 1024 * 1024


def look_for_damage(
    asked: Iterable[Asked], target: Target, listing: Listing, gatherer: Gatherer, scanner: Scanner
) -> None:
    """Read the wheels that ``asked`` may come from; return where all can be read.

    Raises ``IntegrityError`` for a wheel that is damaged or contradicts itself, ``TransferError`` for one
    that cannot be fetched.
    """
    waiting: list[tuple[str, SpecifierSet]] = []
    opened: list[Artifact] = []

    def look(filename: str, url: str, sha256: Digest | None, size: int | None) -> None:
        artifact = gatherer.gather(filename=filename, url=url, sha256=sha256, size=size)
        with host_errors(artifact.path), artifact.path.open("rb") as stream:
            waiting.extend(_required(read_wheel(stream, filename).metadata.requires_dist, target))
        opened.append(artifact)

    for one in asked:
        if one.url is None:
            waiting.append((one.name, one.specifier))
        elif not (gatherer.offline and urlsplit(one.url).scheme != "file"):
            look(filename_of(one.url), one.url, next(iter(one.hashes), None), None)
    seen: set[str] = set()
    while waiting:
        name, specifier = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if gatherer.offline and not listing.knows(name):
            offers = tuple(offer for offer in listing.local_offers() if offer.name == name)
        else:
            offers = listing.offers(name)
        for offer in _suspects(offers, specifier, target):
            look(offer.filename, offer.file.url, offer.file.sha256, offer.file.size)
    for artifact in opened:
        if artifact.size <= MOST:
            scanner.scan(artifact)


def _suspects(offers: Iterable[Offer], specifier: SpecifierSet, target: Target) -> Iterator[Offer]:
    """Yield what a solver may have opened: local wheels for the target, and the best that an index has."""
    fitting = [
        offer
        for offer in offers
        if choose([offer], target) and specifier.contains(offer.version, prereleases=True)
    ]
    yield from (offer for offer in fitting if urlsplit(offer.file.url).scheme == "file")
    remote = [
        offer
        for offer in fitting
        if urlsplit(offer.file.url).scheme != "file" and not offer.file.core_metadata
    ]
    best = max((offer.version for offer in remote), default=None)
    chosen = choose([offer for offer in remote if offer.version == best], target)
    if chosen is not None and (chosen.file.size or 0) <= MOST:
        yield chosen


def _required(lines: Iterable[str], target: Target) -> Iterator[tuple[str, SpecifierSet]]:
    environment = marker_environment(target)
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if requirement.url is None and (marker is None or marker.evaluate(dict(environment))):
            yield normalise_name(requirement.name), requirement.specifier
