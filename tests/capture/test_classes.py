"""What every part of an environment is taken for, and what is written for it."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from envbundle.spec.manifest import Manifest
from envbundle.spec.manifest_text import parse_manifest
from tests.builders import container, elf_file, make_wheel, sass

from .builders import PYTHON, SITE, Living, python


def manifest_of(living: Living, out: str = "out") -> Manifest:
    return parse_manifest((living.folder / out / "envbundle.toml").read_text())


def members(living: Living, name: str, out: str = "out") -> list[str]:
    (path,) = (living.folder / out / "wheels").glob(f"{name}-*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_a_pristine_environment_is_pins_alone(sglang: Living) -> None:
    ran = sglang.capture()
    assert [(row["class"], row["form"]) for row in ran.answer["distributions"]] == [("pristine", "pin")] * 2
    manifest = manifest_of(sglang)
    assert manifest.resolve.complete
    assert manifest.overlays == ()
    lines = (sglang.folder / "out/requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines[1:3]] == ["other", "sglang"]
    assert all("--hash=sha256:" in line for line in lines[1:3])
    report = (sglang.folder / "out/report.md").read_text()
    assert "of sglang" not in report


def test_eight_edits_are_named_exactly(sglang: Living) -> None:
    package = sglang.site / "sglang"
    for name in ("a", "b", "c", "d"):
        sglang.put(f"{SITE}/sglang/{name}.py", f"NAME = {name!r}\nVALUE = 2\n")
    same = package / "e.py"
    before = same.stat()
    sglang.put(f"{SITE}/sglang/e.py", same.read_text().replace("1", "7"))
    os.utime(same, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert same.stat().st_size == before.st_size
    sglang.put(f"{SITE}/sglang/added.py", "ADDED = 1\n")
    (package / "f.py").unlink()
    ran = sglang.capture()
    row = ran.row("sglang")
    assert (row["class"], row["form"]) == ("patched", "overlay")
    assert row["changed"] == [f"{SITE}/sglang/{name}.py" for name in "abcde"]
    assert row["added"] == [f"{SITE}/sglang/added.py"]
    assert row["removed"] == [f"{SITE}/sglang/f.py"]
    assert ran.row("other")["class"] == "pristine"
    (overlay,) = manifest_of(sglang).overlays
    assert (overlay.distribution, overlay.base, overlay.remove) == ("sglang", "0.5", ("sglang/f.py",))
    found = sorted(path.name for path in (sglang.folder / "out" / overlay.path / "sglang").iterdir())
    assert found == ["a.py", "added.py", "b.py", "c.py", "d.py", "e.py"]
    report = (sglang.folder / "out/report.md").read_text()
    assert "7 files of sglang 0.5 differ from the published wheel (5 changed, 1 added, 1 removed)" in report
    assert "+VALUE = 7" in report
    assert "-VALUE = 1" in (sglang.folder / "out/patches/sglang.diff").read_text()


def test_an_edit_through_a_hard_link_is_seen_though_the_installers_cache_has_it_too(living: Living) -> None:
    """B38: the cache of uv was changed by the same edit; the wheel's own bytes were not."""
    living.wheel("linked", "1.0", {"linked/__init__.py": "VALUE = 1\n", "linked/b.py": "", "linked/c.py": ""})
    living.new_venv()
    living.install("linked", mode="hardlink")
    place = living.site / "linked/__init__.py"
    assert place.stat().st_nlink > 1
    with place.open("r+") as stream:
        stream.write("VALUE = 2\n")
    row = living.capture().row("linked")
    assert row["changed"] == [f"{SITE}/linked/__init__.py"]
    assert place.stat().st_nlink > 1


