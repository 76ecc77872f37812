"""Reading what a package index lists for one project: PEP 691 (JSON) and PEP 503 (HTML), also flat folders.

Everything on such a page is hostile: file names are checked as names, URLs must be http, https or file,
a hash that is no sha256 is no hash. A line that cannot be read is left out, as PyPA's tools do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from envbundle.errors import EnvbundleError, IntegrityError
from envbundle.spec.digest import Digest
from envbundle.spec.names import RelPath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envbundle.host.fetch import Page

MAX_FILES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """One file of a page. ``url`` is absolute and may hold credentials; ``size`` in bytes where stated.

    ``yanked`` is None for a file that is not, else the reason (may be empty). ``core_metadata`` says that
    ``<url>.metadata`` exists.
    """

    filename: str
    url: str
    sha256: Digest | None = None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None
    core_metadata: bool = False


def parse_page(page: Page, base_url: str) -> tuple[IndexFile, ...]:
    """Return the files of an index page; ``base_url`` is what relative URLs are relative to.

    Raises ``IntegrityError`` (E-INDEX-PAGE) for a page that is neither form.
    """
    if page.content_type.endswith("+json") or page.content_type == "application/json":
        return _parse_json(page, base_url)
    return _parse_html(page, base_url)


def _parse_json(page: Page, base_url: str) -> tuple[IndexFile, ...]:
    try:
        value = json.loads(page.body)
        files = value["files"]
        version = str(value.get("meta", {}).get("api-version", "1.0"))
        readable = isinstance(files, list) and version.startswith("1.")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise IntegrityError(
            "E-INDEX-PAGE", page.url, expected="a PEP 691 page of version 1", found=repr(fault)[:200]
        ) from fault
    if not readable:
        raise IntegrityError(
            "E-INDEX-PAGE", page.url, expected="a PEP 691 page of version 1", found=version[:40]
        )
    found = (_from_json(item, base_url) for item in files[:MAX_FILES])
    return tuple(item for item in found if item is not None)


def _from_json(item: Any, base_url: str) -> IndexFile | None:
    if not isinstance(item, dict):
        return None
    yanked = item.get("yanked", False)
    hashes = item.get("hashes")
    size = item.get("size")
    metadata = item.get("core-metadata", item.get("dist-info-metadata", False))
    return _checked(
        filename=item.get("filename"),
        url=item.get("url"),
        base_url=base_url,
        sha256=hashes.get("sha256") if isinstance(hashes, dict) else None,
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        requires_python=item.get("requires-python"),
        yanked=yanked if isinstance(yanked, str) else "" if yanked else None,
        core_metadata=bool(metadata),
    )


class _Anchors(HTMLParser):
    """Collects (attributes, text) of every anchor, and the base URL."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base: str | None = None
        self.anchors: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "base" and self.base is None:
            self.base = dict(attrs).get("href")
        elif tag == "a" and len(self.anchors) < MAX_FILES:
            self._open, self._text = dict(attrs), ""

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open is not None:
            self.anchors.append((self._open, self._text.strip()))
            self._open = None


def _parse_html(page: Page, base_url: str) -> tuple[IndexFile, ...]:
    reader = _Anchors()
    reader.feed(page.body.decode("utf-8", "replace"))
    reader.close()
    if not reader.anchors and b"<" not in page.body and page.body.strip():
        raise IntegrityError("E-INDEX-PAGE", page.url, expected="an HTML page", found=ascii(page.body[:60]))
    base = urljoin(base_url, reader.base) if reader.base else base_url
    return tuple(_from_html(reader.anchors, base))


def _from_html(anchors: list[tuple[dict[str, str | None], str]], base_url: str) -> Iterator[IndexFile]:
    for attributes, _text in anchors:
        href = attributes.get("href")
        if not href:
            continue
        url, fragment = urldefrag(href)
        algorithm, _, value = fragment.partition("=")
        try:
            name = unquote(urlsplit(url).path).rpartition("/")[2]
        except ValueError:
            continue
        file = _checked(
            filename=name,
            url=url,
            base_url=base_url,
            sha256=value if algorithm == "sha256" else None,
            size=None,
            requires_python=attributes.get("data-requires-python"),
            yanked=(attributes["data-yanked"] or "") if "data-yanked" in attributes else None,
            core_metadata="data-core-metadata" in attributes or "data-dist-info-metadata" in attributes,
        )
        if file is not None:
            yield file


def _checked(
    *,
    filename: Any,
    url: Any,
    base_url: str,
    sha256: Any,
    size: int | None,
    requires_python: Any,
    yanked: str | None,
    core_metadata: bool,
) -> IndexFile | None:
    """Return the file, or None where its name or URL is unusable."""
    if not isinstance(filename, str) or not isinstance(url, str) or "/" in filename:
        return None
    try:
        absolute = urldefrag(urljoin(base_url, url))[0]
        scheme = urlsplit(absolute).scheme
        name = RelPath(filename)
    except (ValueError, EnvbundleError):
        return None
    # A page from the network may not point at this machine's files.
    if scheme not in ("http", "https") and not (scheme == "file" == urlsplit(base_url).scheme):
        return None
    digest = None
    if isinstance(sha256, str):
        try:
            digest = Digest(sha256.lower())
        except EnvbundleError:
            return None
    return IndexFile(
        filename=str(name),
        url=absolute,
        sha256=digest,
        size=size,
        requires_python=requires_python if isinstance(requires_python, str) else None,
        yanked=yanked,
        core_metadata=core_metadata,
    )
