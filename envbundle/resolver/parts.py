"""The wheels that ``install.pyz`` carries: which they are, and where their bytes come from.

* The versions are those that run here, so that what a host runs was seen to work; what is not installed here
  is the newest on offer.
* Places, best first: envbundle's cache, the manifest's find-links and indexes (published bytes, that anybody
  can compare with the index), at last the distribution as it is installed here, if it fits the target.
* A published wheel that was found once is remembered by its hash: later packs ask nobody.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Literal

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envbundle.errors import EnvbundleError, VerdictError
from envbundle.host.files import atomic_write, host_errors, read_bounded
from envbundle.spec.canonical import canonical
from envbundle.spec.digest import Digest
from envbundle.spec.names import normalise_name

from .installed import installed_filename, installed_version, rebuild_wheel
from .wheel_choice import choose, rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from envbundle.spec.target import Target

    from .gather import Gatherer
    from .listing import Listing

_LIMIT = 256 * 1024 * 1024
#: The first Python that has a zstd codec of its own.
_OWN_ZSTD = (3, 14)
ZSTD = "zstandard"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPart:
    """A wheel for one kind of host, and whether its bytes are the published ones."""

    filename: str
    data: bytes
    origin: Literal["published", "rebuilt"]


def find_parts(
    libraries: Iterable[str],
    target: Target,
    *,
    cache: Path,
    gatherer: Gatherer,
    listing: Callable[[], Listing],
) -> tuple[FoundPart, ...]:
    """Return wheels of ``libraries`` and all that they require, for hosts of ``target``.

    ``cache`` is envbundle's cache folder; ``listing`` is asked only for what the cache does not know. Raises
    ``VerdictError`` (E-BOOTSTRAP-WHEEL) that names what no place has for that target.
    """
    minor = tuple(int(part) for part in target.python.split("."))
    wanted = [(name, SpecifierSet()) for name in sorted(libraries)]
    if minor < _OWN_ZSTD:
        wanted.append((ZSTD, SpecifierSet()))
    finder = _Finder(target=target, cache=cache, gatherer=gatherer, open_listing=listing)
    found: dict[str, FoundPart] = {}
    while wanted:
        name, specifier = wanted.pop(0)
        if name not in found:
            found[name] = finder.find(name, specifier)
            wanted += _requires(found[name], target)
    return tuple(found[name] for name in sorted(found))


@dataclass(slots=True)
class _Finder:
    target: Target
    cache: Path
    gatherer: Gatherer
    open_listing: Callable[[], Listing]

    def find(self, name: str, specifier: SpecifierSet) -> FoundPart:
        version = installed_version(name)
        note = self._note(name, version or "newest")
        found = self._known(note)
        if found is not None:
            return found
        why = "not on offer"
        try:
            published = self._published(name, version, specifier)
        except EnvbundleError as fault:
            published, why = None, f"{fault.code}: {fault.found or fault.subject}"
        if published is not None:
            self._remember(note if version else None, published)
            return published
        rebuilt = self._rebuilt(name)
        if rebuilt is not None:
            return rebuilt
        raise VerdictError(
            "E-BOOTSTRAP-WHEEL",
            f"{name} {version or ''}".strip(),
            expected=f"a wheel for Python {self.target.python} on {self.target.platform}",
            found=f"{why}; and what is installed here is for another Python or machine",
            hint="pack with the index reachable, put that wheel into a find-links folder, or --no-bootstrap",
        )

    def _note(self, name: str, version: str) -> Path:
        target = f"{self.target.python}-{self.target.platform}"
        return self.cache / "bootstrap" / f"{name}-{version}-{target}.json"

    def _known(self, note: Path) -> FoundPart | None:
        try:
            row = json.loads(read_bounded(note, 1 << 16))
            filename, digest = str(row["filename"]), Digest.parse(row["sha256"])
            data = read_bounded(self.gatherer.artifacts / digest.hex, _LIMIT)
        except (EnvbundleError, ValueError, KeyError, TypeError):
            return None
        if Digest.of(data) != digest or rank(filename, self.target) is None:
            return None
        return FoundPart(filename=filename, data=data, origin=row.get("origin", "published"))

    def _remember(self, note: Path | None, part: FoundPart) -> None:
        digest = Digest.of(part.data)
        artifact = self.gatherer.artifacts / digest.hex
        with host_errors(self.cache):
            artifact.parent.mkdir(parents=True, exist_ok=True)
            (self.cache / "bootstrap").mkdir(parents=True, exist_ok=True)
        if not artifact.exists():
            atomic_write(artifact, part.data, sync=False)
        if note is not None:
            row = {"filename": part.filename, "sha256": str(digest), "origin": part.origin}
            atomic_write(note, canonical(row), sync=False)

    def _published(self, name: str, version: str | None, specifier: SpecifierSet) -> FoundPart | None:
        offers = [
            offer
            for offer in self.open_listing().offers(name)
            if offer.file.yanked is None
            and (offer.version == Version(version) if version else offer.version in specifier)
        ]
        versions = sorted({offer.version for offer in offers}, reverse=True)
        for each in versions:
            best = choose([offer for offer in offers if offer.version == each], self.target)
            if best is not None:
                file = best.file
                artifact = self.gatherer.gather(
                    filename=file.filename, url=file.url, sha256=file.sha256, size=file.size
                )
                data = read_bounded(artifact.path, _LIMIT)
                return FoundPart(filename=file.filename, data=data, origin="published")
        return None

    def _rebuilt(self, name: str) -> FoundPart | None:
        filename = installed_filename(name)
        if filename is None or rank(filename, self.target) is None:
            return None
        note = self.cache / "bootstrap" / f"{filename}.json"
        known = self._known(note)
        if known is not None:
            return known
        part = FoundPart(filename=filename, data=rebuild_wheel(name), origin="rebuilt")
        self._remember(note, part)
        return part


def _requires(part: FoundPart, target: Target) -> list[tuple[str, SpecifierSet]]:
    """Return what a wheel requires on hosts of ``target``."""
    surroundings = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
        "extra": "",
    }
    with zipfile.ZipFile(BytesIO(part.data)) as wheel:
        name = next(
            (n for n in wheel.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")), ""
        )
        raw, _ = parse_email(wheel.read(name)) if name else ({}, {})
    found = []
    for text in raw.get("requires_dist", []):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate(surroundings):
            found.append((normalise_name(requirement.name), requirement.specifier))
    return found
