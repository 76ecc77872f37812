"""Getting bytes by URL: the only module of envbundle that speaks HTTP.

* An artifact is written to ``.incoming/`` beside its destination and renamed only when its size and sha256
  hold; a cut leaves the part, and the next run goes on from there by a Range request.
* Two processes that want the same artifact: one fetches, the other waits for its file lock and finds it.
* Pages (index listings) are read whole, up to a stated size, as JSON (PEP 691) or HTML (PEP 503).
* Credentials come from the URL or from netrc, go to their own host only, and are never written or shown.
  Proxies and certificate authorities come from the environment, as everywhere.
* ``file:`` URLs are read from the disk with the same checks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import netrc
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from envbundle.errors import IntegrityError, TransferError
from envbundle.progress import SILENT, Reporter

from .file_urls import check_file, copy_file, file_digest, public_url, read_file_page
from .files import host_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from envbundle.spec.digest import Digest

MAX_PAGE = 128 * 1024 * 1024
MAX_ARTIFACT = 64 * 1024**3
_BLOCK = 1024 * 1024
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_CONTENT_RANGE = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page as it came: the URL it came from after redirects (credentials removed), its type, its bytes."""

    url: str
    content_type: str
    body: bytes


class Fetcher(Protocol):
    """Gets pages and artifacts."""

    def page(self, url: str, *, limit: int = MAX_PAGE) -> Page | None:
        """Return a page of at most ``limit`` bytes, or None where the other end says there is none."""

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        sha256: Digest,
        size: int | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Put the artifact at ``url`` at ``destination``, checked."""

    def fetch_unknown(self, url: str, folder: Path, *, reporter: Reporter = SILENT) -> tuple[Digest, int]:
        """Put an artifact that nobody vouched for at ``folder/<its sha256 in hex>``; return both."""


@dataclass(frozen=True, slots=True)
class HttpFetcher:
    """The real one. ``timeout`` in seconds is for one read or connect, not for the whole artifact.

    ``offline`` refuses every URL that is not on this machine's disk (E-OFFLINE).
    """

    timeout: float = 60.0
    offline: bool = False
    _clients: list[httpx.Client] = field(default_factory=list, repr=False)

    def page(self, url: str, *, limit: int = MAX_PAGE) -> Page | None:
        """Return a page, or None for 404 and 410; see ``Fetcher``.

        Raises ``TransferError`` E-INDEX-UNREACHABLE where nothing useful answers, ``IntegrityError`` E-SIZE
        for a page above ``limit``.
        """
        shown = public_url(url)
        if urlsplit(url).scheme == "file":
            return _local_page(url, limit)
        self._refuse_offline(shown)
        body = bytearray()
        with _transfer_errors("E-INDEX-UNREACHABLE", shown), self._stream(url, {"Accept": _ACCEPT}) as answer:
            if answer.status_code in (404, 410):
                return None
            _refuse_status(answer, "E-INDEX-UNREACHABLE", shown)
            for block in answer.iter_bytes(_BLOCK):
                body += block
                if len(body) > limit:
                    raise IntegrityError(
                        "E-SIZE", shown, expected=f"a page of at most {limit} bytes", found="more"
                    )
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            return Page(url=public_url(str(answer.url)), content_type=kind, body=bytes(body))

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        sha256: Digest,
        size: int | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Put an artifact of that digest (and ``size`` in bytes, where known) at ``destination``.

        Raises ``TransferError``: E-DOWNLOAD-CUT (the part stays; run again), E-ARTIFACT-GONE, E-OFFLINE;
        ``IntegrityError``: E-HASH, E-SIZE (nothing stays); ``HostError`` for this machine's disk.
        """
        with _locked_part(destination.parent, sha256.hex) as part:
            if destination.exists() and size in (None, _size_of(destination)):
                return
            resumed = _size_of(part) > 0
            try:
                self._complete(url, part, sha256=sha256, size=size, reporter=reporter)
            except IntegrityError:
                if not resumed:
                    raise
                # The rest may have come from a file that changed since the cut; from its start it may hold.
                self._complete(url, part, sha256=sha256, size=size, reporter=reporter)
            with host_errors(destination):
                part.replace(destination)

    def fetch_unknown(self, url: str, folder: Path, *, reporter: Reporter = SILENT) -> tuple[Digest, int]:
        """Fetch from the start what has no stated digest; see ``Fetcher``."""
        with _locked_part(folder, "url-" + hashlib.sha256(url.encode()).hexdigest()) as part:
            with host_errors(part):
                part.unlink(missing_ok=True)
            self._download(url, part, limit=MAX_ARTIFACT, reporter=reporter)
            digest, size = file_digest(part)
            with host_errors(folder):
                part.replace(folder / digest.hex)
            return digest, size

    def close(self) -> None:
        """Close the connections that are kept open between calls."""
        while self._clients:
            self._clients.pop().close()

    def _complete(
        self, url: str, part: Path, *, sha256: Digest, size: int | None, reporter: Reporter
    ) -> None:
        """Bring ``part`` to its end and check it; a part that does not hold is removed."""
        shown = public_url(url)
        try:
            if size is None or _size_of(part) < size or not part.exists():
                self._download(url, part, limit=size if size is not None else MAX_ARTIFACT, reporter=reporter)
            check_file(part, shown, sha256=sha256, size=size)
        except IntegrityError:
            part.unlink(missing_ok=True)
            raise

    def _download(self, url: str, part: Path, *, limit: int, reporter: Reporter) -> None:
        shown = public_url(url)
        if urlsplit(url).scheme == "file":
            copy_file(url, part, limit)
            return
        self._refuse_offline(shown)
        offset = _size_of(part)
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        task = f"fetch {shown.rpartition('/')[2] or shown}"
        with _transfer_errors("E-DOWNLOAD-CUT", shown), self._stream(url, headers) as answer:
            if answer.status_code == 416 and offset:
                part.unlink()
                raise IntegrityError(
                    "E-SIZE", shown, expected=f"more than {offset} bytes", found="a shorter file"
                )
            if answer.status_code in (404, 410):
                raise TransferError(
                    "E-ARTIFACT-GONE",
                    shown,
                    found=f"HTTP {answer.status_code}",
                    hint="the index lost this file: lock again, or put the wheel into a find-links folder",
                )
            _refuse_status(answer, "E-INDEX-UNREACHABLE", shown)
            start = _start_of(answer, offset, shown)
            promised = _promised_total(answer, start)
            if promised is not None and promised > limit:
                raise IntegrityError("E-SIZE", shown, expected=f"{limit} bytes", found=f"{promised} bytes")
            reporter.start(task, total=promised)
            reporter.advance(task, start)
            written = start
            with host_errors(part), part.open("r+b" if part.exists() else "wb") as out:
                out.seek(start)
                out.truncate()
                for (
                    block
                ) in answer.iter_raw():  # in no larger pieces: what waits in a buffer is lost by a cut
                    written += len(block)
                    if written > limit:
                        raise IntegrityError("E-SIZE", shown, expected=f"{limit} bytes", found="more")
                    out.write(block)
                    reporter.advance(task, len(block))
            if promised is not None and written < promised:
                raise _cut(shown, written, promised)
            reporter.finish(task)

    def _refuse_offline(self, shown: str) -> None:
        if self.offline:
            raise TransferError(
                "E-OFFLINE",
                shown,
                expected="bytes in the cache or a find-links folder",
                found="only this URL has them",
            )

    @contextlib.contextmanager
    def _stream(self, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        scheme = urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise TransferError(
                "E-INDEX-UNREACHABLE",
                public_url(url),
                expected="an http, https or file URL",
                found=repr(scheme),
            )
        import httpx  # noqa: PLC0415 - 180 ms that `envbundle --help` must not cost

        if not self._clients:
            self._clients.append(httpx.Client(timeout=self.timeout, follow_redirects=True, max_redirects=10))
        with self._clients[0].stream("GET", url, headers=headers, auth=_auth_of(url)) as answer:
            yield answer


def _auth_of(url: str) -> tuple[str, str] | None:
    """Return user and password for the URL's host: its own, else netrc's."""
    parts = urlsplit(url)
    if parts.username is not None:
        return unquote(parts.username), unquote(parts.password or "")
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        entry = netrc.netrc(str(path)).authenticators(parts.hostname or "")
    except (OSError, netrc.NetrcParseError):
        return None
    return None if entry is None else (entry[0] or entry[1] or "", entry[2] or "")


@contextlib.contextmanager
def _transfer_errors(code: str, shown: str) -> Iterator[None]:
    import httpx  # noqa: PLC0415 - see _stream

    try:
        yield
    except httpx.HTTPError as fault:
        if isinstance(fault, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)):
            code = "E-INDEX-UNREACHABLE"
        text = str(fault) or type(fault).__name__
        raise TransferError(
            code, shown, found=text, hint="check network and proxy, then run again"
        ) from fault
    except httpx.InvalidURL as fault:
        raise TransferError("E-INDEX-UNREACHABLE", shown, expected="a URL", found=str(fault)) from fault


