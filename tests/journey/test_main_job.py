"""The main job, end to end: what the README promises, on the embedded example."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from .project import GREETING, PYTHON, Project, python_in

if TYPE_CHECKING:
    from pathlib import Path

def test_from_manifest_to_a_verified_environment(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103", "sm_120")
    there, prefix = tmp_path / "far away/store", tmp_path / "far away/the env"
    project.ok("copy", store, there, "--arch", "sm_103")
    answer = project.ok("install", there, "--prefix", prefix, "--no-device")
    assert answer["generation"].startswith("0001-")
    assert python_in(prefix, GREETING) == "demo-app with the hand patch"
    script = subprocess.run([prefix / "bin/demo-app"], capture_output=True, text=True, check=True)
    assert "demo-app with the hand patch" in script.stdout
    verified = project.ok("verify", prefix)
    assert verified["ok"] is True
    assert verified["signature"] == {"status": "verified", "principal": "demo@example.org"}
    assert verified["files"]["modified"] == verified["files"]["missing"] == verified["files"]["extra"] == []
    receipt = project.ok("receipt", prefix)
    assert receipt["principal"] == "demo@example.org"
    assert receipt["target"]["gpus"] == ["sm_103"]


def test_two_targets_share_every_equal_layer(project: Project) -> None:
    project.ok("lock", "--arch", "sm_103", "--arch", "sm_120")
    bundles = project.ok("pack", "--arch", "sm_103", "--arch", "sm_120", "--key", "keys/id_ed25519")["bundles"]
    assert bundles["sm_120"]["layers_reused"] == bundles["sm_120"]["layers"] == 3
    assert bundles["sm_120"]["new_bytes"] < 5000 < bundles["sm_103"]["new_bytes"]
    assert bundles["sm_103"]["content_id"] != bundles["sm_120"]["content_id"]


def test_a_gpu_without_code_is_refused_and_the_others_are_written(project: Project) -> None:
    done = project.run("lock")
    assert done.status == 1
    assert {name: target["status"] for name, target in done.answer["targets"].items()} == {
        "sm_103": "written",
        "sm_120": "written",
        "sm_75": "refused",
    }
    assert "E-ARCH-NONE" in done.codes
    assert (project.folder / "pylock.sm_103.toml").exists()
    assert not (project.folder / "pylock.sm_75.toml").exists()


def test_locking_again_changes_nothing_and_check_sees_a_changed_manifest(project: Project) -> None:
    project.ok("lock", "--arch", "sm_103")
    before = (project.folder / "pylock.sm_103.toml").read_bytes()
    assert project.ok("lock", "--arch", "sm_103")["targets"]["sm_103"]["status"] == "unchanged"
    project.ok("lock", "--arch", "sm_103", "--check")
    project.edit('DEMO_MODE = "moved"', 'DEMO_MODE = "changed"')
    stale = project.run("lock", "--arch", "sm_103", "--check")
    assert stale.status == 1
    assert stale.answer["targets"]["sm_103"]["status"] == "stale"
    assert (project.folder / "pylock.sm_103.toml").read_bytes() == before
    refused = project.run("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")
    assert refused.status == 1
    assert refused.codes == ["E-LOCK-STALE"]


def test_a_changed_overlay_must_be_locked_again(project: Project) -> None:
    project.ok("lock", "--arch", "sm_103")
    (project.folder / "overlays/demo_app/settings.py").write_text('GREETING = "edited later"\n')
    refused = project.run("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")
    assert refused.status == 1
    assert refused.codes == ["E-OVERLAY-CHANGED"]
    project.ok("lock", "--arch", "sm_103")
    project.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")


def test_a_running_process_stays_in_its_generation_and_rollback_goes_back(project: Project, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    project.ok("install", project.packed("sm_103"), "--prefix", prefix, "--no-device")
    code = (
        "import sys, subprocess; sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline();"
        f"{GREETING}; subprocess.run([sys.executable, '-c', {GREETING!r}], check=True)"
    )
    old = subprocess.Popen(
        [prefix / "bin/python", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert old.stdout is not None
    assert old.stdin is not None
    assert old.stdout.readline() == "ready\n"
    (project.folder / "overlays/demo_app/settings.py").write_text('GREETING = "second"\n')
    answer = project.ok("install", project.packed("sm_103"), "--prefix", prefix, "--no-device")
    assert answer["reused_bytes"] > 50_000
    assert python_in(prefix, GREETING) == "second"
    out, _ = old.communicate("go\n", timeout=60)
    assert out.splitlines() == ["demo-app with the hand patch"] * 2
    assert [row["current"] for row in project.ok("generations", prefix)["generations"]] == [False, True]
    project.ok("rollback", prefix)
    assert python_in(prefix, GREETING) == "demo-app with the hand patch"
    project.ok("verify", prefix)
    actions = [row["action"] for row in project.ok("history", prefix)["history"]]
    assert actions == ["install", "install", "rollback"]


def test_installing_the_live_content_again_says_unchanged(project: Project, tmp_path: Path) -> None:
    store = project.packed("sm_103")
    project.ok("install", store, "--prefix", tmp_path / "env", "--no-device")
    again = project.ok("install", store, "--prefix", tmp_path / "env", "--no-device")
    assert again["status"] == "unchanged"
    assert again["written_bytes"] == 0


def test_an_edit_in_the_installed_tree_is_drift(project: Project, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    project.ok("install", project.packed("sm_103"), "--prefix", prefix, "--no-device")
    site = prefix / f"lib/python{PYTHON}/site-packages"
    (site / "demo_app/extra.py").write_text("x = 1\n")
    settings = site / "demo_app/settings.py"
    settings.chmod(0o644)
    settings.write_text("GREETING = 'edited'\n")
    (site / "demo_kernels/__init__.py").unlink()
    done = project.run("verify", prefix)
    assert done.status == 3
    files = done.answer["files"]
    assert files["modified"] == [f"lib/python{PYTHON}/site-packages/demo_app/settings.py"]
    assert files["missing"] == [f"lib/python{PYTHON}/site-packages/demo_kernels/__init__.py"]
    assert files["extra"] == [f"lib/python{PYTHON}/site-packages/demo_app/extra.py"]


def test_run_sets_the_environments_variables(project: Project, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    project.ok("install", project.packed("sm_103"), "--prefix", prefix, "--no-device")
    code = "import os, sys; print(os.environ['DEMO_MODE'], os.path.realpath(sys.prefix))"
    done = subprocess.run(
        [sys.executable, "-m", "envbundle", "run", prefix, "--", "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(maxsplit=1) == ["moved", f"{os.path.realpath(prefix)}\n"]


def test_the_locked_base_installs_with_uv(project: Project, tmp_path: Path) -> None:
    project.ok("lock", "--arch", "sm_103")
    from envbundle.resolver.solver import find_uv

    uv = str(find_uv())
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "v"], check=True, capture_output=True)
    subprocess.run(
        [uv, "pip", "sync", "-q", "--offline", "--preview-features", "pylock", "pylock.sm_103.toml", "--python", tmp_path / "v"],
        check=True,
        capture_output=True,
        cwd=project.folder,
    )
    assert python_in(tmp_path / "v", GREETING) == "demo-app as published"
