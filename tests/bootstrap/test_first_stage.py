"""The first stage: which parts, where to, and what it says where it cannot go on."""

from __future__ import annotations

import ast
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import envbundle
from envbundle.bundler.bootstrap import COMMANDS

from .builders import BARE, OTHER, PYTHON, TARGET, changed, own_bootstrap, served, small_bootstrap, start

SOURCE = Path(envbundle.__file__).parent / "bootstrap" / "first_stage.py"


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "install.pyz"
    path.write_bytes(own_bootstrap())
    return path


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "install.pyz"
    path.write_bytes(data)
    return path


def test_it_runs_by_an_interpreter_that_has_no_package(pyz: Path) -> None:
    done = start(pyz, "--version")
    assert (done.status, done.out) == (0, f"envbundle {envbundle.__version__}\n"), done.err
    (folder,) = [p for p in (pyz.parent / ".cache/envbundle-bootstrap").iterdir() if p.is_dir()]
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert (folder / "cryptography" / "__init__.py").is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_it_has_starts(pyz: Path, command: str) -> None:
    done = start(pyz, command, "--help")
    assert done.status == 0, done.err
    assert "example:" in done.out


def test_commands_of_the_packing_side_are_unknown(pyz: Path) -> None:
    done = start(pyz, "pack", "--json")
    assert (done.status, done.finding["code"]) == (2, "E-USAGE")
    assert "install" in done.finding["found"]