def test_a_build_of_ones_own_becomes_a_wheel(living: Living) -> None:
    files = {f"mine/{name}.py": f"# {name}\n" for name in ("__init__", "a", "b", "c", "d", "e")}
    living.wheel("mine", "1.0", files)
    own = make_wheel(
        living.folder / "own", "mine", "1.0", {name: text + "OURS = 1\n" for name, text in files.items()}
    )
    living.new_venv()
    living.install("mine", links=own.parent)
    row = living.capture().row("mine")
    assert (row["class"], row["form"], row["compared"] > row["differing"] > row["compared"] // 2) == (
        "other-build",
        "wheel",
        True,
    )
    assert "mine/a.py" in members(living, "mine")
    line = (living.folder / "out/requirements.txt").read_text()
    assert f"mine @ wheels/{row['wheel']['filename']} --hash=sha256:{row['wheel']['sha256']}" in line


def test_a_distribution_on_no_index_becomes_a_wheel(living: Living) -> None:
    own = make_wheel(
        living.folder / "own",
        "hidden",
        "3.1",
        scripts={"tool": "#!python\nprint('tool')\n"},
        data={"data/share/x/y.txt": "y"},
    )
    living.wheel("known")
    living.new_venv()
    living.install("known")
    living.install("hidden", links=own.parent)
    ran = living.capture()
    assert ran.row("hidden")["form"] == "wheel"
    assert {"hidden-3.1.data/scripts/tool", "hidden-3.1.data/data/share/x/y.txt"} <= set(
        members(living, "hidden")
    )
    with zipfile.ZipFile(next((living.folder / "out/wheels").glob("hidden*"))) as archive:
        assert archive.read("hidden-3.1.data/scripts/tool") == b"#!python\nprint('tool')\n"


def test_changed_compiled_code_is_no_overlay(living: Living) -> None:
    files = {f"ext/{name}.py": "" for name in ("__init__", "a", "b", "c", "d")}
    old, new = (elf_file([]) + container(sass(arch)) for arch in ("sm_90", "sm_80"))
    living.wheel("ext", "1.0", {**files, "ext/_c.so": old}, tag="py3-none-linux_x86_64", purelib=False)
    living.new_venv()
    living.install("ext")
    living.put(f"{SITE}/ext/_c.so", new)
    row = living.capture().row("ext")
    assert (row["class"], row["form"], row["differing"]) == ("patched", "wheel", 1)


@pytest.mark.parametrize("layout", ["src", "flat", "finder"])
def test_an_editable_project_is_copied_in(sglang: Living, layout: str) -> None:
    """B34, B54. What git ignores stays out; the remote loses its password; the checkout is not touched."""
    project = sglang.folder / "dev"
    package = project / ("src" if layout == "src" else "") / "proj"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 'editable'\n")
    (package / "data.txt").write_text("data")
    (package / "noise.log").write_text("noise")
    (project / "tests").mkdir()
    (project / "tests/test_x.py").write_text("")
    (project / ".gitignore").write_text("*.log\n")
    sglang.git(project, "init", "-q")
    sglang.git(project, "add", "-A")
    sglang.git(project, "commit", "-qm", "one")
    sglang.git(project, "remote", "add", "origin", "https://me:secret@example.org/proj")
    (package / "later.py").write_text("LATER = 1\n")
    (package / "__init__.py").write_text("VALUE = 'edited'\n")
    root = package.parent
    _editable_info(sglang, project, root, package, finder=layout == "finder")
    before = {
        path: path.read_bytes() for path in project.rglob("*") if path.is_file() and path.name != "index"
    }
    ran = sglang.capture()
    row = ran.row("proj")
    assert (row["class"], row["form"], row["origin"]["url"]) == ("editable", "wheel", project.as_uri())
    assert row["origin"]["remote"] == "https://example.org/proj"
    assert row["origin"]["commit"] == sglang.git(project, "rev-parse", "HEAD")
    names = members(sglang, "proj")
    assert {"proj/__init__.py", "proj/data.txt", "proj/later.py"} <= set(names)
    assert not {
        name for name in names if name.endswith((".log", ".pth", "_finder.py")) or name.startswith("tests/")
    }
    with zipfile.ZipFile(next((sglang.folder / "out/wheels").glob("proj*"))) as archive:
        direct = json.loads(archive.read("proj-0.3.dist-info/direct_url.json"))
    assert direct == {"dir_info": {}, "url": project.as_uri()}
    assert "+VALUE = 'edited'" in (sglang.folder / "out/patches/proj.git.diff").read_text()
    assert "secret" not in (sglang.folder / "out/report.md").read_text()
    assert {path: path.read_bytes() for path in before} == before


