"""Which published wheels a distribution may be: what indexes and find-links offer of its version, opened.

* Only wheels whose bytes have a sha256 that we checked ourselves are compared with; an installer's cache is
  never looked into.
* What an index offered for an exact version, and what each wheel holds, is remembered in envbundle's own
  cache by sha256: a second capture needs neither the network nor the wheels.
* An index that does not answer is asked once; then only find-links and what is remembered count.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from envbundle.errors import EnvbundleError, IntegrityError, TransferError
from envbundle.host.file_urls import path_of_file_url, public_url
from envbundle.host.files import atomic_write, host_errors
from envbundle.resolver.contents import FORMAT
from envbundle.resolver.index_page import IndexFile
from envbundle.resolver.listing import Offer
from envbundle.resolver.scan import READER
from envbundle.resolver.wheel_choice import target_tags
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding, findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.resolver.gather import Artifact, Gatherer
    from envbundle.resolver.listing import Listing
    from envbundle.resolver.scan import Scanner

    from .distributions import Installed

_MEMORY = 1
_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWheel:
    """A wheel known by its sha256 (hex), as it would be installed.

    ``files`` maps a path below the prefix to (sha256 as hex, size, member's name); ``scripts`` are entry
    points. ``url`` is where it came from ('' for a receipt), ``index`` the index that lists it.
    """

    filename: str
    sha256: str
    size: int
    files: Mapping[str, tuple[str, int, str]]
    scripts: Mapping[str, str]
    url: str = ""
    index: str | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The interpreter's Python (``3.N``), the machine and the glibc (``2.N``) that wheels must fit."""

    python: str
    machine: str
    glibc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A wheel that a distribution may have come from; ``direct`` where ``direct_url.json`` names it."""

    offer: Offer
    direct: bool = False


@dataclass(slots=True, kw_only=True)
class Published:
    """Looks published wheels up. ``links`` knows find-links alone, ``listing`` the indexes alone."""

    links: Listing
    listing: Listing
    gatherer: Gatherer
    scanner: Scanner
    cache: Path
    machine: Machine
    findings: list[Finding] = field(default_factory=list)
    dead: TransferError | None = None
    answered: bool = False
    _stamps: dict[str, list[Any]] | None = field(default=None, init=False)
    _stamps_new: bool = field(default=False, init=False)

    @property
    def silent(self) -> bool:
        """Whether no index answered, or none is asked."""
        return not self.answered and (self.dead is not None or not self.listing.index_urls())

    def prefetch(self, distributions: Iterable[Installed]) -> None:
        """Read the index pages of those that nothing is remembered of, side by side."""
        names = [one.name for one in distributions if not self._remembered(one)]
        if not names or not self.listing.index_urls():
            return
        try:
            self.listing.prefetch(names)
            self.listing.offers(names[0])
        except TransferError as fault:
            self.dead = fault
        else:
            self.answered = True

    def candidates(self, one: Installed) -> list[Candidate]:
        """Return the wheels of exactly that version, the likeliest first, each file once; a few at most."""
        wanted = Version(one.version)
        local = [offer for offer in self.links.offers(one.name) if offer.version == wanted]
        found = [*local, *(self._remembered(one) or self._asked(one, wanted))]
        ranked = [
            (rank, number, offer) for number, offer in enumerate(found) if (rank := self._rank(one, offer))
        ]
        ranked.sort(key=lambda item: item[:2])
        likely: dict[tuple[str, str | None], Candidate] = {}
        for _, _, offer in ranked:
            likely.setdefault((offer.filename, offer.index), Candidate(offer=offer))
        direct = [Candidate(offer=offer, direct=True) for offer in _direct(one)]
        return [*likely.values(), *direct][:_TRIES]

    def _asked(self, one: Installed, wanted: Version) -> list[Offer]:
        if self.dead is not None or not self.listing.index_urls():
            return []
        try:
            offers = [offer for offer in self.listing.offers(one.name) if offer.version == wanted]
        except TransferError as fault:
            self.dead = fault
            return []
        self.answered = True
        fits = [offer for offer in offers if self._rank(one, offer) and offer.file.sha256 is not None]
        if fits:
            self._remember(one, fits)
        return offers

    def _rank(self, one: Installed, offer: Offer) -> tuple[int, int] | None:
        """Return how likely a wheel is the installed one: what WHEEL says, then the interpreter's order."""
        try:
            tags = parse_wheel_filename(offer.filename)[3]
        except InvalidWheelFilename:
            return None
        order = target_tags(self.machine.python, self.machine.machine, self.machine.glibc)
        place = next((number for number, tag in enumerate(order) if tag in tags), len(order) * 2)
        names = {str(tag) for tag in tags}
        said = set(one.tags)
        halves = {tag.rpartition("-")[0] for tag in names} & {tag.rpartition("-")[0] for tag in said}
        likeness = 0 if names & said else 1 if halves else 2
        if place == len(order) * 2 and likeness:
            return None
        return likeness + 1, place

    # --- opening

    def open(self, candidate: Candidate) -> PublishedWheel | None:
        """Return what a wheel on offer holds, fetched and checked; None (with a finding) where that fails."""
        offer = candidate.offer
        try:
            sha256, size = offer.file.sha256, offer.file.size
            if sha256 is None and urlsplit(offer.file.url).scheme == "file":
                sha256, size = self._local_digest(path_of_file_url(offer.file.url))
            held = self._held(sha256) if sha256 is not None else None
            if held is None:
                artifact = self.gatherer.gather(
                    filename=offer.filename, url=offer.file.url, sha256=sha256, size=size
                )
                held = self._scan(artifact)
                sha256, size = artifact.sha256, artifact.size
        except (TransferError, IntegrityError) as fault:
            self.findings.append(_not_had(offer, fault))
            return None
        assert sha256 is not None  # noqa: S101 - gathered artifacts have one
        python, name = self.machine.python, offer.name
        return PublishedWheel(
            filename=offer.filename,
            sha256=sha256.hex,
            size=size or 0,
            files=installed_files(held["members"], python=python, distribution=name),
            scripts=held["scripts"],
            url=public_url(offer.file.url),
            index=offer.index,
            direct=candidate.direct,
        )

    def artifact(self, wheel: PublishedWheel, *, cached_only: bool = False) -> Artifact | None:
        """Return the bytes of a wheel that was compared with, where they can be had."""
        if cached_only and not (self.gatherer.artifacts / wheel.sha256).is_file():
            return None
        try:
            return self.gatherer.gather(
                filename=wheel.filename, url=wheel.url, sha256=Digest(wheel.sha256), size=wheel.size or None
            )
        except EnvbundleError:
            return None

    def _scan(self, artifact: Artifact) -> dict[str, Any]:
        scan = self.scanner.scan(artifact)
        held = {
            "members": [[m.path, m.member, m.sha256.hex, m.size] for m in scan.members],
            "scripts": dict(scan.scripts),
            "size": artifact.size,
        }
        self._write(self._wheel_place(artifact.sha256), held)
        return held

    def _held(self, sha256: Digest) -> dict[str, Any] | None:
        held = self._read(self._wheel_place(sha256))
        return held if isinstance(held, dict) and {"members", "scripts"} <= set(held) else None

    def _wheel_place(self, sha256: Digest) -> Path:
        # The scanner's version takes part: what it refuses must not be remembered as accepted.
        return self.cache / "capture" / f"wheels-{_MEMORY}.{FORMAT}.{READER}" / f"{sha256.hex}.json"

    # --- memory

    def _local_digest(self, path: Path) -> tuple[Digest, int]:
        """Return sha256 and size of a local wheel; hashed again whenever anything of it changed."""
        with host_errors(path):
            info = path.stat()
        stamp = [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
        if self._stamps is None:
            kept = self._read(self.cache / "capture" / f"stamps-{_MEMORY}.json")
            self._stamps = kept if isinstance(kept, dict) else {}
        known = self._stamps.get(os.fspath(path))
        if isinstance(known, list) and known[:5] == stamp:
            return Digest(str(known[5])), info.st_size
        artifact = self.gatherer.gather(filename=path.name, url=path.as_uri(), sha256=None, size=None)
        self._stamps[os.fspath(path)] = [*stamp, artifact.sha256.hex]
        self._stamps_new = True
        return artifact.sha256, artifact.size

    def close(self) -> None:
        """Keep what was learnt."""
        if self._stamps_new and self._stamps is not None:
            self._write(self.cache / "capture" / f"stamps-{_MEMORY}.json", self._stamps)

    def _offers_place(self, one: Installed) -> Path:
        where = "|".join(self.listing.index_urls(one.name))
        key = Digest.of(f"{one.name}|{one.version}|{where}|{self.machine}".encode()).hex[:16]
        return self.cache / "capture" / f"offers-{_MEMORY}" / f"{one.name}-{key}.json"

    def _remembered(self, one: Installed) -> list[Offer]:
        rows = self._read(self._offers_place(one))
        found = []
        try:
            for filename, url, sha256, size, index in rows if isinstance(rows, list) else ():
                file = IndexFile(filename=filename, url=url, sha256=Digest(sha256), size=size)
                found.append(Offer(file=file, name=one.name, version=Version(one.version), index=index))
        except (ValueError, TypeError, EnvbundleError):
            return []
        return found

    def _remember(self, one: Installed, offers: Iterable[Offer]) -> None:
        rows = [
            [o.filename, o.file.url, o.file.sha256.hex, o.file.size, o.index]
            for o in offers
            if o.file.sha256 is not None and "@" not in urlsplit(o.file.url).netloc
        ]
        if rows:
            self._write(self._offers_place(one), rows)

    def _read(self, place: Path) -> Any:
        try:
            return json.loads(place.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, place: Path, value: Any) -> None:
        with host_errors(place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(place, json.dumps(value, separators=(",", ":")).encode(), sync=False)


def installed_files(
    members: Iterable[list[Any]], *, python: str, distribution: str
) -> dict[str, tuple[str, int, str]]:
    """Return installed path -> (sha256, size, member) for rows of (scheme path, member, sha256, size)."""
    site = f"lib/python{python}/site-packages/"
    places = {
        "purelib": site,
        "platlib": site,
        "scripts": "bin/",
        "headers": f"include/site/python{python}/{distribution}/",
        "data": "",
    }
    found = {}
    for path, member, sha256, size in members:
        scheme, _, rest = path.partition("/")
        found[places[scheme] + rest] = (sha256, size, member)
    return found


def _direct(one: Installed) -> list[Offer]:
    """Return the wheel that ``direct_url.json`` names, where it still is one."""
    origin = one.origin
    if origin.kind != "archive" or not origin.url.endswith(".whl"):
        return []
    if origin.folder and not Path(origin.folder).is_file():
        return []
    filename = urlsplit(origin.url).path.rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    file = IndexFile(
        filename=filename, url=origin.url, sha256=Digest(origin.sha256) if origin.sha256 else None
    )
    return [Offer(file=file, name=one.name, version=Version(one.version), index=None)]


def _not_had(offer: Offer, fault: EnvbundleError) -> Finding:
    first = findings_of(fault)[0]
    return Finding(
        code="W-PUBLISHED-WHEEL",
        severity="warning",
        subject=offer.filename,
        expected="the published wheel, to compare with",
        found=f"{first.code}: {first.found or first.subject}"[:300],
        hint="captured from the disk as it is; capture again once the wheel can be had",
    )
