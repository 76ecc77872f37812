"""Indexes that do not answer, lie or stop in the middle; yanked files; markers of the target."""

from __future__ import annotations

import shutil
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ..builders import gpu_library, modules
from ..resolver.index_server import Index, serving
from .kit import OLD_PYTHON, PLATFORM, PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .kit import Case

LOOPBACK = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as served:
        yield served


def _asks(case: Case, url: str, *requirements: str, complete: bool = False, more: str = "") -> None:
    case.env |= LOOPBACK
    resolve = f'complete = {str(complete).lower()}\n[[resolve.index]]\nname = "i"\nurl = "{url}"\ndefault = true\n{more}'
    case.manifest(*requirements, resolve=resolve)


def _dead() -> str:
    """Return a URL at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}/simple"


@contextmanager
def _raw(answer: bytes) -> Iterator[str]:
    """Serve these bytes to everybody and hang up."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                one, _ = listener.accept()
            except TimeoutError:
                continue
            with one:
                one.recv(65536)
                one.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
    finally:
        stop.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
def test_4_nobody_listens(case: Case, complete: bool) -> None:
    url = _dead()
    _asks(case, url, "app==1.0", complete=complete)
    found = case.refused(4, "E-INDEX-UNREACHABLE", "lock")
    assert url in found["subject"]
    assert found["found"]
    assert found["hint"]


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
def test_4_no_such_host(case: Case, complete: bool) -> None:
    _asks(case, "http://index.invalid/simple", "app==1.0", complete=complete)
    assert "index.invalid" in case.refused(4, "E-INDEX-UNREACHABLE", "lock")["subject"]


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503])
def test_4_an_index_that_answers_with_an_error(case: Case, index: Index, status: int, complete: bool) -> None:
    index.status = status
    _asks(case, index.simple, "app==1.0", complete=complete)
    found = case.refused(4, "E-INDEX-UNREACHABLE", "lock")
    assert found["found"] == f"HTTP {status}"


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n<html>",
        b"HTTP/1.1 301 Moved\r\nLocation: /simple/app/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["nothing", "half a header", "no HTTP", "half a page", "in circles", "to nowhere"],
)
def test_4_answers_that_are_none(case: Case, answer: bytes, complete: bool) -> None:
    with _raw(answer) as url:
        _asks(case, url, "app==1.0", complete=complete)
        case.refused(4, "E-INDEX-UNREACHABLE", "lock")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/vnd.pypi.simple.v1+json", b"{"),
        ("application/vnd.pypi.simple.v1+json", b'{"files": 3}'),
        ("application/vnd.pypi.simple.v1+json", b'{"meta":{"api-version":"9.0"},"files":[]}'),
        ("application/json", b"[" * 10000),
        ("text/html", b"just text"),
    ],
)
def test_3_a_page_that_is_none(case: Case, kind: str, body: bytes) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    with _raw(answer) as url:
        _asks(case, url, "app==1.0", complete=True)
        assert url in case.refused(3, "E-INDEX-PAGE", "lock")["subject"]


def test_4_the_second_index_is_dead(case: Case, index: Index) -> None:
    index.add(case.wheel("app", "1.0"))
    url = _dead()
    _asks(case, index.simple, "app==1.0", more=f'[[resolve.index]]\nname = "two"\nurl = "{url}"')
    assert url in case.refused(4, "E-INDEX-UNREACHABLE", "lock")["subject"]


@pytest.mark.parametrize("json", [False, True], ids=["html", "json"])
def test_4_a_cut_download_is_gone_on_with(case: Case, index: Index, json: bool) -> None:
    """Cut at lock: exit 4, nothing written; the next run asks for the rest alone."""
    index.json = json
    index.add(case.wheel("app", "1.0", {"app/big.bin": bytes(range(256)) * 2000}, stored=["app/big.bin"], metadata_lines=["Keywords: x"]))
    _asks(case, index.simple, "app==1.0", complete=True)
    index.cut_after = 100_000
    found = case.refused(4, "E-DOWNLOAD-CUT", "lock")
    assert "app-1.0-py3-none-any.whl" in found["subject"]
    assert "100000" in found["found"]
    index.log.clear()
    case.ok("lock")
    assert [line.rpartition(" ")[2] for line in index.asked("GET /files") if "bytes=100000" in line] == ["bytes=100000-"]