def test_a_later_start_unpacks_nothing(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    assert start(pyz, "--version").status == 0
    before = {p: p.stat().st_ino for p in (tmp_path / ".cache").rglob("*.py")}
    assert start(pyz, "--version").status == 0
    assert {p: p.stat().st_ino for p in (tmp_path / ".cache").rglob("*.py")} == before
    assert len(before) > 10


def test_a_part_that_was_changed_is_unpacked_again(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    start(pyz, "--version")
    (part,) = (tmp_path / ".cache").rglob("envbundle/cli/main.py")
    part.write_text("raise SystemExit(77)\n")
    done = start(pyz, "--version")
    assert (done.status, done.out) == (0, f"envbundle {envbundle.__version__}\n")
    assert part.read_text() != "raise SystemExit(77)\n"
    assert [p.name for p in part.parents[3].iterdir() if p.name.startswith(".new")] == []


def test_another_archive_has_another_folder(tmp_path: Path) -> None:
    start(write(tmp_path, small_bootstrap()), "--version")
    start(write(tmp_path, changed(small_bootstrap(), lambda index: index.update(other=1))), "--version")
    assert len(list((tmp_path / ".cache/envbundle-bootstrap").glob("[0-9a-f]*"))) == 2


# --- where to


def test_the_folder_that_is_named_is_the_only_one_tried(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    place = tmp_path / "named"
    assert start(pyz, "--version", ENVBUNDLE_BOOTSTRAP_CACHE=str(place)).status == 0
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert not (tmp_path / ".cache").exists()
    file = tmp_path / "file"
    file.touch()
    done = start(pyz, "--version", "--json", ENVBUNDLE_BOOTSTRAP_CACHE=str(file))
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-CACHE")
    assert done.finding["found"] == f"{file}: not a folder"


def test_a_folder_that_others_may_write_to_is_passed_over(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    done = start(pyz, "--version", "--json", ENVBUNDLE_BOOTSTRAP_CACHE=str(place))
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-CACHE")
    assert "others may write to it" in done.finding["found"]
    assert list(place.iterdir()) == []


def test_a_link_is_no_folder_of_ones_own(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    done = start(pyz, "--version", "--json", ENVBUNDLE_BOOTSTRAP_CACHE=str(tmp_path / "link"))
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-CACHE")
    assert list((tmp_path / "real").iterdir()) == []


def test_without_a_home_the_next_place_serves(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap())
    (tmp_path / "tmp").mkdir()
    done = start(pyz, "--version", HOME="/nonexistent/home", TMPDIR=str(tmp_path / "tmp"))
    assert done.status == 0, done.err
    assert (tmp_path / "tmp" / f"envbundle-bootstrap-{os.getuid()}").is_dir() or os.getuid() == 0


# --- which parts


def test_a_python_that_is_not_served_is_told_which_are(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap(served(OTHER, parts=())))
    done = start(pyz, "install", "store", "--json", PATH="/nonexistent")
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-PYTHON")
    assert f"Python {PYTHON} on {TARGET.machine}" in done.finding["found"]
    assert f"{OTHER.python} on {TARGET.machine}" in done.finding["expected"]
    assert done.finding["hint"] == f"run it with python{OTHER.python}"
    plain = start(pyz, "install", "store", PATH="/nonexistent")
    assert plain.out == ""
    assert plain.err.startswith("error E-BOOTSTRAP-PYTHON: ")


def test_another_python_on_path_that_is_served_is_started(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap(served(OTHER, parts=())))
    fake = tmp_path / f"python{OTHER.python}"
    fake.write_text('#!/bin/sh\necho "$ENVBUNDLE_BOOTSTRAP_PYTHON" "$@"\n')
    fake.chmod(0o755)
    done = start(pyz, "install", "a store", PATH=str(tmp_path))
    assert (done.status, done.out) == (0, f"{PYTHON} {pyz} install a store\n")


def test_no_circle_of_pythons(tmp_path: Path) -> None:
    pyz = write(tmp_path, small_bootstrap(served(OTHER, parts=())))
    (tmp_path / f"python{OTHER.python}").symlink_to(BARE[0])  # it is not what its name says
    done = start(pyz, "install", "--json", PATH=str(tmp_path))
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-PYTHON")


def newer_libc(index: dict[str, Any]) -> None:
    index["sets"][0]["glibc"] = "2.999"


def other_machine(index: dict[str, Any]) -> None:
    index["sets"][0]["machine"] = "riscv64"


@pytest.mark.parametrize("change", [newer_libc, other_machine])
def test_another_libc_or_machine_is_refused(tmp_path: Path, change: Any) -> None:
    done = start(write(tmp_path, changed(small_bootstrap(), change)), "--version", "--json")
    assert (done.status, done.finding["code"]) == (4, "E-BOOTSTRAP-PYTHON")
    assert done.finding["hint"] == "pack for a target like this one"


def wrong_wheel(index: dict[str, Any]) -> None:
    next(iter(index["wheels"].values()))["sha256"] = "0" * 64


def wrong_file(index: dict[str, Any]) -> None:
    next(iter(index["wheels"].values()))["files"]["envbundle/__init__.py"][0] = "0" * 64


def outside(index: dict[str, Any]) -> None:
    next(iter(index["wheels"].values()))["files"]["../outside.py"] = ["0" * 64, 1]


def absolute(index: dict[str, Any]) -> None:
    next(iter(index["wheels"].values()))["files"]["/outside.py"] = ["0" * 64, 1]


def absent(index: dict[str, Any]) -> None:
    index["sets"][0]["wheels"].append("wheels/none.whl")


def no_sets(index: dict[str, Any]) -> None:
    del index["sets"]


@pytest.mark.parametrize("change", [wrong_wheel, wrong_file, outside, absolute, absent, no_sets])
def test_an_archive_that_contradicts_itself_runs_nothing(tmp_path: Path, change: Any) -> None:
    done = start(write(tmp_path, changed(small_bootstrap(), change)), "--version", "--json")
    assert (done.status, done.finding["code"]) == (3, "E-BOOTSTRAP-DAMAGED"), done.err
    assert list((tmp_path / ".cache").rglob("*.py")) == []
    assert not (tmp_path / "outside.py").exists()


def test_a_flipped_byte_in_a_part_runs_nothing(tmp_path: Path) -> None:
    data = bytearray(small_bootstrap())
    at = bytes(data).index(b"envbundle moves a working Python")
    data[at] ^= 1
    done = start(write(tmp_path, bytes(data)), "--version", "--json")
    assert (done.status, done.finding["code"]) == (3, "E-BOOTSTRAP-DAMAGED")


@pytest.mark.parametrize("minor", [8, 9])
def test_the_first_stage_compiles_on_old_pythons(minor: int) -> None:
    ast.parse(SOURCE.read_text("utf-8"), feature_version=(3, minor))


def test_the_first_stage_imports_the_standard_library_alone() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names) | {"__future__"}