def _refuse_status(answer: httpx.Response, code: str, shown: str) -> None:
    status = answer.status_code
    if status in (200, 206):
        return
    hint = "give credentials for this host in netrc" if status in (401, 403) else "ask again later"
    raise TransferError(code, shown, expected="HTTP 200", found=f"HTTP {status}", hint=hint)


def _start_of(answer: httpx.Response, offset: int, shown: str) -> int:
    """Return where the answer's bytes belong: ``offset`` for a 206 that says so, 0 for a whole file."""
    if answer.status_code == 200:
        return 0
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
    if match is None or int(match[1]) != offset:
        raise TransferError(
            "E-DOWNLOAD-CUT",
            shown,
            expected=f"bytes from {offset} on",
            found=answer.headers.get("content-range", "no Content-Range"),
        )
    return offset


def _promised_total(answer: httpx.Response, start: int) -> int | None:
    length: str = answer.headers.get("content-length", "")
    return start + int(length) if length.isdecimal() else None


def _cut(shown: str, written: int, promised: int) -> TransferError:
    return TransferError(
        "E-DOWNLOAD-CUT",
        shown,
        expected=f"{promised} bytes",
        found=f"{written} bytes, then the connection ended",
        hint="run the same command again: it goes on from there",
    )


@contextlib.contextmanager
def _locked_part(folder: Path, name: str) -> Iterator[Path]:
    """Hold the file lock of one artifact's part in ``folder/.incoming``; yields the part's path."""
    incoming = folder / ".incoming"
    guard = incoming / f"{name}.lock"
    with host_errors(incoming):
        incoming.mkdir(parents=True, exist_ok=True)
        fd = _lock(guard)
    try:
        yield incoming / f"{name}.part"
    finally:
        guard.unlink(missing_ok=True)
        os.close(fd)


