"""What this machine is: real outputs read, real interpreters asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.host import probe
from envbundle.host.processes import users_of
from envbundle.host.run import run

DATA = Path(__file__).parent.parent / "data" / "host"
HERE = ".".join(map(str, sys.version_info[:2]))


def test_a_real_query() -> None:
    (gpu,), driver = probe.read_gpus((DATA / "h200-nvidia-smi-query.csv").read_text())
    assert (gpu.name, gpu.capability, str(gpu.arch), gpu.mig) == ("NVIDIA H200", "9.0", "sm_90", False)
    assert driver == "580.159.04"
    assert probe.read_cuda_version((DATA / "h200-nvidia-smi.txt").read_text()) == "13.0"


ROWS = {
    "two-digits": ("0, NVIDIA B300, GPU-1, 10.3, 580.65.06, 1 MiB, Enabled", ["sm_103"]),
    "lost": ("Unable to determine the device handle for GPU0: GPU is lost.", []),
    "error": ("0, [GPU requires reset], GPU-1, [N/A], 580.65.06, 1 MiB, Disabled", []),
    "short": ("0, NVIDIA", []),
    "empty": ("", []),
}


@pytest.mark.parametrize(("text", "archs"), ROWS.values(), ids=ROWS.keys())
def test_rows_of_a_query(text: str, archs: list[str]) -> None:
    assert [str(gpu.arch) for gpu in probe.read_gpus(text)[0]] == archs


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    probe.read_gpus(text)
    probe.read_cuda_version(text)


def test_this_interpreter_is_found() -> None:
    found = next(probe.interpreters(HERE, run))
    assert found.python == HERE
    assert os.path.realpath(found.path) == found.path
    assert found.prefix == sys.base_prefix
    assert found.cache_tag == sys.implementation.cache_tag
    assert found.libc.startswith("glibc ")
    assert "/.venv/" not in found.path


OTHERS = [Path(sys.executable), *sorted(Path.home().glob(".pyenv/versions/3.1[0-9].*/bin/python"))]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.parent.parent.name)
def test_interpreters_say_what_they_are(path: Path) -> None:
    found = probe.ask_interpreter(path, run)
    assert found is not None
    assert f"Python {found.version}" in run([path, "--version"]).text
    assert found.abi == "cpython-" + "".join(found.version.split(".")[:2])


@pytest.mark.parametrize("body", ["exit 1", "echo hello", "echo '{}'", "echo '[1]'", "kill -9 $$"])
def test_what_is_no_python(tmp_path: Path, body: str) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    assert probe.ask_interpreter(path, run) is None
    assert probe.ask_interpreter(tmp_path / "none", run) is None


def test_a_version_that_nobody_has() -> None:
    assert list(probe.interpreters("3.99", run)) == []


def test_volumes(tmp_path: Path) -> None:
    here = probe.volume(tmp_path / "not" / "yet" / "there")
    assert here.path == str(tmp_path)
    assert here.free > 0
    assert here.device == tmp_path.stat().st_dev


def test_case(tmp_path: Path) -> None:
    (tmp_path / "Name").touch()
    assert probe.folds_case(tmp_path) is (tmp_path / "nAME").exists()


def test_glibc_is_the_one_that_runs() -> None:
    version = probe.glibc()
    assert version is not None
    assert probe.read_version(version) >= (2, 17)
    assert probe.read_version("2.9") < probe.read_version("2.39")


def test_users_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    child = os.fork()
    if child == 0:
        os.open(tmp_path / "f", os.O_RDONLY)
        os.kill(os.getpid(), 19)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    try:
        assert child in [use.pid for use in users_of(tmp_path)]
        assert users_of(tmp_path / "f" / "other") == []
        assert child not in [use.pid for use in users_of(tmp_path.with_name(tmp_path.name + "-evil"))]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
