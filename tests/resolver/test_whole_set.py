"""Judgements over all locked distributions: paths claimed twice, groups, markers of the target, determinism."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import FormatError, HostError, UserInputError
from envbundle.host.run import Finished, run
from envbundle.resolver.solver import UvSolver, find_uv, uv_platform
from envbundle.spec.digest import Digest

from .project import GPU_TAG, Project, codes, only

if TYPE_CHECKING:
    from pathlib import Path

PATH = "lib/python3.12/site-packages/shared/x.py"


def two(project: Project, first: str, second: str) -> None:
    project.wheel("a-lib", "1.0", {"a_lib.py": "", "shared/x.py": first})
    project.wheel("b-lib", "1.0", {"b_lib.py": "", "shared/x.py": second})
    project.requirements = ["a-lib", "b-lib"]
    project.target("cpu", "none")


def test_b56_different_bytes_under_one_path_are_refused(project: Project) -> None:
    two(project, "a = 1\n", "b = 1\n")
    outcome = project.write("cpu")
    finding = only(outcome, "E-OVERLAP")
    assert finding.subject == PATH
    first, second = Digest.of(b"a = 1\n").short, Digest.of(b"b = 1\n").short
    assert finding.found == f"a-lib ({first}) / b-lib ({second})"
    assert not project.path("cpu").exists()


def test_b56_equal_bytes_are_allowed(project: Project) -> None:
    two(project, "same\n", "same\n")
    outcome = project.lock("cpu")
    assert outcome.lock is not None
    assert outcome.lock.contested == ()


@pytest.mark.parametrize("spelling", [PATH, "shared/x.py"], ids=["prefix", "site-packages"])
def test_b56_a_named_winner_is_recorded(project: Project, spelling: str) -> None:
    two(project, "a = 1\n", "b = 1\n")
    project.more = f'[package.b-lib]\nwinner = ["{spelling}"]'
    assert project.write("cpu").status == "written"
    (contested,) = project.written("cpu").contested
    assert (contested.path, contested.winner) == (PATH, "b-lib")
    assert [name for name, _ in contested.claims] == ["a-lib", "b-lib"]


def test_two_scripts_of_one_name(project: Project) -> None:
    for name in ("one", "two"):
        project.wheel(name, "1.0", entry_points={"console_scripts": {"tool": f"{name}:main"}})
    project.requirements = ["one", "two"]
    project.target("cpu", "none")
    assert only(project.lock("cpu"), "E-OVERLAP").subject == "bin/tool"


def test_an_overlay_settles_a_contest_by_removing(project: Project) -> None:
    two(project, "a = 1\n", "b = 1\n")
    (project.folder / "overlays/b").mkdir(parents=True)
    project.more = '[[overlay]]\ndistribution = "b-lib"\npath = "overlays/b"\nremove = ["shared/x.py"]'
    outcome = project.lock("cpu")
    assert outcome.lock is not None, codes(outcome)


GROUPS = {
    "one release": (("0.6.16", "0.6.16", "0.6.16+cu130"), None, True),
    "another public version": (("0.6.16", "0.6.9", "0.6.16+cu130"), None, False),
    "torch of another cuda": (("0.6.16", "0.6.16", "0.6.16+cu129"), "2.9.0+cu130", False),
    "torch of the same cuda": (("0.6.16", "0.6.16", "0.6.16+cu130"), "2.9.0+cu130", True),
    "two cudas within": (("0.6.16", "0.6.16+cu129", "0.6.16+cu130"), None, False),
}


@pytest.mark.parametrize(("versions", "torch", "fine"), GROUPS.values(), ids=GROUPS)
def test_b63_a_group_has_one_version(
    project: Project, versions: tuple[str, str, str], torch: str | None, fine: bool
) -> None:
    names = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
    for name, version in zip(names, versions, strict=True):
        project.wheel(name, version)
    project.requirements = [f"{name}=={version}" for name, version in zip(names, versions, strict=True)]
    if torch:
        project.wheel("torch", torch)
        project.requirements.append(f"torch=={torch}")
    project.more = f"[[group]]\nsame-version = {list(names)}".replace("'", '"')
    project.target("cpu", "none")
    outcome = project.lock("cpu")
    assert (outcome.lock is not None) is fine
    assert ("E-GROUP-VERSION" in codes(outcome)) is not fine


@pytest.mark.parametrize("complete", [False, True], ids=["solved", "complete"])
def test_b61_markers_are_the_target_s(project: Project, complete: bool) -> None:
    for name in ("x", "y", "z"):
        project.wheel(name, "1.0")
    project.requirements = [
        "x==1.0; platform_machine == 'aarch64'",
        "y==1.0; python_version < '3.12'",
        "z==1.0; sys_platform == 'linux'",
    ]
    project.resolve += f"\ncomplete = {str(complete).lower()}"
    project.target("arm", "none", platform="aarch64-manylinux_2_35")
    project.target("x86", "none")
    arm, x86 = project.lock("arm").lock, project.lock("x86").lock
    assert arm is not None
    assert x86 is not None
    assert [p.name for p in arm.packages] == ["x", "z"]
    assert [p.name for p in x86.packages] == ["z"]
    project.python = "3.11"
    older = project.lock("arm").lock
    assert older is not None
    assert [p.name for p in older.packages] == ["x", "y", "z"]


def test_b61_markers_inside_wheels_are_the_target_s(project: Project) -> None:
    project.wheel("app", "1.0", requires=["x; platform_machine == 'aarch64'", "y; python_version < '3.12'"])
    project.wheel("x", "1.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    project.wheel("y", "1.0")
    project.requirements = ["app"]
    project.target("arm", "none", platform="aarch64-manylinux_2_35")
    made = project.lock("arm").lock
    assert made is not None
    assert [p.name for p in made.packages] == ["app", "x"]


def test_b61_a_value_that_no_manifest_gives_is_an_error(project: Project) -> None:
    project.requirements = ["x; platform_release >= '6'"]
    project.target("cpu", "none")
    with pytest.raises(UserInputError) as caught:
        project.lock("cpu")
    assert (caught.value.code, caught.value.subject) == ("E-MARKER", "resolve.requirements[0]")


def test_extras_prereleases_and_direct_wheels(project: Project) -> None:
    project.wheel("app", "1.0", extras=["fast"], requires=["dep; extra == 'fast'"])
    project.wheel("dep", "1.0")
    project.wheel("dep", "2.0rc1")
    direct = project.wheel("direct", "3.0")
    direct = direct.rename(project.folder / direct.name)
    (project.folder / "more.txt").write_text(f"./{direct.name}\n")
    project.requirements = ["app[fast]"]
    project.resolve += '\nrequirement-files = ["more.txt"]'
    project.target("cpu", "none")
    assert project.write("cpu").status == "written"
    found = {p.name: (p.version, p.wheel.path) for p in project.written("cpu").packages}
    assert found == {
        "app": ("1.0", "wheels/app-1.0-py3-none-any.whl"),
        "dep": ("1.0", "wheels/dep-1.0-py3-none-any.whl"),
        "direct": ("3.0", "direct-3.0-py3-none-any.whl"),
    }
    project.requirements = ["app[fast]", "dep>=2.0rc1"]
    newer = project.lock("cpu").lock
    assert newer is not None
    assert [p.version for p in newer.packages if p.name == "dep"] == ["2.0rc1"]


def test_nothing_holds_together(project: Project) -> None:
    project.wheel("a", "1.0", requires=["c<1"])
    project.wheel("c", "1.0")
    project.requirements = ["a", "c"]
    project.target("cpu", "none")
    outcome = project.lock("cpu")
    assert outcome.status == "refused"
    assert "c" in only(outcome, "E-NO-SOLUTION").found


def test_a_target_s_own_requirements_and_constraints(project: Project) -> None:
    for version in ("1.0", "2.0"):
        project.wheel("lib", version)
    project.requirements = ["lib"]
    project.target("old", "none", constraints='["lib<2"]')
    project.target("new", "none")
    old, new = project.lock("old").lock, project.lock("new").lock
    assert old is not None
    assert new is not None
    assert (old.packages[0].version, new.packages[0].version) == ("1.0", "2.0")


def test_equal_inputs_in_another_folder_with_another_cache_give_equal_bytes(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.gpu_wheel("kern", "1.0", {"kern/k.so": ("sm_90 sm_103",), "kern/j.so": ("sm_103",)})
    project.wheel("app", "1.0", requires=["kern"])
    (project.folder / "overlays/app").mkdir(parents=True)
    (project.folder / "overlays/app/x.py").write_text("x = 1\n")
    project.requirements = ["app"]
    project.more = '[[overlay]]\ndistribution = "app"\npath = "overlays/app"'
    project.target("sm_103")
    project.write("sm_103")
    first = project.path("sm_103").read_bytes()
    assert project.write("sm_103").status == "unchanged"
    clone = tmp_path / "another place"
    shutil.copytree(project.folder, clone)
    (clone / "pylock.sm_103.toml").unlink()
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:1/simple")
    project.folder, project.cache = clone, tmp_path / "cache2"
    project.write("sm_103")
    assert project.path("sm_103").read_bytes() == first


def test_check_writes_nothing_and_says_stale(project: Project) -> None:
    from envbundle.resolver.lock import write_lock

    project.wheel("lib", "1.0")
    project.requirements = ["lib"]
    project.target("cpu", "none")
    absent = write_lock(project.lock("cpu"), project.path("cpu"), check=True)
    assert (absent.status, only(absent, "E-LOCK-STALE").found) == ("stale", "no lock")
    assert not project.path("cpu").exists()
    project.write("cpu")
    assert write_lock(project.lock("cpu"), project.path("cpu"), check=True).status == "unchanged"
    project.wheel("more", "1.0")
    project.requirements.append("more")
    before = project.path("cpu").read_bytes()
    assert write_lock(project.lock("cpu"), project.path("cpu"), check=True).status == "stale"
    assert project.path("cpu").read_bytes() == before


def test_uv_and_packaging_install_the_base_of_a_lock(project: Project, tmp_path: Path) -> None:
    project.wheel("lib", "1.0", {"lib.py": "value = 41\n"})
    project.requirements = ["lib"]
    project.python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    project.target("cpu", "none")
    project.write("cpu")
    uv, venv = find_uv(), tmp_path / "venv"
    common = ["--no-config", "--cache-dir", str(tmp_path / "uvc"), "--offline"]
    made = run([uv, "venv", "--python", sys.executable, str(venv), *common])
    assert made.status == 0, made.error_text
    python = venv / "bin/python"
    done = run([uv, "pip", "sync", "--python", str(python), str(project.path("cpu")), *common], cwd=tmp_path)
    assert done.status == 0, done.error_text
    assert run([python, "-c", "import lib; print(lib.value)"]).text == "41\n"


@pytest.mark.parametrize(
    ("platform", "known"),
    [
        ("x86_64-manylinux_2_39", "x86_64-manylinux_2_39"),
        ("aarch64-manylinux_2_30", "aarch64-manylinux_2_28"),
        ("x86_64-manylinux_2_45", "x86_64-manylinux_2_40"),
    ],
)
def test_the_platform_that_uv_is_told(platform: str, known: str) -> None:
    assert uv_platform(platform) == known


def test_a_platform_below_all_that_uv_knows() -> None:
    with pytest.raises(UserInputError):
        uv_platform("x86_64-manylinux_2_12")


def test_another_uv_is_refused(tmp_path: Path) -> None:
    def old(*_: object, **__: object) -> Finished:
        return Finished(status=0, stdout=b"uv 0.4.0 (abc)\n", stderr=b"")

    with pytest.raises(HostError) as caught:
        _ = UvSolver(runner=old, uv="uv", cache=tmp_path).name
    assert (caught.value.code, caught.value.found) == ("E-UV-VERSION", "0.4.0")


def test_a_refused_manifest_leaves_the_present_lock_alone(project: Project) -> None:
    project.gpu_wheel("kern", "1.0", {"kern/k.so": ("sm_90",)})
    project.requirements = ["kern"]
    project.target("t", "sm_90")
    project.write("t")
    text = project.path("t").read_bytes()
    project.targets = ""
    project.target("t", "sm_103")
    assert project.write("t").status == "refused"
    assert project.path("t").read_bytes() == text


def test_a_truncated_wheel_is_an_integrity_error(project: Project) -> None:
    from envbundle.errors import IntegrityError

    path = project.gpu_wheel("kern", "1.0", {"kern/k.so": ("sm_90",)})
    path.write_bytes(path.read_bytes()[:-30])
    project.requirements = ["kern==1.0"]
    project.resolve += "\ncomplete = true"
    project.target("sm_90")
    with pytest.raises(IntegrityError):
        project.lock("sm_90")


def test_a_damaged_kept_scan_is_made_anew(project: Project) -> None:
    project.gpu_wheel("kern", "1.0", {"kern/k.so": ("sm_90",)}, tag=GPU_TAG)
    project.requirements = ["kern"]
    project.target("sm_90")
    first = project.lock("sm_90").lock
    for kept in (project.cache / "scans").rglob("*.json"):
        kept.write_text('{"format": 1')
    assert project.lock("sm_90").lock == first


def test_a_lock_of_a_newer_envbundle_is_refused(project: Project) -> None:
    from envbundle.spec.lock_text import parse_lock

    project.wheel("lib", "1.0")
    project.requirements = ["lib"]
    project.target("cpu", "none")
    project.write("cpu")
    text = project.path("cpu").read_text("utf-8").replace("lock-format = 1", "lock-format = 2")
    with pytest.raises(FormatError) as caught:
        parse_lock(text)
    assert caught.value.code == "E-FORMAT-VERSION"
    assert "upgrade envbundle" in caught.value.hint
