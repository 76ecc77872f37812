"""capture -> lock -> pack -> install elsewhere gives the same bytes; a second capture says the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders import make_wheel

from .builders import CLEAN, SITE, Living, differences, python

SCRIPT = "#!{python}\nimport sys\nprint(sys.prefix)\n"


@pytest.fixture
def custom(sglang: Living) -> Living:
    """Everything at once: edits, another build, a VCS install, contested files, files of nobody, scripts."""
    for name in ("cu12", "cu13"):
        sglang.wheel(name, "3.8", {"nv/lib.txt": name, "nv/one.txt": name, f"nv/{name}.txt": name})
    files = {f"mine/{name}.py": f"# {name}\n" for name in ("__init__", "a", "b", "c")}
    sglang.wheel("mine", "1.0", files)
    own = make_wheel(
        sglang.folder / "own", "mine", "1.0", {name: text + "OURS = 1\n" for name, text in files.items()}
    )
    make_wheel(own.parent, "fromgit", "1.2", scripts={"gittool": "#!python\nimport sys; print(sys.prefix)\n"})
    sglang.install("cu12", "cu13")
    sglang.install("mine", "fromgit", links=own.parent)
    sglang.put(
        f"{SITE}/fromgit-1.2.dist-info/direct_url.json",
        json.dumps({"url": "https://example.org/r.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}}),
    )
    sglang.put(f"{SITE}/nv/lib.txt", "cu12")
    sglang.put(f"{SITE}/nv/one.txt", "cu13")
    for name in "ab":
        sglang.put(
            f"{SITE}/sglang/{name}.py", f"NAME = {name!r}\nVALUE = 2\ndef main(): print('main', VALUE)\n"
        )
    sglang.put(f"{SITE}/sglang/added.py", "ADDED = 1\n")
    (sglang.site / "sglang/f.py").unlink()
    sglang.put(f"{SITE}/extra.pth", "extra_code\n")
    sglang.put(f"{SITE}/extra_code/of_nobody.py", "X = 1\n")
    sglang.put("share/data.bin", bytes(range(256)))
    sglang.put("bin/quoted", SCRIPT.format(python=f'"{sglang.venv}/bin/python"'), 0o755)
    sglang.put("bin/spaced", SCRIPT.format(python=f" {sglang.venv}/bin/python3 -E"), 0o755)
    sglang.put("bin/other", SCRIPT.format(python=f"{sglang.venv}2/bin/python"), 0o755)
    (sglang.folder / "box_env.sh").write_text("export TUNE='a b'\nexport MY_TOKEN=x\n")
    for path in sglang.venv.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o555)
    return sglang


def _old_hidden(living: Living) -> Path:
    hidden = living.folder / "hidden"
    living.venv.rename(hidden)
    return hidden


def _check(living: Living, prefix: Path, source: Path) -> None:
    assert differences(source, prefix) == set()
    found = python(
        prefix,
        "import sglang.a, sglang.added, of_nobody, mine.a, sys; print(sglang.a.VALUE, of_nobody.X, mine.a.OURS)",
    )
    assert found == "2 1 1"
    real = os.path.realpath(prefix)
    for script in ("gittool", "quoted", "spaced"):
        ran = subprocess.run(
            [prefix / "bin" / script], capture_output=True, text=True, check=True, env=CLEAN, cwd="/"
        )
        assert ran.stdout.strip() == real
    ran = subprocess.run(
        [prefix / "bin/sglang"], capture_output=True, text=True, check=True, env=CLEAN, cwd="/"
    )
    assert ran.stdout.strip() == "main 2"


def test_the_same_bytes_elsewhere_and_the_same_manifest_again(custom: Living) -> None:
    first = custom.capture("--env-file", custom.folder / "box_env.sh")
    classes = {row["name"]: row["class"] for row in first.answer["distributions"]}
    assert classes == {
        "cu12": "pristine",
        "cu13": "pristine",
        "fromgit": "vcs",
        "mine": "other-build",
        "other": "pristine",
        "sglang": "patched",
    }
    assert len(first.answer["contested"]) == 2
    prefix = custom.folder / "elsewhere" / "env"
    prefix.parent.mkdir()
    custom.round_trip(prefix)
    _check(custom, prefix, custom.venv)  # the old place is still there
    _check(custom, prefix, _old_hidden(custom))
    assert (prefix / SITE / "nv/lib.txt").read_text() + (
        prefix / SITE / "nv/one.txt"
    ).read_text() == "cu12cu13"
    assert "TUNE='a b'" in (prefix / "env.sh").read_text()
    assert "MY_TOKEN" not in (prefix / "env.sh").read_text()
    # An environment that envbundle installed needs no index; the find-links of the first capture are still there.
    custom.capture(out="again", venv=prefix, links=False)
    old, new = ((custom.folder / name / "envbundle.toml").read_text() for name in ("out", "again"))
    assert [line for line in new.splitlines() if line not in old.splitlines()] == [f'prefix = "{prefix}"']
    assert len(old.splitlines()) == len(new.splitlines())
    for name in ("requirements.txt",):
        assert (custom.folder / "again" / name).read_text() == (custom.folder / "out" / name).read_text()
    assert _tree(custom.folder / "again/wheels") == _tree(custom.folder / "out/wheels")
    assert _tree(custom.folder / "again/overlays") == _tree(custom.folder / "out/overlays")


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_as_is_needs_no_wheel_and_no_index(custom: Living) -> None:
    shutil.rmtree(custom.folder / "own")
    (custom.folder / "index").rename(custom.folder / "no-index")
    ran = custom.capture("--as-is", links=False)
    assert {row["form"] for row in ran.answer["distributions"]} == {"wheel"}
    prefix = custom.folder / "as-is"
    custom.round_trip(prefix)
    _check(custom, prefix, _old_hidden(custom))
    lock = next((custom.folder / "out").glob("pylock.*")).read_text()
    assert (
        lock.count('origin = "installed-tree"')
        == len(re.findall(r"^\[\[packages\]\]", lock, re.MULTILINE))
        == 7
    )


def test_a_hot_fix_made_there_comes_home(custom: Living) -> None:
    custom.capture()
    prefix = custom.folder / "b"
    custom.round_trip(prefix)
    for name, text in (
        ("sglang/c.py", "HOT = 1\n"),
        ("mine/b.py", "HOT = 2\n"),
        ("other/__init__.py", "HOT = 3\n"),
    ):
        place = prefix / SITE / name
        place.unlink()
        place.write_text(text)
    shutil.rmtree(custom.folder / "index")  # a published wheel can be had nowhere now
    ran = custom.capture(out="fixed", venv=prefix, links=False)
    assert f"{SITE}/sglang/c.py" in ran.row("sglang")["changed"]
    assert ran.row("mine")["changed"] == [f"{SITE}/mine/b.py"]
    assert ran.row("other")["changed"] == [f"{SITE}/other/__init__.py"]
    home = custom.folder / "home-again"
    custom.round_trip(home, out="fixed")
    assert (
        python(home, "import sglang.c, mine.b, other; print(sglang.c.HOT, mine.b.HOT, other.HOT)") == "1 2 3"
    )


def test_a_prefix_with_a_space_and_the_same_winners_each_time(custom: Living) -> None:
    """One path won by each side."""
    custom.capture()
    for number in range(3):
        prefix = custom.folder / f"my env {number}"
        custom.round_trip(prefix)
        assert (prefix / SITE / "nv/lib.txt").read_text() + (
            prefix / SITE / "nv/one.txt"
        ).read_text() == "cu12cu13"
        ran = subprocess.run(
            [prefix / "bin/spaced"], capture_output=True, text=True, check=True, env=CLEAN, cwd="/"
        )
        assert ran.stdout.strip() == os.path.realpath(prefix)


def test_diff_of_all_kinds(custom: Living) -> None:
    custom.capture()
    prefix = custom.folder / "there"
    custom.round_trip(prefix)
    store, lock = custom.folder / "out.store", next((custom.folder / "out").glob("pylock.*"))
    receipt = prefix / ".envbundle/receipt.json"
    for first, second in (
        (prefix, store),
        (prefix, receipt),
        (store, receipt),
        (prefix, lock),
        (store, lock),
    ):
        ran = custom.run("diff", first, second)
        assert (ran.status, ran.answer["equal"]) == (0, True), (first, second, ran.answer)
    ran = custom.run("diff", custom.venv, prefix)
    assert ran.answer["distributions"]["added"] == ["envbundle-captured"]
    assert ran.answer["files"]["removed"] == ran.answer["files"]["changed"] == []
    place = prefix / SITE / "sglang/a.py"
    place.unlink()
    place.write_text("VALUE = 3\n")
    ran = custom.run("diff", store, prefix)
    assert (ran.status, [row["name"] for row in ran.answer["files"]["changed"]]) == (
        1,
        [f"{SITE}/sglang/a.py"],
    )
    ran = custom.run("diff", custom.folder / "own", prefix)
    assert (ran.status, ran.codes) == (2, {"E-DIFF-KIND"})
