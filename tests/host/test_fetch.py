"""Fetching from a real server that cuts, lies and wants a password."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import IntegrityError, TransferError
from envbundle.host.fetch import HttpFetcher
from envbundle.host.file_urls import public_url
from envbundle.spec.digest import Digest
from tests.resolver.index_server import Index, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 4096
SHA = Digest.of(DATA)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    path = tmp_path / "x-1.0-py3-none-any.whl"
    path.write_bytes(DATA)
    with serving() as served:
        served.add(path)
        yield served


@pytest.fixture
def fetcher() -> Iterator[HttpFetcher]:
    made = HttpFetcher(timeout=10)
    yield made
    made.close()


def url_of(index: Index) -> str:
    return f"{index.url}/files/x-1.0-py3-none-any.whl"


def test_an_artifact_lands_under_its_name_alone(index: Index, fetcher: HttpFetcher, tmp_path: Path) -> None:
    destination = tmp_path / "cache" / "final"
    fetcher.fetch(url_of(index), destination, sha256=SHA, size=len(DATA))
    assert destination.read_bytes() == DATA
    assert [p.name for p in destination.parent.iterdir() if p.is_file()] == ["final"]
    assert not list((destination.parent / ".incoming").glob("*.part"))


@pytest.mark.parametrize("ranges", [True, False], ids=["range", "no range"])
def test_a_cut_download_goes_on_in_the_next_run(
    index: Index, fetcher: HttpFetcher, tmp_path: Path, ranges: bool
) -> None:
    index.cut_after, index.ranges = 700_000, ranges
    destination = tmp_path / "cache" / "final"
    with pytest.raises(TransferError) as caught:
        fetcher.fetch(url_of(index), destination, sha256=SHA, size=len(DATA))
    assert caught.value.code == "E-DOWNLOAD-CUT"
    assert not destination.exists()
    assert (tmp_path / "cache/.incoming" / f"{SHA.hex}.part").stat().st_size == 700_000
    HttpFetcher(timeout=10).fetch(url_of(index), destination, sha256=SHA, size=len(DATA))
    assert destination.read_bytes() == DATA
    assert index.log[-1].endswith("bytes=700000-")


def test_a_file_that_changed_since_the_cut_is_fetched_from_its_start(
    index: Index, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    part = tmp_path / "cache/.incoming" / f"{SHA.hex}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another file" * 100)
    destination = tmp_path / "cache/final"
    fetcher.fetch(url_of(index), destination, sha256=SHA, size=len(DATA))
    assert destination.read_bytes() == DATA


def test_a_part_longer_than_the_file_is_thrown_away(
    index: Index, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    part = tmp_path / "cache/.incoming" / f"{SHA.hex}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA + b"more")
    destination = tmp_path / "cache/final"
    fetcher.fetch(url_of(index), destination, sha256=SHA)
    assert destination.read_bytes() == DATA


@pytest.mark.parametrize(
    ("sha256", "size", "code"),
    [
        (Digest.of(b"other"), len(DATA), "E-HASH"),
        (SHA, len(DATA) - 1, "E-SIZE"),
        (SHA, len(DATA) + 1, "E-SIZE"),
    ],
    ids=["hash", "longer", "shorter"],
)
def test_wrong_bytes_leave_nothing(
    index: Index, fetcher: HttpFetcher, tmp_path: Path, sha256: Digest, size: int, code: str
) -> None:
    destination = tmp_path / "cache/final"
    with pytest.raises(IntegrityError) as caught:
        fetcher.fetch(url_of(index), destination, sha256=sha256, size=size)
    assert caught.value.code == code
    assert not destination.exists()
    assert not list((tmp_path / "cache/.incoming").glob("*.part"))


def test_nobody_there(fetcher: HttpFetcher, tmp_path: Path) -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(TransferError) as caught:
        fetcher.page(f"{url}/simple/x/")
    assert caught.value.code == "E-INDEX-UNREACHABLE"
    with pytest.raises(TransferError) as caught:
        fetcher.fetch(f"{url}/files/x", tmp_path / "c/x", sha256=SHA)
    assert caught.value.code == "E-INDEX-UNREACHABLE"


@pytest.mark.parametrize("status", [500, 503, 403])
def test_an_index_that_answers_with_an_error(index: Index, fetcher: HttpFetcher, status: int) -> None:
    index.status = status
    with pytest.raises(TransferError) as caught:
        fetcher.page(f"{index.simple}/x/")
    assert (caught.value.code, caught.value.found) == ("E-INDEX-UNREACHABLE", f"HTTP {status}")


def test_a_file_that_is_gone(index: Index, fetcher: HttpFetcher, tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetcher.fetch(f"{index.url}/files/y", tmp_path / "c/y", sha256=SHA)
    assert caught.value.code == "E-ARTIFACT-GONE"


def test_an_unknown_project_is_no_error(index: Index, fetcher: HttpFetcher) -> None:
    assert fetcher.page(f"{index.simple}/unknown/") is None


def test_a_page_beyond_its_bound(index: Index, fetcher: HttpFetcher) -> None:
    with pytest.raises(IntegrityError) as caught:
        fetcher.page(f"{index.simple}/x/", limit=20)
    assert caught.value.code == "E-SIZE"


def test_offline_asks_nobody(index: Index, tmp_path: Path) -> None:
    fetcher = HttpFetcher(offline=True)
    with pytest.raises(TransferError) as page:
        fetcher.page(f"{index.simple}/x/")
    with pytest.raises(TransferError) as file:
        fetcher.fetch(url_of(index), tmp_path / "c/x", sha256=SHA)
    assert (page.value.code, file.value.code) == ("E-OFFLINE", "E-OFFLINE")
    assert index.log == []


def test_credentials_come_from_netrc_and_are_never_shown(
    index: Index, fetcher: HttpFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.user = ("me", "s3cret")
    with pytest.raises(TransferError) as caught:
        fetcher.page(f"{index.simple}/x/")
    assert caught.value.found == "HTTP 401"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    page = fetcher.page(f"{index.simple}/x/")
    assert page is not None
    assert "s3cret" not in page.url


def test_credentials_in_a_url_are_used_and_never_shown(index: Index, fetcher: HttpFetcher) -> None:
    index.user = ("me", "s3cret")
    host = index.url.removeprefix("http://")
    page = fetcher.page(f"http://me:s3cret@{host}/simple/x/")
    assert page is not None
    assert page.url == f"{index.simple}/x/"
    index.user = ("other", "one")
    with pytest.raises(TransferError) as caught:
        fetcher.page(f"http://me:s3cret@{host}/simple/x/")
    assert "s3cret" not in str(caught.value)


def test_public_url() -> None:
    assert public_url("https://u:p@host:1/a/b?token=1#sha256=2") == "https://host:1/a/b"


def test_two_at_once_fetch_one_artifact_once(index: Index, tmp_path: Path) -> None:
    destination = tmp_path / "cache/final"

    def go() -> None:
        HttpFetcher(timeout=10).fetch(url_of(index), destination, sha256=SHA, size=len(DATA))

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert destination.read_bytes() == DATA
    assert len(index.asked("/files/")) == 1


def test_file_urls_are_checked_too(tmp_path: Path, fetcher: HttpFetcher) -> None:
    source = tmp_path / "x"
    source.write_bytes(DATA)
    fetcher.fetch(source.as_uri(), tmp_path / "c/x", sha256=SHA, size=len(DATA))
    assert (tmp_path / "c/x").read_bytes() == DATA
    with pytest.raises(IntegrityError) as caught:
        fetcher.fetch(source.as_uri(), tmp_path / "c/y", sha256=Digest.of(b""))
    assert caught.value.code == "E-HASH"
