"""Overlay folders that hold more than files, or lie over nothing: refused at lock, and again at pack."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from .kit import PYTHON, SITE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .kit import Case

LINES = '[[overlay]]\ndistribution = "app"\npath = "overlays/app"'


@pytest.fixture
def app(case: Case) -> Case:
    case.wheel("app", "1.0", {"app/__init__.py": "", "app/a.py": "value = 1\n", "app/sub/b.py": "x = 1\n"})
    case.overlay("app", {"app/a.py": "value = 2\n"})
    case.manifest("app==1.0", more=LINES)
    return case


def _link(target: str, name: str = "app/x.py") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).symlink_to(target)

    return make


def _device(folder: Path) -> None:
    os.mknod(folder / "app/x.py", 0o600 | stat.S_IFIFO)


def _socket(folder: Path) -> None:
    here = os.getcwd()
    os.chdir(folder / "app")
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("x.py")
    finally:
        os.chdir(here)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out of the folder": (_link("/etc/passwd"), "E-OVERLAY-LINK"),
    "a relative link out": (_link("../../../envbundle.toml"), "E-OVERLAY-LINK"),
    "a link to a folder outside": (_link("/etc", "app/x"), "E-OVERLAY-LINK"),
    "a link to the root": (_link("/", "app/x"), "E-OVERLAY-LINK"),
    "a link to itself": (_link("x.py"), "E-OVERLAY-LINK"),
    "a broken link": (_link("nothing.py"), "E-OVERLAY-LINK"),
    "a link to a folder inside": (_link("../app", "app/x"), "E-OVERLAY-LINK"),
    "a pipe": (_device, "E-OVERLAY-FILE"),
    "a socket": (_socket, "E-OVERLAY-FILE"),
    "a RECORD": (lambda f: (f / "app-1.0.dist-info").mkdir() or (f / "app-1.0.dist-info/RECORD").write_text(""), "E-OVERLAY-FILE"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_2_hostile_overlay(app: Case, name: str) -> None:
    make, code = HOSTILE[name]
    make(app.folder / "overlays/app")
    found = app.refused(2, code, "lock")
    assert "overlays/app" in found["subject"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_after_the_lock(app: Case, name: str) -> None:
    """What became hostile after the lock stops the pack, and no byte of it is read into a bundle."""
    app.locked()
    HOSTILE[name][0](app.folder / "overlays/app")
    before = app.listing()
    done = app.run("pack", "--key", "key")
    assert done.status in (1, 2, 4), done.answer
    assert app.listing() == before


@pytest.mark.parametrize("name", ["a\nb.py", "a\\b.py", "\x7f.py", "x" * 250 + ".py"])
def test_overlay_names(app: Case, name: str) -> None:
    (app.folder / "overlays/app/app" / name).write_text("")
    before = app.listing()
    done = app.run("lock")
    if name.startswith("x"):
        assert done.status == 0
    else:
        assert (done.status, done.codes) in ((2, ["E-PATH"]), (3, ["E-PATH"])), done.answer
        assert app.listing() == before


def test_a_name_that_is_no_text(app: Case) -> None:
    (app.folder / "overlays/app/app" / os.fsdecode(b"\xff.py")).write_text("")
    before = app.listing()
    done = app.run("lock")
    assert done.status in (2, 3), done.answer
    assert app.listing() == before


def test_2_an_overlay_that_is_a_link_a_file_or_outside(app: Case) -> None:
    overlays = app.folder / "overlays"
    (overlays / "app").rename(app.root / "elsewhere")
    app.refused(2, "E-OVERLAY-FOLDER", "lock")
    (overlays / "app").write_text("a file")
    app.refused(2, "E-OVERLAY-FOLDER", "lock")
    (overlays / "app").unlink()
    (overlays / "app").symlink_to(app.root / "elsewhere")
    app.refused(2, "E-OVERLAY-LINK", "lock")
    for path in ("../elsewhere", "/etc", "overlays/../../elsewhere", "."):
        app.manifest("app==1.0", more=LINES.replace("overlays/app", path))
        before = app.listing()
        done = app.run("lock")
        assert done.status == 2, (path, done.answer)
        assert app.listing() == before


@pytest.mark.parametrize(
    "remove", [["app/none.py"], ["../x"], ["/etc/passwd"], ["app/a.py"], [""], ["app/../app/a.py"], ["app-1.0.dist-info/RECORD"]]
)
def test_2_removes_what_is_not_there_or_outside(app: Case, remove: list[str]) -> None:
    app.manifest("app==1.0", more=f"{LINES}\nremove = {remove}".replace("'", '"'))
    before = app.listing()
    done = app.run("lock")
    assert done.status == 2, done.answer
    assert app.listing() == before


def test_1_changed_between_lock_and_pack(app: Case) -> None:
    app.locked()
    folder = app.folder / "overlays/app/app"
    for change in (
        lambda: (folder / "a.py").write_text("value = 3\n"),
        lambda: (folder / "a.py").write_text("value = 2\n# longer\n"),
        lambda: (folder / "more.py").write_text(""),
        lambda: (folder / "a.py").unlink(),
    ):
        change()
        found = app.refused(1, "E-OVERLAY-CHANGED", "pack", "--key", "key")
        assert "app/" in found["subject"]
        (folder / "more.py").unlink(missing_ok=True)
        (folder / "a.py").write_text("value = 2\n")
    app.ok("pack", "--key", "key")


def test_merge_replace_and_remove(app: Case) -> None:
    """What the three do, on disk: B20's and B37's right halves."""
    (app.folder / "overlays/app/app/__pycache__").mkdir()
    (app.folder / "overlays/app/app/__pycache__" / f"a.cpython-{PYTHON.replace('.', '')}.pyc").write_bytes(b"old bytecode")
    app.manifest("app==1.0", more=f'{LINES}\nremove = ["app/sub/b.py"]')
    app.packed()
    site = app.installed() / SITE
    assert (site / "app/a.py").read_text() == "value = 2\n"
    assert not (site / "app/sub").exists()
    assert (site / "app/__init__.py").exists()
    app.ok("verify", app.prefix)
    app.manifest("app==1.0", more=f'{LINES}\nmode = "replace"')
    app.packed()
    site = app.installed() / SITE
    assert sorted(p.name for p in (site / "app").iterdir()) == ["__pycache__", "a.py"]
    assert (site / "app-1.0.dist-info/METADATA").exists()
    app.ok("verify", app.prefix)
