"""Finding the bytes of an artifact by its sha256, wherever they are.

Order: the cache, the wheel's own path or ``file:`` URL, a file of that name in a find-links folder, the URL.
Local files are used where they stand and hashed each time; what comes by network goes into the cache under
its digest (``artifacts/<hex>``), so two locks on one cache fetch it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envbundle.errors import IntegrityError, TransferError
from envbundle.host.file_urls import check_file, file_digest, path_of_file_url, public_url
from envbundle.host.files import host_errors
from envbundle.progress import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from envbundle.host.fetch import Fetcher
    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import LockedWheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A wheel's bytes on this machine, checked. ``filename`` is its name as a wheel, not ``path``'s."""

    filename: str
    path: Path
    sha256: Digest
    size: int


@dataclass(slots=True)
class Gatherer:
    """Gets artifacts. ``cache`` is envbundle's cache folder; ``folders`` are find-links folders."""

    cache: Path
    fetcher: Fetcher
    folders: tuple[Path, ...] = ()
    offline: bool = False
    reporter: Reporter = SILENT
    _known: dict[Path, tuple[tuple[int, ...], Digest, int]] = field(default_factory=dict, init=False)

    @property
    def artifacts(self) -> Path:
        """The folder of fetched artifacts, named by digest."""
        return self.cache / "artifacts"

    def gather(self, *, filename: str, url: str, sha256: Digest | None, size: int | None) -> Artifact:
        """Return the artifact at ``url`` (http, https or file), of that digest and size where known.

        Raises ``IntegrityError`` (E-HASH, E-SIZE), ``TransferError`` or ``HostError``.
        """
        cached = self._cached(filename, sha256, size)
        if cached is not None:
            return cached
        if urlsplit(url).scheme == "file":
            return self._local(filename, path_of_file_url(url), sha256, size)
        if sha256 is None:
            with host_errors(self.artifacts):
                self.artifacts.mkdir(parents=True, exist_ok=True)
            found, length = self.fetcher.fetch_unknown(url, self.artifacts, reporter=self.reporter)
            return Artifact(filename=filename, path=self.artifacts / found.hex, sha256=found, size=length)
        path = self.artifacts / sha256.hex
        self.fetcher.fetch(url, path, sha256=sha256, size=size, reporter=self.reporter)
        with host_errors(path):
            length = path.stat().st_size
        return Artifact(filename=filename, path=path, sha256=sha256, size=length)

    def gather_locked(self, wheel: LockedWheel, folder: Path) -> Artifact:
        """Return the bytes that a lock names; ``folder`` is the lock's own. Raises as ``gather``.

        Every place that may have them is tried; a file with the right name and other bytes is passed over
        unless it is the last place.
        """
        cached = self._cached(wheel.filename, wheel.sha256, wheel.size)
        if cached is not None:
            return cached
        places = [folder / wheel.path] if wheel.path is not None else []
        if wheel.url is not None and urlsplit(wheel.url).scheme == "file":
            places.append(path_of_file_url(wheel.url))
        places += [each / wheel.filename for each in self.folders]
        fault: IntegrityError | None = None
        for place in places:
            if place.is_file():
                try:
                    return self._local(wheel.filename, place, wheel.sha256, wheel.size)
                except IntegrityError as wrong:
                    fault = wrong
        if wheel.url is not None and urlsplit(wheel.url).scheme != "file":
            return self.gather(filename=wheel.filename, url=wheel.url, sha256=wheel.sha256, size=wheel.size)
        if fault is not None:
            raise fault
        raise TransferError(
            "E-ARTIFACT-GONE",
            wheel.filename,
            expected=str(wheel.sha256),
            found="nothing in the cache, at its path or in find-links",
            hint="put the wheel into a find-links folder, or lock again",
        )

    def _cached(self, filename: str, sha256: Digest | None, size: int | None) -> Artifact | None:
        if sha256 is None:
            return None
        path = self.artifacts / sha256.hex
        try:
            length = path.stat().st_size
        except OSError:
            return None
        # Final names appear only after our own hash; another size means somebody else wrote here.
        if size is not None and length != size:
            return None
        return Artifact(filename=filename, path=path, sha256=sha256, size=length)

    def _local(self, filename: str, path: Path, sha256: Digest | None, size: int | None) -> Artifact:
        with host_errors(path):
            status = path.stat()
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, *file_digest(path))
            self._known[path] = known
        _, found, length = known
        if (sha256 is not None and found != sha256) or (size is not None and length != size):
            check_file(path, public_url(path.absolute().as_uri()), sha256=sha256 or found, size=size)
        return Artifact(filename=filename, path=path, sha256=found, size=length)
