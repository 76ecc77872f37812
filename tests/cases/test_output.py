"""B51: an exit status that says what happened, also where nobody reads the output, or it cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from .kit import Case

if TYPE_CHECKING:
    from pathlib import Path

ENVBUNDLE = [sys.executable, "-m", "envbundle"]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A packed project and a damaged store; commands here change nothing in them."""
    case = Case.make(tmp_path_factory.mktemp("app"))
    case.wheel("app", "1.0")
    case.gpu_wheel("kern", "sm_90")
    case.manifest("app==1.0", gpu={"good": "sm_90", "bad": "sm_120"})
    text = (case.folder / "envbundle.toml").read_text()
    (case.folder / "envbundle.toml").write_text(text.replace("[target.bad]", '[target.bad]\nrequirements = ["kern==1.0"]'))
    case.packed("good")
    (case.folder / "damaged/blobs").mkdir(parents=True)
    (case.folder / "damaged/index.json").write_text("{")
    (case.folder / "damaged/oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return case


def _closed(case: Case, words: list[str], stream: str) -> tuple[int, str]:
    """Run with a reader of ``stream`` that went away before the first byte."""
    reading, writing = os.pipe()
    os.close(reading)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writing}
    done = subprocess.run([*ENVBUNDLE, *words], cwd=case.folder, env=case.env, check=False, **streams)
    os.close(writing)
    return done.returncode, (done.stderr or done.stdout or b"").decode()


COMMANDS = {
    "done": (["lock", "--arch", "good"], 0),
    "refused": (["lock", "--arch", "bad"], 1),
    "usage": (["lock", "--arch", "none"], 2),
    "damaged": (["verify", "damaged"], 3),
    "not there": (["copy", "nowhere", "x"], 4),
    "inspect": (["inspect", "wheels/kern-1.0-py3-none-any.whl"], 0),
    "verify": (["verify", "dist"], 0),
    "explain": (["explain", "E-HASH"], 0),
    "help": (["--help"], 0),
    "help of a command": (["lock", "--help"], 0),
    "version": (["--version"], 0),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_B51_nobody_reads_standard_output(app: Case, name: str) -> None:
    words, status = COMMANDS[name]
    code, err = _closed(app, [*words, "--json"], "stdout")
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    assert code == (status or 4), err


@pytest.mark.parametrize("name", COMMANDS)
def test_B51_nobody_reads_standard_error(app: Case, name: str) -> None:
    words, status = COMMANDS[name]
    code, _ = _closed(app, [*words, "--json"] if "help" not in name and name != "version" else words, "stderr")
    assert code == status


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("redirect", ["<&- >&- 2>&-", ">/dev/full", "2>/dev/full"])
def test_B51_output_that_cannot_be_written(app: Case, name: str, redirect: str) -> None:
    words, status = COMMANDS[name]
    line = " ".join(f"'{word}'" for word in [*ENVBUNDLE, *words])
    done = subprocess.run(["/bin/sh", "-c", f"{line} {redirect}"], cwd=app.folder, env=app.env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    if redirect.startswith(">/dev/full") and status == 0:
        assert done.returncode == 4, done.stderr  # what was asked for did not arrive
    elif redirect.startswith(">/dev/full"):
        assert done.returncode in (status, 4)
    else:
        assert done.returncode == status, done.stderr


def test_B51_a_reader_that_stops_in_the_middle(app: Case) -> None:
    """``envbundle inspect -v ... | head -1``: not 0, no traceback, and nothing half done."""
    before = app.listing()
    line = " ".join(f"'{word}'" for word in [*ENVBUNDLE, "inspect", *["wheels/kern-1.0-py3-none-any.whl"] * 100, "--json"])
    script = f"set -o pipefail; {line} | head -c 10"
    done = subprocess.run(["/bin/bash", "-c", script], cwd=app.folder, env=app.env, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 1)
    assert "Traceback" not in done.stderr
    assert len(done.stdout) == 10
    assert app.listing() == before


def test_B51_a_pack_that_nobody_reads_is_whole_or_not_there(app: Case, tmp_path: Path) -> None:
    code, err = _closed(app, ["pack", "--arch", "good", "--key", "key", "-o", str(tmp_path / "s"), "--json"], "stdout")
    assert (code, err) == (4, "")
    assert app.run("verify", tmp_path / "s").status == 0
    assert len(json.loads((tmp_path / "s/index.json").read_bytes())["manifests"]) == 1


def test_B51_two_entries_for_one_path(case: Case) -> None:
    """A path that two wheels write: an error, and no bundle under any name."""
    case.wheel("one", "1.0", {"x.py": "1"})
    case.wheel("two", "1.0", {"x.py": "2"})
    case.manifest("one==1.0", "two==1.0")
    case.refused(1, "E-OVERLAP", "lock")
    before = case.listing()
    assert case.run("pack", "--key", "key").status == 1
    assert case.listing() == before