def _lock(guard: Path) -> int:
    """Return a descriptor that holds the lock; whoever held it before has removed its file."""
    while True:
        fd = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if guard.stat().st_ino == os.fstat(fd).st_ino:
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _local_page(url: str, limit: int) -> Page | None:
    found = read_file_page(url, limit)
    return None if found is None else Page(url=public_url(url), content_type=found[0], body=found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered: status, headers by lower-case name, body; ``url`` is that after redirects."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True)
class Web:
    """Single requests with any method, for stores that HTTP reaches; safe for several threads at once.

    ``timeout`` in seconds is for one read, write or connect. No status is an error here.
    """

    timeout: float = 60.0
    connections: int = 64
    _clients: list[httpx.Client] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ask(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        limit: int = MAX_PAGE,
        into: bytearray | None = None,
    ) -> Answer:
        """Return the answer, its body of at most ``limit`` bytes; redirects of GET are followed.

        With ``into`` the body of a 200 or 206 is appended to it as it comes, so that a cut loses nothing.
        Raises ``TransferError`` (E-HTTP-UNREACHABLE, E-HTTP-CUT), ``IntegrityError`` (E-SIZE).
        """
        import httpx  # noqa: PLC0415 - see HttpFetcher._stream

        shown = public_url(url)
        with self._lock:
            if not self._clients:
                bounds = httpx.Limits(max_connections=self.connections)
                self._clients.append(httpx.Client(timeout=self.timeout, max_redirects=10, limits=bounds))
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        content = bytes(body) if isinstance(body, memoryview) else body
        try:
            with self._clients[0].stream(
                method,
                url,
                headers=sent,
                content=content or None,
                follow_redirects=method in ("GET", "HEAD"),
                auth=None if "Authorization" in sent else _auth_of(url),
            ) as answer:
                found = bytearray() if into is None or answer.status_code not in (200, 206) else into
                before = len(found)
                for block in answer.iter_raw():
                    found += block
                    if len(found) - before > limit:
                        raise IntegrityError("E-SIZE", shown, expected=f"at most {limit} bytes", found="more")
                kept = {name.lower(): text for name, text in answer.headers.items()}
                data = b"" if found is into else bytes(found)
                return Answer(status=answer.status_code, headers=kept, body=data, url=str(answer.url))
        except httpx.InvalidURL as fault:
            raise TransferError("E-HTTP-UNREACHABLE", shown, expected="a URL", found=str(fault)) from fault
        except httpx.HTTPError as fault:
            early = isinstance(fault, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError))
            raise TransferError(
                "E-HTTP-UNREACHABLE" if early else "E-HTTP-CUT",
                shown,
                found=str(fault) or type(fault).__name__,
                hint="check network and proxy, then run the same command again: it goes on",
            ) from fault

    def close(self) -> None:
        """Close the connections that are kept open between requests."""
        with self._lock:
            while self._clients:
                self._clients.pop().close()
