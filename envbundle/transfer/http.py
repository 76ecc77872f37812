"""``https://host/folder``: a store's folder behind any static file server; it can be read and not written.

* A blob that was cut on the way goes on by a Range request, up to four times; a server without them sends
  it anew.
* Every blob is hashed here; names lead nowhere but to ``oci-layout``, ``index.json`` and ``blobs/sha256/``.
* Credentials come from the URL or netrc and go to their own host only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from envbundle.errors import FormatError, HostError, TransferError
from envbundle.host.fetch import Answer, Web
from envbundle.host.file_urls import public_url
from envbundle.spec.digest import Digest
from envbundle.store.blob import check_blob, missing_blob, wrong_size
from envbundle.store.bundle import read_image
from envbundle.store.oci import INDEX_FILE, LAYOUT_FILE, MAX_INDEX, ImageIndex
from envbundle.store.protocol import MAX_BLOB

from .index import parse_layout

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Iterator

    from envbundle.store.oci import TagEntry

    from .options import TransferOptions

TRIES = 4
_RANGE = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")


def open_http(path: str, create: bool, _options: TransferOptions) -> HttpStore:
    """Return the store at the URL ``path``; raises ``HostError`` (E-READ-ONLY) where it should be written."""
    if create:
        raise read_only(public_url(path))
    return HttpStore(path)


def read_only(name: str) -> HostError:
    """Return the error for writing to what can only be read."""
    return HostError(
        "E-READ-ONLY",
        name,
        expected="a store that can be written",
        found="a web server",
        hint="copy to a folder that the server serves, by ssh:// for instance, or to oci://",
    )


def refused(answer: Answer, name: str) -> TransferError:
    """Return the error for a status that is none of those expected."""
    status = answer.status
    hint = "run the same command again"
    if status in (401, 403):
        hint = "give credentials for this host: netrc, or the login of skopeo, podman or docker"
    return TransferError("E-HTTP-STATUS", name, expected="HTTP 200", found=f"HTTP {status}", hint=hint)


def get_blob(ask: Callable[..., Answer], url: str, digest: Digest, size: int, name: str) -> bytes:
    """Return a blob of ``size`` bytes, in up to four goes, each from where the last was cut."""
    have = bytearray()
    for left in reversed(range(TRIES)):
        before = len(have)
        headers = {"Range": f"bytes={before}-"} if before else {}
        try:
            answer = ask("GET", url, headers=headers, limit=size + 1, into=have)
        except TransferError as fault:
            if not left or fault.code != "E-HTTP-CUT":
                raise
            continue
        if answer.status in (404, 410):
            raise missing_blob(digest, name)
        if answer.status == 206:
            match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            if match is None or int(match[1]) != before:
                raise TransferError("E-HTTP-CUT", name, expected=f"bytes from {before} on", found="others")
        elif answer.status == 200:
            del have[:before]  # the whole file came, not the rest of it
        else:
            raise refused(answer, name)
        break
    return check_blob(bytes(have), digest, size, name)


class HttpStore:
    """The store whose folder has the URL ``url``."""

    def __init__(self, url: str, web: Web | None = None) -> None:
        parts = urlsplit(url)
        path = quote(unquote(parts.path)).rstrip("/") + "/"
        self._url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self.name = public_url(self._url).rstrip("/")
        self._web = web or Web()

    def _at(self, name: str) -> str:
        return self._url + name

    def _blob(self, digest: Digest) -> str:
        return self._at(f"blobs/sha256/{digest.hex}")

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``; asks with HEAD."""
        answer = self._web.ask("HEAD", self._blob(digest), limit=0)
        if answer.status not in (200, 404, 410):
            raise refused(answer, self.name)
        return answer.status == 200 and answer.headers.get("content-length") == str(size)

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``."""
        return frozenset(digest for digest, size in blobs if not self.has(digest, size))

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        if size > MAX_BLOB:
            raise wrong_size(digest, self.name, MAX_BLOB, str(size))
        return get_blob(self._web.ask, self._blob(digest), digest, size, self.name)

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``; what is larger than any blob is refused."""
        answer = self._web.ask("GET", self._blob(digest), limit=MAX_BLOB)
        if answer.status in (404, 410):
            raise missing_blob(digest, self.name)
        if answer.status != 200:
            raise refused(answer, self.name)
        return Digest.of(answer.body)

    def put(self, data: bytes) -> Digest:
        """Refuse: see ``read_only``."""
        raise read_only(f"{self.name}, {len(data)} bytes")

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``: a web server lists no folder, so these are what the index reaches."""
        found: dict[Digest, int] = {}
        for entry in self.tags():
            found[entry.manifest] = entry.size
            found.update((item.digest, item.size) for item in read_image(self, entry).items())
        yield from sorted(found.items())

    def remove(self, digest: Digest) -> None:
        """Refuse: see ``read_only``."""
        raise read_only(f"{self.name}: {digest}")

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``."""
        return parse_layout(dict(self.documents()))

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """Refuse: see ``read_only``."""
        raise read_only(f"{self.name}: {INDEX_FILE} of {len(change(self.read_index()).entries)} entries")

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``."""
        return tuple((name, self._document(name)) for name in (LAYOUT_FILE, INDEX_FILE))

    def _document(self, name: str) -> bytes:
        answer = self._web.ask("GET", self._at(name), limit=MAX_INDEX)
        if answer.status in (404, 410):
            raise FormatError(
                "E-STORE-LAYOUT",
                f"{self.name}/{name}",
                expected="a file of every OCI image layout",
                found=f"HTTP {answer.status}",
                hint="check the URL: it is that of the store's folder",
            )
        if answer.status != 200:
            raise refused(answer, self.name)
        return answer.body

    def extras(self) -> tuple[str, ...]:
        """See ``Store.extras``: what a web server does not list is not known."""
        return ()

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        answer = self._web.ask("GET", self._at(quote(name)), limit=MAX_BLOB)
        if answer.status != 200:
            raise HostError("E-NOT-FOUND", f"{self.name}/{name}", expected="a file", found="none")
        return Digest.of(answer.body)

    def put_extra(self, name: str, data: bytes) -> None:
        """Refuse: see ``read_only``."""
        raise read_only(f"{self.name}/{name}, {len(data)} bytes")

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``."""
        return ()

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Refuse: see ``read_only``."""
        raise read_only(self.name)

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Refuse: see ``read_only``."""
        raise read_only(self.name)

    def free(self) -> int | None:
        """See ``Store.free``."""
        return None

    def close(self) -> None:
        """Close the connections."""
        self._web.close()
