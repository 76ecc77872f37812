"""verify PREFIX: set equality both ways, and the record itself (B77)."""


from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import EnvbundleError, IntegrityError, UserInputError
from envbundle.host.run import run
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import require_clean, source_of, verify_environment
from envbundle.spec.digest import Digest

from .builders import LATER, NOW, SITE, output, sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TAG = sys.implementation.cache_tag
LATE = f"{SITE}/app/late.py"
PYC = f"{SITE}/app/__pycache__/late.{TAG}.pyc"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    install(*sample(), InstallOptions(prefix=tmp_path / "my env"), now=NOW)
    return tmp_path / "my env"


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def keep_times(path: Path, change: Callable[[], object]) -> None:
    status = path.stat()
    change()
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path, *, link: str = "") -> None:
    """Put a link, or a folder, where ``path`` was."""
    path.unlink()
    if link:
        path.symlink_to(link)
    else:
        path.mkdir()


def drop(prefix: Path) -> None:
    (prefix / LATE).unlink()
    record(prefix, lambda v: v["files"].remove(row(v, LATE)))


def add(prefix: Path) -> None:
    (prefix / "bin/evil").write_text("x")
    record(prefix, lambda v: v["files"].append({**row(v, "bin/app"), "path": "bin/evil", "fixer": ""}))


def change_lists(prefix: Path, *, gone: bool) -> None:
    for path in (prefix / ".envbundle/layers").iterdir():
        path.unlink() if gone else rewrite(path, b"{}")


DRIFT: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "edited": (lambda p: rewrite(p / LATE, b"value = 'two'\n"), "modified", [LATE]),
    "same-size-and-time": (
        lambda p: keep_times(p / LATE, lambda: rewrite(p / LATE, b"value = 'two'\n")),
        "modified",
        [LATE],
    ),
    "mode": (lambda p: (p / SITE / "lib/tool").chmod(0o644), "modified", [f"{SITE}/lib/tool"]),
    "gone": (lambda p: (p / LATE).unlink(), "missing", [LATE]),
    "extra": (lambda p: (p / SITE / "app/new.py").write_text("x"), "extra", [f"{SITE}/app/new.py"]),
    "extra-link": (lambda p: (p / "bin/x").symlink_to("/bin/sh"), "extra", ["bin/x"]),
    "link-moved": (lambda p: replace(p / "bin/python", link="/bin/sh"), "modified", ["bin/python"]),
    "file-became-a-link": (lambda p: replace(p / LATE, link="cli.py"), "modified", [LATE]),
    "file-became-a-folder": (lambda p: replace(p / LATE), "missing", [LATE]),
    "config": (lambda p: rewrite(p / "pyvenv.cfg", b"home = /x\n"), "modified", ["pyvenv.cfg"]),
    "extra-bytecode": (
        lambda p: (p / SITE / f"app/__pycache__/cli.{TAG}.opt-1.pyc").write_bytes(b"\0" * 64),
        "extra",
        [f"{SITE}/app/__pycache__/cli.{TAG}.opt-1.pyc"],
    ),
    "bytecode-without-source": (
        lambda p: (p / SITE / f"app/__pycache__/ghost.{TAG}.pyc").write_bytes((p / PYC).read_bytes()),
        "extra",
        [f"{SITE}/app/__pycache__/ghost.{TAG}.pyc"],
    ),
    "other-code-under-a-right-header": (
        lambda p: rewrite(p / PYC, (p / PYC).read_bytes().replace(b"one", b"two")),
        "modified",
        [PYC],
    ),
}


@pytest.mark.parametrize(("change", "kind", "paths"), DRIFT.values(), ids=DRIFT.keys())
def test_drift(prefix: Path, change: Callable[[Path], object], kind: str, paths: list[str]) -> None:
    change(prefix)
    report = verify_environment(prefix, runner=run)
    found = {"modified": report.modified, "missing": report.missing, "extra": report.extra}
    if kind == "missing" or paths[0] == LATE:  # bytecode of what is gone matches nothing
        found = {key: tuple(path for path in value if path != PYC) for key, value in found.items()}
    assert {key: list(value) for key, value in found.items() if value and key == kind} == {kind: paths}
    if kind == "modified" and "link" not in str(paths):
        assert found["extra"] == ()
    assert not report.ok
    with pytest.raises(IntegrityError):
        require_clean(report)