def _editable_info(living: Living, project: Path, root: Path, package: Path, *, finder: bool) -> None:
    """What an installer leaves of an editable install, as setuptools' and hatchling's do."""
    info = f"{SITE}/proj-0.3.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: proj\nVersion: 0.3\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/direct_url.json": json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}),
    }
    if finder:
        files[f"{SITE}/__editable___proj_0_3_finder.py"] = (
            f"MAPPING: dict[str, str] = {{'proj': {str(package)!r}}}\nimport nothing_there\n"
        )
        files[f"{SITE}/__editable__.proj-0.3.pth"] = (
            "import __editable___proj_0_3_finder; __editable___proj_0_3_finder.install()\n"
        )
    else:
        files[f"{SITE}/_proj.pth"] = f"{root}\n"
    for path, text in files.items():
        living.put(path, text)
    rows = "".join(f"{path[len(SITE) + 1 :]},,\n" for path in files)
    living.put(f"{info}/RECORD", rows + "proj-0.3.dist-info/RECORD,,\n")


def test_an_editable_whose_source_is_gone_is_refused(sglang: Living) -> None:
    _editable_info(
        sglang, sglang.folder / "gone", sglang.folder / "gone", sglang.folder / "gone", finder=False
    )
    ran = sglang.run("capture", sglang.venv, "-o", "out", "--as-is")
    assert (ran.status, ran.codes) == (4, {"E-EDITABLE-GONE"})
    assert str(sglang.folder / "gone") in ran.finding("E-EDITABLE-GONE")["subject"]
    assert not (sglang.folder / "out").exists()
    assert [path.name for path in sglang.folder.iterdir() if path.name.endswith(".capture")] == []


def test_a_checkout_that_was_installed_keeps_its_commit(sglang: Living) -> None:
    own = make_wheel(sglang.folder / "own", "fromgit", "1.2")
    sglang.install("fromgit", links=own.parent)
    commit = "a" * 40
    sglang.put(
        f"{SITE}/fromgit-1.2.dist-info/direct_url.json",
        json.dumps(
            {
                "url": "https://t:ken@example.org/r.git",
                "vcs_info": {"vcs": "git", "commit_id": commit, "requested_revision": "main"},
            }
        ),
    )
    row = sglang.capture().row("fromgit")
    assert (row["class"], row["origin"]) == (
        "vcs",
        {"kind": "vcs", "url": "git+https://example.org/r.git", "commit": commit, "remote": ""},
    )
    assert commit in (sglang.folder / "out/requirements.txt").read_text()


ORIGINS = [
    pytest.param(True, False, "N-ORIGIN-FOUND", "overlay", id="a published wheel has the bytes"),
    pytest.param(False, False, "N-ORIGIN-GONE", "wheel", id="files verify against RECORD"),
    pytest.param(False, True, "W-ORIGIN-GONE", "wheel", id="edited, and nobody knows what"),
]


