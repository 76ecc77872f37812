"""One byte changed anywhere: verify says so, and nothing of it is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .project import Project


def _flip(path: Path, at: int) -> bytes:
    before = path.read_bytes()
    changed = bytearray(before)
    changed[at] ^= 0x20
    path.chmod(0o644)
    path.write_bytes(changed)
    return before


def test_a_flipped_byte_in_any_file_of_the_store(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    files = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)
    assert len(files) > 10
    tag = project.run("verify", store).answer
    assert tag["ok"] is True
    blobs = [path for path in files if path.parent.name == "sha256"]
    for path in files:
        before = _flip(path, path.stat().st_size // 2)
        done = project.run("verify", store)
        assert done.status == 3, (path.name, done.answer)
        if path in blobs:
            prefix = tmp_path / "env"
            installed = project.run("install", store, "--prefix", prefix, "--no-device")
            assert installed.status == 3, (path.name, installed.answer)
            assert not prefix.exists()
            assert not (tmp_path / "env.generations").exists()
        path.write_bytes(before)
    assert project.run("verify", store).status == 0


def test_a_missing_blob(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    index = json.loads((store / "index.json").read_bytes())
    image = json.loads((store / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_bytes())
    for layer in image["layers"]:
        path = store / "blobs/sha256" / layer["digest"][7:]
        data = path.read_bytes()
        path.unlink()
        assert project.run("verify", store).status == 3
        done = project.run("install", store, "--prefix", tmp_path / "env", "--no-device")
        assert done.status == 3, layer["mediaType"]
        assert done.codes == ["E-BLOB-MISSING"]
        path.write_bytes(data)
