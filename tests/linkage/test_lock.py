"""The judgements at work in a real lock of a folder of tiny wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import shared_object
from tests.resolver.project import GPU_TAG, Project, codes, only

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "_ZN3lib6rotateEPfi", "_ZN3lib6rotateEPfl"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(folder=tmp_path / "project", cache=tmp_path / "cache")
    project.folder.mkdir()
    project.target("cpu", gpu="none", platform="x86_64-manylinux_2_34")
    return project


def binary_wheel(project: Project, name: str, version: str, files: dict[str, bytes], **more: Any) -> None:
    project.wheel(name, version, {f"{name}/__init__.py": b"", **files}, tag=GPU_TAG, purelib=False, **more)


def pair(project: Project, exported: str, version: str = "2.0") -> None:
    """A library, and an extension that was linked with its first release."""
    library = shared_object(soname="libcore.so.1", exported=[exported])
    binary_wheel(project, "corelib", version, {"corelib/lib/libcore.so.1": library})
    module = shared_object(needed=["libcore.so.1"], runpath="$ORIGIN/../corelib/lib", undefined=[OLD])
    binary_wheel(project, "ext", "1.0", {"ext/_m.abi3.so": module}, requires=["corelib"])
    project.requirements = ["ext"]


def test_a_pair_whose_symbol_changed_is_refused_by_its_name(project: Project) -> None:
    pair(project, NEW)
    outcome = project.write("cpu")
    finding = only(outcome, "E-ABI")
    assert outcome.status == "refused"
    assert "lib::rotate(float*, int)" in finding.expected
    assert "corelib 2.0" in finding.found
    assert not project.path("cpu").exists()


def test_the_pair_that_fits_locks(project: Project) -> None:
    pair(project, OLD)
    outcome = project.write("cpu")
    assert (outcome.status, codes(outcome)) == ("written", [])


def test_b59_a_file_against_its_platform_tag(project: Project) -> None:
    needy = shared_object(versions={"libc.so.6": ["GLIBC_2.39"]})
    binary_wheel(project, "newer", "1.0", {"newer/bin/tool": needy})
    project.requirements = ["newer"]
    outcome = project.lock("cpu")
    assert only(outcome, "E-GLIBC").found == "GLIBC_2.39"
    project.target("new", gpu="none", platform="x86_64-manylinux_2_39")
    lock = project.lock("new").lock
    assert lock is not None
    assert lock.requires["glibc"] == "2.39"


def test_b57_a_missing_cuda_runtime_and_the_invariant_that_declares_it(project: Project) -> None:
    module = shared_object(needed=["libcudart.so.12", "libc.so.6"])
    binary_wheel(project, "ext", "1.0", {"ext/_m.abi3.so": module})
    project.requirements = ["ext"]
    finding = only(project.lock("cpu"), "E-SONAME")
    assert "nvidia-cuda-runtime-cu12 brings it" in finding.hint
    project.more = '[[invariant]]\nkind = "library"\nsoname = "libcudart.so.12"\n'
    outcome = project.lock("cpu")
    assert (outcome.status, codes(outcome)) == ("stale", [])


def test_a_file_that_lost_its_path_to_a_winner_is_not_judged(project: Project) -> None:
    bad = shared_object(needed=["libabsent.so.1"])
    binary_wheel(project, "one", "1.0", {"shared/_m.abi3.so": bad})
    binary_wheel(project, "two", "1.0", {"shared/_m.abi3.so": shared_object()})
    project.requirements = ["one", "two"]
    for winner, expected in (("two", []), ("one", ["E-SONAME"])):
        project.more = f'[package.{winner}]\nwinner = ["shared/_m.abi3.so"]\n'
        assert codes(project.lock("cpu")) == expected


def test_a_lock_made_again_from_kept_scans_says_the_same(project: Project) -> None:
    pair(project, NEW)
    assert project.lock("cpu").findings == project.lock("cpu").findings


def test_pip_check_of_a_full_freeze(project: Project) -> None:
    project.wheel("alone", "1.0", requires=["other>=2", "gone"])
    project.wheel("other", "1.0")
    project.requirements = ["alone==1.0", "other==1.0"]
    project.resolve = 'find-links = ["wheels"]\nno-index = true\ncomplete = true'
    outcome = project.lock("cpu")
    finding = only(outcome, "W-PIP-CHECK")
    assert finding.found == "2 unmet: other>=2 (1.0 there), gone (not there)"
    project.more = '[source]\nglibc = "2.34"\n'
    assert codes(project.lock("cpu")) == ["N-PIP-CHECK"]


def test_b63_the_trio_needs_no_group_in_the_manifest(project: Project) -> None:
    for name, version in (("flashinfer-python", "0.6.16"), ("flashinfer-cubin", "0.6.9")):
        project.wheel(name, version)
        project.requirements.append(f"{name}=={version}")
    assert "E-GROUP-VERSION" in codes(project.lock("cpu"))


@pytest.mark.parametrize(
    ("libraries", "code"),
    [("", "E-SONAME"), ('libraries = ["libhost.so.3"]', "E-SONAME"), ("libraries = []", "N-NEVER-HAD")],
    ids=["nobody looked", "lost", "never had"],
)
def test_a_library_that_the_source_had_or_not(project: Project, libraries: str, code: str) -> None:
    binary_wheel(project, "ext", "1.0", {"ext/_m.abi3.so": shared_object(needed=["libhost.so.3"])})
    project.requirements = ["ext"]
    project.more = f'[source]\nglibc = "2.34"\n{libraries}\n'
    assert codes(project.lock("cpu")) == [code]
