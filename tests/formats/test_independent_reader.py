"""docs/format.md is enough: a reader written from it alone lists and extracts what envbundle installs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.journey.project import Project

READER = Path(__file__).with_name("independent_reader.py")


def test_it_imports_nothing_of_envbundle_and_stays_small() -> None:
    source = READER.read_text()
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    allowed = {"__future__", "base64", "hashlib", "json", "sys", "pathlib", "zstandard"}
    assert names <= allowed
    assert len(source.splitlines()) <= 110


def test_it_extracts_the_same_bytes_that_install_writes(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "here")
    store, prefix, out = project.packed("sm_103"), tmp_path / "env", tmp_path / "out"
    project.ok("install", store, "--prefix", prefix, "--no-device")
    done = subprocess.run(
        [sys.executable, "-I", READER, store, "demo-1.0-sm_103", out], capture_output=True, text=True, check=True
    )
    listed = {line.split(" ", 2)[2] for line in done.stdout.splitlines()}
    receipt = project.ok("receipt", prefix)
    from_layers = {row["path"] for row in receipt["files"] if row.get("source") is not None}
    assert listed <= from_layers
    made_there = from_layers - listed  # what each installation makes anew
    assert all("__pycache__/" in path or path.endswith("/INSTALLER") for path in made_there), made_there
    changed = {row["path"] for row in receipt["files"] if row.get("fixer") or row.get("source") is None}
    same = 0
    for path in sorted(listed - changed):
        assert (out / path).read_bytes() == (prefix / path).read_bytes(), path
        same += 1
    assert same >= 5
    site = next(path for path in listed if path.endswith("demo_app/settings.py"))
    assert "hand patch" in (out / site).read_text()


def test_it_sees_a_flipped_byte(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "here")
    store = project.packed("sm_103")
    largest = max((store / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[100] ^= 1
    largest.chmod(0o644)
    largest.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-I", READER, store, "demo-1.0-sm_103"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "AssertionError: sha256:" in done.stderr
