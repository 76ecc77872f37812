"""Building a wheel for a target with the real uv: judged like any other, made once, recorded."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import UserInputError, VerdictError
from envbundle.spec.lock_text import parse_lock, render_lock
from tests.builders import make_wheel
from tests.resolver.project import Project, codes, library, only

if TYPE_CHECKING:
    from envbundle.spec.lock import Lock

EXTENSION = Path(__file__).with_name("cuda_extension")
# Stands in for nvcc, which no test machine has: it links what was prepared for the GPU that it is asked for.
COMPILER = """\
import pathlib, re, sys
numbers = [re.search("code=sm_([0-9]+)", word)[1] for word in sys.argv if word.startswith("-gencode")]
objects = pathlib.Path(__file__).with_name("objects")
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes((objects / "_".join(numbers)).read_bytes())
"""
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose published wheel serves sm_90 alone, and the source that it was built from."""
    project = Project(folder=tmp_path / "project", cache=tmp_path / "cache", python=PYTHON)
    project.folder.mkdir()
    shutil.copytree(EXTENSION, project.folder / "tiny")
    compiler = tmp_path / "compiler" / "nvcc.py"
    (compiler.parent / "objects").mkdir(parents=True)
    compiler.write_text(COMPILER)
    for name in ("90", "103"):
        (compiler.parent / "objects" / name).write_bytes(library(f"sm_{name}"))
    files = {"tiny_kernel/__init__.py": b"", "tiny_kernel/libtiny.so": library("sm_90")}
    make_wheel(
        project.wheels, "tiny-kernel", "1.0", files, tag="py3-none-manylinux_2_34_x86_64", purelib=False
    )
    project.requirements = ["tiny-kernel==1.0"]
    project.target("sm_103")
    project.more = build(compiler, "10.3")
    return project


def build(compiler: Path, archs: str, source: str = "tiny", more: str = "") -> str:
    return (
        f'[target.sm_103.package.tiny-kernel.build]\nsource = "{source}"\n{more}\n'
        f'[target.sm_103.package.tiny-kernel.build.env]\nTORCH_CUDA_ARCH_LIST = "{archs}"\n'
        f'NVCC = "{sys.executable} {compiler}"\n'
    )


def locked(project: Project) -> Lock:
    outcome = project.write("sm_103")
    assert outcome.status in ("written", "unchanged"), [f"{f.code} {f.found}" for f in outcome.findings]
    return project.written("sm_103")


def test_without_the_build_the_published_wheel_is_refused_and_a_build_is_proposed(project: Project) -> None:
    project.more = ""
    finding = only(project.lock("sm_103"), "E-ARCH-NONE")
    assert "[package.tiny-kernel.build]" in finding.hint


def test_a_wheel_is_built_for_the_target_judged_and_pinned(project: Project) -> None:
    lock = locked(project)
    package = lock.package("tiny-kernel")
    assert package is not None
    assert (package.origin, package.wheel.path) == ("built", f"built/{package.wheel.filename}")
    assert (project.folder / "built" / package.wheel.filename).stat().st_size == package.wheel.size
    ((gpu, counts),) = lock.coverage[0].counts
    assert (gpu, counts.verdict) == ("sm_103", "native")
    (record,) = lock.builds
    assert record.source == "tiny"
    assert record.digest.startswith("sha256:")
    assert dict(record.env)["TORCH_CUDA_ARCH_LIST"] == "10.3"
    assert dict(record.toolchain)["python"].startswith(PYTHON)
    assert parse_lock(render_lock(lock)) == lock


def test_the_same_build_is_made_once_and_locks_the_same(project: Project) -> None:
    first = project.write("sm_103")
    (made,) = (project.cache / "builds").glob("*/*.whl")
    stamp = made.stat().st_mtime_ns
    assert project.write("sm_103").status == "unchanged"
    assert made.stat().st_mtime_ns == stamp
    assert first.status == "written"


def test_another_source_or_variable_is_another_build(project: Project) -> None:
    first = locked(project)
    (project.folder / "tiny" / "kernel.cu").write_text("// changed\n")
    second = locked(project)
    assert first.builds[0].digest != second.builds[0].digest
    assert len(list((project.cache / "builds").iterdir())) == 2


def test_a_build_that_serves_another_gpu_is_refused_like_any_wheel(project: Project) -> None:
    project.more = project.more.replace('"10.3"', '"9.0"')
    assert "E-ARCH-NONE" in codes(project.lock("sm_103"))


def test_a_build_leaves_nothing_in_its_source(project: Project) -> None:
    before = sorted(path.name for path in (project.folder / "tiny").iterdir())
    locked(project)
    assert sorted(path.name for path in (project.folder / "tiny").iterdir()) == before


def test_a_build_from_an_sdist(project: Project) -> None:
    with tarfile.open(project.folder / "tiny_kernel-1.0.tar.gz", "w:gz") as archive:
        for path in sorted(EXTENSION.iterdir()):
            if path.is_file():
                archive.add(path, f"tiny_kernel-1.0/{path.name}")
        info = tarfile.TarInfo("tiny_kernel-1.0/PKG-INFO")
        text = b"Metadata-Version: 2.1\nName: tiny-kernel\nVersion: 1.0\n"
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    project.more = project.more.replace('source = "tiny"', 'source = "tiny_kernel-1.0.tar.gz"')
    assert locked(project).builds[0].source == "tiny_kernel-1.0.tar.gz"


def test_what_a_build_requires_is_installed_for_it(project: Project) -> None:
    make_wheel(project.wheels, "build-helper", "2.0", {"build_helper.py": b"WORD = 'helped'\n"})
    backend = project.folder / "tiny" / "backend.py"
    backend.write_text(
        "import build_helper\n" + backend.read_text().replace("from __future__ import annotations\n", "")
    )
    assert only_failure(project).found.count("build_helper")
    project.more = project.more.replace('source = "tiny"', 'source = "tiny"\nrequires = ["build-helper>=2"]')
    assert locked(project).builds[0].requires == ("build-helper>=2",)


def only_failure(project: Project) -> VerdictError:
    outcome = project.lock("sm_103")
    finding = only(outcome, "E-BUILD")
    return VerdictError(finding.code, finding.subject, found=finding.found)


def test_a_build_that_fails_shows_its_own_last_lines(project: Project) -> None:
    project.more = project.more.replace("10.3", "12.0")
    failure = only_failure(project)
    assert failure.subject == "package.tiny-kernel.build"
    assert "objects/120" in failure.found
    assert not project.path("sm_103").exists()


def test_a_source_that_is_not_there(project: Project) -> None:
    project.more = project.more.replace('source = "tiny"', 'source = "gone"')
    with pytest.raises(UserInputError) as caught:
        project.lock("sm_103")
    assert caught.value.code == "E-BUILD-SOURCE"


def test_a_version_that_was_asked_for_holds_for_the_build(project: Project) -> None:
    project.requirements = ["tiny-kernel==2.0"]
    assert "E-NO-SOLUTION" in codes(project.lock("sm_103"))


@pytest.mark.e2e
def test_a_build_from_a_git_revision(project: Project, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(EXTENSION, repository)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(repository)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    source = f"git+file://{repository}@{commit}"
    project.more = project.more.replace('source = "tiny"', f'source = "{source}"')
    assert locked(project).builds[0].digest == f"git:{commit}"