@pytest.mark.parametrize(("published", "edited", "code", "form"), ORIGINS)
def test_an_origin_lost_by_freeze_is_solved_from_the_bytes(
    sglang: Living, published: bool, edited: bool, code: str, form: str
) -> None:
    """B54: ``pkg @ file:///croot/...`` and the file is gone."""
    own = sglang.wheel("lost", "1.0") if published else make_wheel(sglang.folder / "own", "lost", "1.0")
    sglang.install("lost", links=own.parent)
    sglang.put(
        f"{SITE}/lost-1.0.dist-info/direct_url.json",
        json.dumps({"url": "file:///croot/lost.whl", "archive_info": {}}),
    )
    if edited:
        sglang.put(f"{SITE}/lost/__init__.py", "EDITED = 1\n")
    ran = sglang.capture()
    assert code in ran.codes
    assert ran.row("lost")["form"] == form
    if edited:
        assert f"{SITE}/lost/__init__.py" in ran.finding(code)["found"]


def test_a_local_wheel_that_is_still_there_is_carried(sglang: Living) -> None:
    own = make_wheel(sglang.folder / "own", "local", "1.0")
    sglang.install(own)
    ran = sglang.capture()
    assert ran.row("local")["class"] == "archive"
    assert (sglang.folder / "out/wheels" / own.name).read_bytes() == own.read_bytes()


def test_contested_paths_have_the_winner_of_the_disk(living: Living) -> None:
    """B56."""
    for name in ("cu12", "cu13"):
        living.wheel(name, "3.8", {"nv/lib.txt": name, "nv/same.txt": "same", f"nv/{name}.txt": name})
    living.new_venv()
    living.install("cu12")
    living.install("cu13")
    for winner in ("cu12", "cu13"):
        living.put(f"{SITE}/nv/lib.txt", winner)
        ran = living.capture(out=winner)
        assert [row["class"] for row in ran.answer["distributions"]] == ["pristine", "pristine"]
        assert ran.answer["contested"] == [
            {"path": f"{SITE}/nv/lib.txt", "claimants": ["cu12", "cu13"], "winner": winner}
        ]
        policies = dict(manifest_of(living, winner).packages)
        assert policies[winner].winner == (f"{SITE}/nv/lib.txt",)


def test_files_of_nobody_are_carried_and_caches_are_not(sglang: Living) -> None:
    sglang.put(f"{SITE}/helper.py", "HELPER = 1\n")
    sglang.put("share/notes.txt", "notes")
    sglang.put("bin/mine.sh", "#!/bin/sh\necho mine\n", 0o755)
    sglang.put(".cache/flashinfer/x.so", b"x" * 1000)
    sglang.put(f"{SITE}/sglang/__pycache__/a.cpython-312.pyc", b"stale")
    sglang.put(f"{SITE}/~ther-1.0.dist-info/METADATA", "rest of an interrupted pip")
    ran = sglang.capture()
    assert {"bin/mine.sh", f"{SITE}/helper.py", "share/notes.txt"} <= set(ran.answer["unowned"])
    assert ran.answer["left_out"]["caches"] == {".cache": 1000}
    assert ran.answer["left_out"]["leftovers"] == [f"{SITE}/~ther-1.0.dist-info/METADATA"]
    assert {"N-CAPTURE-CACHES", "W-CAPTURE-LEFT-OUT"} <= ran.codes
    names = members(sglang, "envbundle_captured")
    assert {
        "helper.py",
        "envbundle_captured-1.data/scripts/mine.sh",
        "envbundle_captured-1.data/data/share/notes.txt",
    } <= set(names)
    assert not any("pyc" in name or ".cache" in name for name in names)
    assert ran.row("sglang")["class"] == "pristine"


def test_sourceless_bytecode_is_kept(sglang: Living) -> None:
    """B37."""
    code = python(sglang.venv, "import importlib.util as u, sys; sys.stdout.write(u.MAGIC_NUMBER.hex())")
    sglang.put(f"{SITE}/sglang/hidden.pyc", bytes.fromhex(code) + b"\0" * 12)
    sglang.put(f"{SITE}/sglang/a.pyc", bytes.fromhex(code) + b"\0" * 12)
    row = sglang.capture().row("sglang")
    assert row["added"] == [f"{SITE}/sglang/hidden.pyc"]