def test_quick_looks_at_sizes_and_times(prefix: Path) -> None:
    assert verify_environment(prefix, quick=True).ok
    rewrite(prefix / LATE, b"value = 'two'\n")
    assert verify_environment(prefix, quick=True).modified == (LATE,)


def test_a_touched_file_is_no_drift_when_bytes_are_compared(prefix: Path) -> None:
    os.utime(prefix / LATE, ns=(0, 0))
    assert verify_environment(prefix).ok
    assert not verify_environment(prefix, quick=True).ok


def test_bytecode_that_python_wrote_is_no_drift(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(*sample(), InstallOptions(prefix=prefix, compile=False), now=NOW)
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    output(prefix / "bin/python", "-c", "import app.cli, app.late, lib", env=env)
    output(prefix / "bin/python", "-O", "-c", "import app.cli, app.late, lib", env=env)
    report = verify_environment(prefix, runner=run)
    assert report.ok, report.extra
    assert len(verify_environment(prefix).extra) >= 8  # nobody there to ask


def record(prefix: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    path = prefix / ".envbundle/receipt.json"
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def row(value: dict, path: str) -> dict:  # type: ignore[type-arg]
    return next(r for r in value["files"] if r["path"] == path)


def forge(prefix: Path) -> None:
    """Change a file and the receipt with it."""
    rewrite(prefix / LATE, b"value = 'two'\n")
    status = (prefix / LATE).stat()

    def change(value: dict) -> None:  # type: ignore[type-arg]
        row(value, LATE).update(
            sha256=str(Digest.of(b"value = 'two'\n")), mtime_ns=status.st_mtime_ns, mode=0o644
        )

    record(prefix, change)


RECORDS: dict[str, Callable[[Path], object]] = {
    "forged": forge,
    "another-generation": lambda p: record(p, lambda v: v.update(generation="0009-000000000000")),
    "another-bundle": lambda p: record(p, lambda v: v.update(bundle_id="sha256:" + "0" * 64)),
    "another-content": lambda p: record(p, lambda v: v.update(content_id="sha256:" + "0" * 64)),
    "a-row-dropped": drop,
    "a-row-added": add,
    "descriptor": lambda p: rewrite(p / ".envbundle/descriptor.json", b"{}"),
    "layer-list": lambda p: change_lists(p, gone=False),
    "layer-list-gone": lambda p: change_lists(p, gone=True),
}


@pytest.mark.parametrize("change", RECORDS.values(), ids=RECORDS.keys())
def test_the_record_itself(prefix: Path, change: Callable[[Path], object]) -> None:
    change(prefix)
    report = verify_environment(prefix, runner=run)
    assert "E-RECEIPT" in {finding.code for finding in report.findings}
    assert not report.ok


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b"[" * 5000], ids=["empty", "object", "list", "bytes", "deep"]
)
def test_a_damaged_receipt(prefix: Path, data: bytes) -> None:
    rewrite(prefix / ".envbundle/receipt.json", data)
    with pytest.raises(EnvbundleError):
        verify_environment(prefix)
    given = sample()
    assert install(*given, InstallOptions(prefix=prefix), now=LATER).status == "installed"
    assert verify_environment(prefix).ok


def test_a_moved_environment_is_told(prefix: Path, tmp_path: Path) -> None:
    (prefix.parent / "my env.generations").rename(tmp_path / "new.generations")
    (tmp_path / "new").symlink_to("new.generations/" + os.readlink(prefix).partition("/")[2])
    report = verify_environment(tmp_path / "new")
    assert [finding.code for finding in report.findings] == ["W-PREFIX-MOVED"]


@pytest.mark.parametrize("make", ["nothing", "folder", "file"])
def test_what_is_no_environment(tmp_path: Path, make: str) -> None:
    path = tmp_path / "env"
    if make == "folder":
        path.mkdir()
    elif make == "file":
        path.touch()
    with pytest.raises(UserInputError) as caught:
        verify_environment(path)
    assert caught.value.code == "E-NOT-A-PREFIX"


def test_where_sources_are() -> None:
    assert source_of("a/__pycache__/b.cpython-312.pyc") == "a/b.py"
    assert source_of("a/__pycache__/b.c.cpython-312.opt-1.pyc") == "a/b.c.py"
    assert source_of("__pycache__/b.cpython-312.pyc") == "b.py"
