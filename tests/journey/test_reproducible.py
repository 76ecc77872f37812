"""The same lock and bytes give the same ids, whoever packs, wherever and whenever."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from .project import Project

if TYPE_CHECKING:
    from pathlib import Path


def test_two_packs_in_two_clones_give_the_same_ids(project: Project, tmp_path: Path) -> None:
    project.ok("lock", "--arch", "sm_103")
    clone = tmp_path / "some other place/clone"
    shutil.copytree(project.folder, clone, ignore=shutil.ignore_patterns("cache", "dist"))
    for path in clone.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    other = Project(clone, {**project.env, "ENVBUNDLE_CACHE": str(tmp_path / "c2"), "HOME": str(tmp_path), "TZ": "Asia/Tokyo"})
    other.env["USER"] = "somebody"
    here = project.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")["bundles"]["sm_103"]
    code = "import os, runpy, sys; os.umask(0o077); sys.argv[1:] = sys.argv[1:]; runpy.run_module('envbundle', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "pack", "--arch", "sm_103", "--unsigned"],
        cwd=clone,
        env=other.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert here["id"] in done.stdout
    assert here["content_id"] in done.stdout