def test_two_metadata_directories_and_a_damaged_one(sglang: Living) -> None:
    info = sglang.site / "other-1.9.dist-info"
    shutil.copytree(sglang.site / "other-2.0.dist-info", info)
    for name in ("METADATA", "RECORD"):
        text = (info / name).read_text().replace("2.0", "1.9")
        (info / name).write_text(text + ("other/gone.py,sha256=abc,3\n" if name == "RECORD" else ""))
    ran = sglang.capture()
    assert ran.row("other")["version"] == "2.0"
    assert ran.finding("W-CAPTURE-TWO-METADATA")["subject"] == f"{SITE}/other-1.9.dist-info"
    (sglang.site / "sglang/a.py").unlink()
    again = sglang.capture(out="again")
    assert f"{SITE}/sglang/a.py" in again.finding("W-CAPTURE-DAMAGED")["found"]


def test_a_distribution_without_record_is_walked(sglang: Living) -> None:
    own = make_wheel(
        sglang.folder / "own", "norecord", "1.0", {"norecord/__init__.py": "", "norecord/deep/x.py": ""}
    )
    sglang.install("norecord", links=own.parent)
    (sglang.site / "norecord-1.0.dist-info/RECORD").unlink()
    ran = sglang.capture()
    assert "no RECORD" in ran.finding("W-CAPTURE-METADATA")["found"]
    assert {"norecord/__init__.py", "norecord/deep/x.py"} <= set(members(sglang, "norecord"))


PTH = [
    pytest.param("/somewhere/else\n", {"W-PTH-OUTSIDE"}, "/somewhere/else\n", id="outside"),
    pytest.param("import sys; sys.x = 1\n", {"W-PTH-CODE"}, "import sys; sys.x = 1\n", id="code"),
    pytest.param("extra\n", set(), "extra\n", id="relative"),
    pytest.param("{venv}/code\n", {"N-PTH-REWRITTEN"}, "../../../code\n", id="inside"),
]


@pytest.mark.parametrize(("text", "codes", "carried"), PTH)
def test_path_files(sglang: Living, text: str, codes: set[str], carried: str) -> None:
    sglang.put(f"{SITE}/plain.pth", text.replace("{venv}", str(sglang.venv)))
    ran = sglang.capture()
    assert {code for code in ran.codes if "PTH" in code} == codes
    with zipfile.ZipFile(next((sglang.folder / "out/wheels").glob("envbundle_captured*"))) as archive:
        assert archive.read("plain.pth").decode() == carried


def test_links_are_carried_as_what_they_lead_to(sglang: Living) -> None:
    """B39, B40: hard links are two files; ``lib64`` is the environment's own."""
    (sglang.site / "linked.py").symlink_to("sglang/a.py")
    (sglang.site / "folder").symlink_to("sglang")
    (sglang.site / "away").symlink_to("/usr/share")
    os.link(sglang.site / "sglang/a.py", sglang.site / "twin.py")
    ran = sglang.capture()
    names = members(sglang, "envbundle_captured")
    assert {"linked.py", "folder/b.py", "twin.py"} <= set(names)
    assert ran.finding("W-CAPTURE-LINK")["subject"] == f"{SITE}/away"
    assert not [name for name in names if "lib64" in name or name.startswith("away")]


def test_a_real_lib64_is_captured_as_lib(sglang: Living) -> None:
    """B40."""
    (sglang.venv / "lib64").unlink()
    sglang.put(f"lib64/python{PYTHON}/site-packages/plat.py", "PLAT = 1\n")
    sglang.capture()
    assert "plat.py" in members(sglang, "envbundle_captured")