def test_4_downloads_that_are_always_cut(case: Case, index: Index) -> None:
    """The solver gives up on the file first; that the network is at fault is told all the same."""
    index.add(case.wheel("app", "1.0", {"app/big.bin": bytes(range(256)) * 2000}, stored=["app/big.bin"]))
    _asks(case, index.simple, "app==1.0")
    index.cut_after, index.cut_always = 2000, True
    case.env["UV_HTTP_RETRIES"] = "0"
    case.refused(4, "E-DOWNLOAD-CUT", "lock")
    index.cut_after = None
    case.ok("lock")


def test_4_a_cut_download_at_pack(case: Case, index: Index) -> None:
    index.add(case.wheel("app", "1.0", {"app/big.bin": bytes(range(256)) * 2000}, stored=["app/big.bin"]))
    _asks(case, index.simple, "app==1.0", complete=True)
    case.ok("lock")
    shutil.rmtree(case.root / "cache")
    index.cut_after = 50_000
    case.refused(4, "E-DOWNLOAD-CUT", "pack", "--no-bootstrap", "--key", "key")
    assert not case.store.exists()
    index.log.clear()
    case.ok("pack", "--no-bootstrap", "--key", "key")
    assert index.log == ["GET /files/app-1.0-py3-none-any.whl bytes=50000-"]
    shutil.rmtree(case.root / "cache")
    index.log.clear()
    index.cut_after, index.ranges = 50_000, False  # a server without ranges sends it all again
    shutil.rmtree(case.store)
    case.refused(4, "E-DOWNLOAD-CUT", "pack", "--no-bootstrap", "--key", "key")
    case.ok("pack", "--no-bootstrap", "--key", "key")


def test_4_an_index_that_went_away_between_lock_and_pack(case: Case) -> None:
    with serving() as index:
        index.add(case.wheel("app", "1.0"))
        _asks(case, index.simple, "app==1.0", complete=True)
        case.ok("lock")
    shutil.rmtree(case.root / "cache")
    case.refused(4, "E-INDEX-UNREACHABLE", "pack", "--key", "key")
    case.refused(4, "E-OFFLINE", "pack", "--key", "key", "--offline")


def test_4_a_file_that_the_index_lost(case: Case, index: Index) -> None:
    index.add(case.wheel("app", "1.0"))
    _asks(case, index.simple, "app==1.0", complete=True)
    case.ok("lock")
    shutil.rmtree(case.root / "cache")
    index.files.clear()
    found = case.refused(4, "E-ARTIFACT-GONE", "pack", "--key", "key")
    assert found["subject"].endswith("/files/app-1.0-py3-none-any.whl")


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize(("wrong", "code"), [({"sha256": "0" * 64}, "E-HASH"), ({"size": 7}, "E-SIZE"), ({"size": 1 << 40}, "E-SIZE")])
def test_3_an_index_that_lies(case: Case, index: Index, wrong: dict[str, object], code: str, complete: bool) -> None:
    index.add(case.wheel("app", "1.0"), **wrong)
    _asks(case, index.simple, "app==1.0", complete=complete)
    found = case.refused(3, code, "lock")
    assert "app-1.0-py3-none-any.whl" in found["subject"]
    assert found["expected"] != found["found"]
    assert not list((case.root / "cache/artifacts").glob("[0-9a-f]*"))


def test_3_bytes_that_changed_on_the_index_after_the_lock(case: Case, index: Index) -> None:
    path = case.wheel("app", "1.0")
    index.add(path)
    _asks(case, index.simple, "app==1.0", complete=True)
    case.ok("lock")
    shutil.rmtree(case.root / "cache")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    case.refused(3, "E-HASH", "pack", "--key", "key")
    path.write_bytes(data + b"x")
    case.refused(3, "E-SIZE", "pack", "--key", "key")


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize("keep", [100, -1, 0])
def test_3_a_truncated_wheel_on_an_index(case: Case, index: Index, keep: int, complete: bool) -> None:
    path = case.wheel("app", "1.0")
    path.write_bytes(path.read_bytes()[:keep])
    index.add(path)
    _asks(case, index.simple, "app==1.0", complete=complete)
    assert "app-1.0-py3-none-any.whl" in case.refused(3, "E-WHEEL-ZIP", "lock")["subject"]


# --- B60, B61


