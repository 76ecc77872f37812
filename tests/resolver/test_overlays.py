"""Overlays: digests of what they cover, the folder's layout, purity by bytes, bases that move."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import UserInputError
from envbundle.spec.digest import Digest

from .project import Project, codes, library, only

if TYPE_CHECKING:
    from envbundle.spec.lock import LockedOverlay

BASE = {
    "sglang/__init__.py": "v = 0\n",
    "sglang/srt/old.py": "old = 1\n",
    "sglang/srt/keep.py": "keep = 1\n",
}
OWN_MAGIC = importlib.util.MAGIC_NUMBER
PYC_312 = (3531).to_bytes(2, "little") + b"\r\n" + bytes(12)
PYC_311 = (3495).to_bytes(2, "little") + b"\r\n" + bytes(12)


@pytest.fixture
def patched(project: Project) -> Project:
    project.wheel("sglang", "0.5.9", BASE)
    project.requirements = ["sglang"]
    project.target("cpu", "none")
    return project


def overlay(project: Project, files: dict[str, bytes | str], *, mode: str = "merge", **keys: str) -> None:
    folder = project.folder / "overlays/sglang"
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ['[[overlay]]\ndistribution = "sglang"\npath = "overlays/sglang"', f'mode = "{mode}"']
    project.more = "\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items())])


def locked(project: Project, **context: object) -> LockedOverlay:
    outcome = project.write("cpu", **context)
    assert outcome.lock is not None, [f"{f.code} {f.subject} {f.found}" for f in outcome.findings]
    (item,) = project.written("cpu").overlays
    return item


def of(text: str) -> Digest:
    return Digest.of(text.encode())


@pytest.mark.parametrize("prefix", ["", "sglang/"], ids=["below the package", "below site-packages"])
def test_merge_names_what_it_replaces_and_removes(patched: Project, prefix: str) -> None:
    overlay(
        patched,
        {f"{prefix}__init__.py": "v = 1\n", f"{prefix}srt/new.py": "n = 1\n"},
        remove=f'["{prefix}srt/old.py"]',
    )
    item = locked(patched)
    assert item.below == ("" if prefix else "sglang/")
    assert {f.path: (f.sha256, f.replaces) for f in item.files} == {
        "sglang/__init__.py": (of("v = 1\n"), of("v = 0\n")),
        "sglang/srt/new.py": (of("n = 1\n"), None),
    }
    assert item.removes == (("sglang/srt/old.py", of("old = 1\n")),)
    assert (item.base_version, item.mode) == ("0.5.9", "merge")


def test_replace_removes_all_else_but_metadata(patched: Project) -> None:
    overlay(patched, {"__init__.py": "v = 1\n"}, mode="replace")
    item = locked(patched)
    assert [path for path, _ in item.removes] == ["sglang/srt/keep.py", "sglang/srt/old.py"]


def test_replace_with_its_own_metadata(patched: Project) -> None:
    overlay(
        patched,
        {"sglang/__init__.py": "v = 1\n", "sglang-0.5.9.dist-info/METADATA": "Name: sglang\n"},
        mode="replace",
    )
    item = locked(patched)
    removed = {path for path, _ in item.removes}
    assert {"sglang-0.5.9.dist-info/WHEEL", "sglang/srt/old.py"} <= removed
    assert "sglang-0.5.9.dist-info/METADATA" not in removed


def test_a_folder_is_removed_with_all_below(patched: Project) -> None:
    overlay(patched, {"__init__.py": "v = 1\n"}, remove='["srt"]')
    assert [path for path, _ in locked(patched).removes] == ["sglang/srt/keep.py", "sglang/srt/old.py"]


def test_a_wheel_of_several_tops_is_laid_over_from_site_packages(project: Project) -> None:
    project.wheel("sglang", "0.5.9", {**BASE, "second.py": ""})
    project.requirements = ["sglang"]
    project.target("cpu", "none")
    overlay(project, {"second.py": "x = 1\n"})
    item = locked(project)
    assert (item.below, [f.path for f in item.files]) == ("", ["second.py"])


def test_pycache_is_left_out_and_sourceless_bytecode_is_kept(patched: Project) -> None:
    overlay(
        patched, {"__pycache__/x.cpython-312.pyc": PYC_311, "secret.pyc": PYC_312, "srt/keep.pyc": PYC_312}
    )
    outcome = patched.write("cpu")
    assert only(outcome, "N-SOURCELESS-PYC").subject == "overlays/sglang: sglang/secret.pyc"
    (item,) = patched.written("cpu").overlays
    assert [f.path for f in item.files] == ["sglang/secret.pyc", "sglang/srt/keep.pyc"]


IMPURE = {
    "elf": ("x.so", library("sm_90"), "ELF"),
    "elf by another name": ("data.txt", library(), "ELF"),
    "cubin": ("k.cubin", None, "a cubin"),
    "fatbin": ("k.bin", bytes.fromhex("50ed55ba01001000") + bytes(16), "a fatbin"),
    "archive": ("k.a", b"!<arch>\n", "a static library"),
    "bytecode of 3.11": ("x.pyc", PYC_311, "bytecode of Python 3.11"),
    "no bytecode at all": ("x.pyc", b"nothing", "bytecode of another Python (magic 28526)"),
}


@pytest.mark.parametrize(("name", "data", "why"), IMPURE.values(), ids=IMPURE)
def test_purity_is_told_by_bytes(patched: Project, name: str, data: bytes | None, why: str) -> None:
    from tests.builders import cubin

    overlay(patched, {name: cubin(90) if data is None else data, "ok.py": ""})
    outcome = patched.lock("cpu")
    finding = only(outcome, "E-OVERLAY-NOT-PURE")
    assert (finding.subject, finding.found) == (f"overlays/sglang/{name}", why)
    assert outcome.lock is None


def test_the_magic_of_this_python_is_in_the_table() -> None:
    from envbundle.resolver.overlays import _PYC_MAGIC

    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert _PYC_MAGIC[version].to_bytes(2, "little") + b"\r\n" == OWN_MAGIC


def moved(project: Project, version: str, **changes: str) -> None:
    files = {**BASE, **{f"sglang/{name.replace('__', '/')}.py": text for name, text in changes.items()}}
    project.wheel("sglang", version, {path: text for path, text in files.items() if text != "gone"})


def test_a_base_that_moved_stops_and_names_the_files(patched: Project) -> None:
    overlay(patched, {"srt/old.py": "old = 2\n", "srt/new.py": "n = 1\n"}, remove='["srt/keep.py"]')
    locked(patched)
    previous = patched.written("cpu")
    text = patched.path("cpu").read_bytes()
    moved(patched, "0.6.0", srt__old="old = 9\n", srt__new="theirs\n")
    outcome = patched.write("cpu", previous=previous, upgrade=True)
    found = {f.subject: (f.expected.split(" ")[0], f.found.split(" ")[0]) for f in outcome.findings}
    assert found == {
        "overlay overlays/sglang: sglang/srt/new.py": ("no", str(of("theirs\n"))),
        "overlay overlays/sglang: sglang/srt/old.py": (str(of("old = 1\n")), str(of("old = 9\n"))),
    }
    assert set(codes(outcome)) == {"E-OVERLAY-BASE"}
    assert patched.path("cpu").read_bytes() == text
    accepted = patched.lock("cpu", previous=previous, upgrade_packages=("sglang",))
    assert accepted.lock is not None
    assert accepted.lock.overlays[0].base_version == "0.6.0"


def test_another_version_with_the_same_files_is_no_move(patched: Project) -> None:
    overlay(patched, {"srt/old.py": "old = 2\n"})
    locked(patched)
    previous = patched.written("cpu")
    moved(patched, "0.6.0", srt__keep="keep = 2\n")
    assert patched.lock("cpu", previous=previous, upgrade=True).lock is not None


def test_a_base_that_the_overlay_names_is_the_one_that_is_locked(patched: Project) -> None:
    moved(patched, "0.6.0")
    overlay(patched, {"srt/old.py": "old = 2\n"}, base='"0.5.9"')
    assert locked(patched).base_version == "0.5.9"


def test_a_complete_freeze_that_contradicts_the_named_base(patched: Project) -> None:
    overlay(patched, {"srt/old.py": "old = 2\n"}, base='"0.5.8"')
    patched.resolve += "\ncomplete = true"
    (patched.folder / "freeze.txt").write_text("sglang==0.5.9\n")
    patched.requirements = []
    patched.resolve += '\nrequirement-files = ["freeze.txt"]'
    finding = only(patched.lock("cpu"), "E-OVERLAY-BASE")
    assert (finding.expected, finding.found) == ("sglang 0.5.8, for which it was made", "0.5.9 locked")


def refused(project: Project) -> UserInputError:
    with pytest.raises(UserInputError) as caught:
        project.lock("cpu")
    return caught.value


def test_an_overlay_of_what_is_not_locked(patched: Project) -> None:
    overlay(patched, {"x.py": ""})
    patched.more = patched.more.replace('"sglang"', '"other"')
    assert refused(patched).code == "E-OVERLAY-UNLOCKED"


def test_an_overlay_without_folder(patched: Project) -> None:
    patched.more = '[[overlay]]\ndistribution = "sglang"\npath = "overlays/none"'
    assert refused(patched).code == "E-OVERLAY-FOLDER"


def test_removing_what_is_not_there(patched: Project) -> None:
    overlay(patched, {"x.py": ""}, remove='["srt/odl.py"]')
    fault = refused(patched)
    assert (fault.code, fault.hint) == ("E-OVERLAY-REMOVE", "did you mean srt/old.py?")


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.py", "nowhere.py", "folder"])
def test_links_that_lead_elsewhere_are_refused(patched: Project, target: str) -> None:
    overlay(patched, {"ok.py": ""})
    (patched.folder / "overlays/outside.py").write_text("")
    (patched.folder / "overlays/sglang/folder").mkdir()
    (patched.folder / "overlays/sglang/link.py").symlink_to(target)
    assert refused(patched).code == "E-OVERLAY-LINK"


def test_a_link_inside_the_folder_is_the_file_it_leads_to(patched: Project) -> None:
    overlay(patched, {"ok.py": "x = 1\n"})
    (patched.folder / "overlays/sglang/link.py").symlink_to("ok.py")
    assert {f.path: f.sha256 for f in locked(patched).files}["sglang/link.py"] == of("x = 1\n")


def test_a_folder_that_is_a_link_to_elsewhere(patched: Project) -> None:
    outside = patched.folder.parent / "outside"
    outside.mkdir()
    overlay(patched, {})
    (patched.folder / "overlays/sglang").rmdir()
    (patched.folder / "overlays/sglang").symlink_to(outside)
    assert refused(patched).code == "E-OVERLAY-LINK"


def test_a_pipe_is_no_file(patched: Project) -> None:
    overlay(patched, {"ok.py": ""})
    os.mkfifo(patched.folder / "overlays/sglang/pipe.py")
    assert refused(patched).code == "E-OVERLAY-FILE"


def test_modes_are_two(patched: Project) -> None:
    overlay(patched, {"a.py": "", "b.sh": "#!/bin/sh\n"})
    (patched.folder / "overlays/sglang/a.py").chmod(0o600)
    (patched.folder / "overlays/sglang/b.sh").chmod(0o711)
    assert {f.path: f.mode for f in locked(patched).files} == {"sglang/a.py": 0o644, "sglang/b.sh": 0o755}