def test_scripts_that_leave_the_environment_and_privileges(sglang: Living) -> None:
    """B25, B45."""
    sglang.put("bin/away", "#!/usr/bin/python3 -E\nprint(1)\n", 0o755)
    sglang.put("bin/env", "#!/usr/bin/env python\nprint(1)\n", 0o755)
    sglang.put("bin/root", b"x", 0o4755)
    ran = sglang.capture()
    assert ran.finding("W-SHEBANG-OUTSIDE")["subject"] == "bin/away"
    assert ran.finding("W-PRIV-BITS")["subject"] == "bin/root"
    with zipfile.ZipFile(next((sglang.folder / "out/wheels").glob("envbundle_captured*"))) as archive:
        assert archive.read("envbundle_captured-1.data/scripts/away").startswith(b"#!/usr/bin/python3 -E\n")
        assert all(not info.external_attr >> 16 & 0o7000 for info in archive.infolist())


def test_the_interpreter_may_be_gone(sglang: Living) -> None:
    """B30, B32: what can be captured is captured, and said."""
    config = (sglang.venv / "pyvenv.cfg").read_text()
    (sglang.venv / "bin/python").unlink()
    (sglang.venv / "bin/python").symlink_to("/nowhere/bin/python3")
    sglang.put("pyvenv.cfg", config + "include-system-site-packages = true\n")
    ran = sglang.capture()
    assert {"W-CAPTURE-INTERPRETER", "W-SYSTEM-SITE"} <= ran.codes
    assert ran.answer["environment"]["python"].startswith(PYTHON)


def test_conda_is_refused_by_name(sglang: Living) -> None:
    """B50."""
    (sglang.venv / "conda-meta").mkdir()
    ran = sglang.run("capture", sglang.venv, "-o", "out")
    assert (ran.status, ran.codes) == (1, {"E-CONDA"})


PLACES = [
    pytest.param("home", "E-NOT-A-VENV", id="no environment"),
    pytest.param("nothing", "E-NOT-A-VENV", id="nothing there"),
]


@pytest.mark.parametrize(("place", "code"), PLACES)
def test_what_is_no_environment(living: Living, place: str, code: str) -> None:
    ran = living.run("capture", place, "-o", "out")
    assert (ran.status, ran.codes) == (2, {code})


@pytest.mark.parametrize("out", ["venv/out", "full", "venv"])
def test_nothing_is_written_where_it_must_not(sglang: Living, out: str) -> None:
    (sglang.folder / "full").mkdir()
    (sglang.folder / "full/x").write_text("")
    ran = sglang.run("capture", sglang.venv, "-o", out, "--as-is")
    assert (ran.status, ran.codes) == (2, {"E-CAPTURE-OUTPUT"})


def test_a_dead_index_means_as_is(sglang: Living) -> None:
    ran = sglang.run("capture", sglang.venv, "-o", "out", "--default-index", "http://127.0.0.1:9/simple")
    assert ran.status == 0
    assert {row["class"] for row in ran.answer["distributions"]} == {"as-is"}
    assert "N-CAPTURE-AS-IS" in ran.codes
    raised = sglang.capture(out="later")
    assert {row["class"] for row in raised.answer["distributions"]} == {"pristine"}


def test_what_was_compared_once_needs_no_index_again(sglang: Living) -> None:
    """An index that is a folder of pages; the second time it is gone."""
    root = sglang.folder / "simple"
    for wheel in (sglang.folder / "index").glob("*.whl"):
        project = root / wheel.name.partition("-")[0]
        project.mkdir(parents=True)
        shutil.copy(wheel, project)
        import hashlib

        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (project / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')
    url = root.as_uri()
    first = sglang.run("capture", sglang.venv, "-o", "one", "--default-index", url)
    assert {row["class"] for row in first.answer["distributions"]} == {"pristine"}, first.answer
    assert manifest_of(sglang, "one").resolve.indexes[0].url == url
    shutil.rmtree(root)
    second = sglang.run("capture", sglang.venv, "-o", "two", "--default-index", url)
    assert {row["class"] for row in second.answer["distributions"]} == {"pristine"}, second.answer