@pytest.mark.parametrize("json", [False, True], ids=["html", "json"])
def test_B60_a_pinned_file_that_was_yanked(case: Case, index: Index, json: bool) -> None:
    index.json = json
    index.add(case.wheel("app", "1.0"), yanked="broken on Tuesdays")
    _asks(case, index.simple, "app==1.0")
    found = case.ok("lock").one("W-YANKED")
    assert found["subject"] == "app-1.0-py3-none-any.whl"
    assert "broken on Tuesdays" in found["found"]
    done = case.ok("lock")
    assert done.answer["targets"]["sm_103"]["status"] == "unchanged"
    case.ok("pack", "--key", "key")


@pytest.mark.parametrize("requirement", ["app>=1", "app", "app<3", "app==1.*", "app~=1.0"])
def test_B60_only_yanked_files_for_a_range(case: Case, index: Index, requirement: str) -> None:
    index.add(case.wheel("app", "1.0"), yanked="broken")
    _asks(case, index.simple, requirement)
    found = case.refused(1, "E-YANKED", "lock")
    assert "broken" in found["found"]
    assert "app==1.0" in found["hint"]
    index.add(case.wheel("app", "1.0.1"))
    case.ok("lock")
    assert 'version = "1.0.1"' in (case.folder / "pylock.sm_103.toml").read_text()


def test_B60_a_yanked_file_of_the_lock_stays_only_if_pinned(case: Case, index: Index) -> None:
    index.add(case.wheel("app", "1.0"))
    _asks(case, index.simple, "app>=1")
    case.ok("lock")
    index.files["app-1.0-py3-none-any.whl"].yanked = "gone bad"
    case.ok("pack", "--key", "key")  # pinned by hash: it goes on


OLD_IS_NEWER = int(OLD_PYTHON.partition(".")[2]) > int(PYTHON.partition(".")[2])
MARKERS = {
    'x; platform_machine == "aarch64"': True,
    'x; platform_machine == "x86_64"': False,
    f'x; python_version == "{OLD_PYTHON}"': True,
    f'x; python_version == "{PYTHON}"': False,
    f'x; python_full_version >= "{PYTHON}.99"': OLD_IS_NEWER,
    'x; sys_platform == "linux"': True,
    'x; sys_platform == "darwin"': False,
    'x; os_name == "posix" and implementation_name == "cpython"': True,
    'x; platform_system == "Windows"': False,
    'x; extra == "gpu"': False,
}


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
@pytest.mark.parametrize("requirement", MARKERS)
def test_B61_markers_are_the_targets(case: Case, requirement: str, complete: bool) -> None:
    """Locked here for another processor and another Python."""
    case.wheel("x", "1.0")
    case.wheel("always", "1.0")
    pinned = requirement.replace("x;", "x==1.0;")
    case.manifest(
        "always==1.0",
        pinned,
        python=OLD_PYTHON,
        platform=PLATFORM.replace("x86_64", "aarch64"),
        resolve=f'find-links = ["wheels"]\nno-index = true\ncomplete = {str(complete).lower()}',
    )
    case.locked()
    assert ('name = "x"' in (case.folder / "pylock.sm_103.toml").read_text()) is MARKERS[requirement]


@pytest.mark.parametrize("marker", ['platform_machine == "aarch64"', f'python_version == "{OLD_PYTHON}"'])
def test_B61_markers_of_dependencies(case: Case, marker: str) -> None:
    case.wheel("x", "1.0")
    case.wheel("app", "1.0", requires=[f"x; {marker}"])
    case.manifest("app==1.0", python=OLD_PYTHON, platform=PLATFORM.replace("x86_64", "aarch64"))
    case.locked()
    assert 'name = "x"' in (case.folder / "pylock.sm_103.toml").read_text()


@pytest.mark.parametrize("name", ["platform_release", "platform_version"])
def test_B61_what_only_a_running_machine_knows(case: Case, name: str) -> None:
    case.wheel("x", "1.0")
    case.manifest(f"x==1.0; {name} >= '5'")
    case.refused(2, "E-MARKER", "lock")


def test_B61_wheels_of_the_target_and_not_of_this_machine(case: Case) -> None:
    files = {"kern/_k.so": gpu_library(modules("sm_103"))}
    case.wheel("kern", "1.0", files, tag="py3-none-manylinux_2_17_x86_64")
    case.wheel("kern", "1.0", files, tag="py3-none-manylinux_2_17_aarch64")
    case.manifest("kern==1.0", platform=PLATFORM.replace("x86_64", "aarch64"))
    case.locked()
    text = (case.folder / "pylock.sm_103.toml").read_text()
    assert "kern-1.0-py3-none-manylinux_2_17_aarch64.whl" in text
    assert "manylinux_2_17_x86_64.whl" not in text
