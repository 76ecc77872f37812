"""What find-links folders and indexes offer for a distribution, asked by ourselves.

* find-links first, then indexes in the manifest's order, the default one last; the first index that knows
  a project serves it alone, as uv does, so that a name on a public index cannot shadow a private one.
* A distribution that the manifest sends to one index is looked for nowhere else.
* A page is read once per lock; pages of many projects are read side by side.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envbundle.errors import UserInputError
from envbundle.host.file_urls import path_of_file_url, public_url
from envbundle.host.files import host_errors

from .index_page import IndexFile, parse_page
from .wheel_choice import name_and_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.version import Version

    from envbundle.host.fetch import Fetcher
    from envbundle.spec.manifest import IndexSource

_WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One wheel on offer. ``index`` is the URL of the index that lists it, None for find-links."""

    file: IndexFile
    name: str
    version: Version
    index: str | None = None

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return self.file.filename


@dataclass(slots=True)
class Listing:
    """Looks projects up. ``find_links`` are absolute paths or URLs; ``sources`` as in the manifest."""

    fetcher: Fetcher
    indexes: tuple[IndexSource, ...] = ()
    default_index: str | None = None
    find_links: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    no_index: bool = False
    _flat: tuple[Offer, ...] | None = field(default=None, init=False)
    _projects: dict[str, tuple[Offer, ...]] = field(default_factory=dict, init=False)

    def index_urls(self, name: str | None = None) -> tuple[str, ...]:
        """Return the URLs of the indexes that serve ``name``, in the order they are asked."""
        if self.no_index:
            return ()
        if name is not None and name in self.sources:
            return tuple(index.url for index in self.indexes if index.name == self.sources[name])
        plain = [index.url for index in self.indexes if not index.explicit and not index.default]
        default = [index.url for index in self.indexes if index.default]
        if not default and self.default_index:
            default = [self.default_index]
        return (*plain, *default)

    def ask_indexes(self, name: str) -> None:
        """Ask every index for one page, so that a dead one is known before a solver starts.

        Raises ``TransferError`` (E-INDEX-UNREACHABLE). An index that does not know ``name`` has answered.
        """
        for url in dict.fromkeys((*self.index_urls(), *(i.url for i in self.indexes if not self.no_index))):
            self.fetcher.page(_project_url(url, name))

    def offers(self, name: str) -> tuple[Offer, ...]:
        """Return every wheel on offer for a normalised name."""
        if name not in self._projects:
            self._projects[name] = self._look_up(name)
        return self._projects[name]

    def offers_everywhere(self, name: str) -> tuple[Offer, ...]:
        """Return what find-links and all indexes offer, explicit ones too: for telling, not for choosing."""
        found = [offer for offer in self.local_offers() if offer.name == name]
        urls = () if self.no_index else (*self.index_urls(), *(index.url for index in self.indexes))
        for url in dict.fromkeys(urls):
            page_url = _project_url(url, name)
            page = self.fetcher.page(page_url)
            if page is not None:
                found += [o for o in _offers(parse_page(page, page_url), public_url(url)) if o.name == name]
        return tuple(found)

    def knows(self, name: str) -> bool:
        """Whether a project was looked up already."""
        return name in self._projects

    def prefetch(self, names: Iterable[str]) -> None:
        """Read the pages of many projects side by side."""
        missing = [name for name in dict.fromkeys(names) if name not in self._projects]
        self.local_offers()
        if len(missing) < 2 or self.no_index:
            return
        with ThreadPoolExecutor(_WORKERS) as pool:
            for name, found in zip(missing, pool.map(self._look_up, missing), strict=True):
                self._projects[name] = found

    def _look_up(self, name: str) -> tuple[Offer, ...]:
        found = [] if name in self.sources else [offer for offer in self.local_offers() if offer.name == name]
        for url in self.index_urls(name):
            page_url = _project_url(url, name)
            page = self.fetcher.page(page_url)
            if page is None:
                continue
            listed = [
                offer for offer in _offers(parse_page(page, page_url), public_url(url)) if offer.name == name
            ]
            if listed:
                return (*found, *listed)
        return tuple(found)

    def local_offers(self) -> tuple[Offer, ...]:
        """Return what the find-links folders and pages hold, of all projects."""
        if self._flat is None:
            found: list[Offer] = []
            for place in self.find_links:
                if urlsplit(place).scheme in ("http", "https"):
                    page = self.fetcher.page(place)
                    found += _offers(parse_page(page, place) if page else (), None)
                else:
                    found += _offers(_folder_files(place), None)
            self._flat = tuple(found)
        return self._flat


def absolute_links(find_links: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return find-links with relative paths made absolute against the manifest's folder.

    Raises ``UserInputError`` (E-FIND-LINKS) for a path that is no folder.
    """
    places = []
    for place in find_links:
        scheme = urlsplit(place).scheme
        if scheme in ("http", "https"):
            places.append(place)
            continue
        path = path_of_file_url(place) if scheme == "file" else folder / place
        if not path.is_dir():
            raise UserInputError(
                "E-FIND-LINKS", place, expected="a folder of wheels", found=f"none at {path}"
            )
        places.append(str(path.resolve()))
    return tuple(places)


def absolute_indexes(indexes: Iterable[IndexSource], folder: Path) -> tuple[IndexSource, ...]:
    """Return indexes with paths made ``file:`` URLs against the manifest's folder."""
    from dataclasses import replace  # noqa: PLC0415

    return tuple(
        replace(index, url=(folder / index.url).resolve().as_uri())
        if not urlsplit(index.url).scheme
        else index
        for index in indexes
    )


def _project_url(index: str, name: str) -> str:
    return f"{index.rstrip('/')}/{name}/"


def _folder_files(place: str) -> list[IndexFile]:
    folder = Path(place)
    with host_errors(folder):
        names = sorted(entry.name for entry in folder.iterdir())
    return [IndexFile(filename=name, url=(folder / name).as_uri()) for name in names if name.endswith(".whl")]


def _offers(files: Iterable[IndexFile], index: str | None) -> list[Offer]:
    found = []
    for file in files:
        parsed = name_and_version(file.filename)
        if parsed is not None:
            found.append(Offer(file=file, name=parsed[0], version=parsed[1], index=index))
    return found
