"""Exit 4: disks that are full, out of inodes or read-only. Real file systems; needs root to mount them."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from .kit import SITE, Case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e
NOISE = random.Random(7).randbytes(20 << 20)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs of its own at ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A packed project of 20 MB in a few files and another of many small ones."""
    case = Case.make(tmp_path_factory.mktemp("made"))
    case.wheel("app", "1.0", {f"app/{i}.bin": NOISE[i << 21 : i + 1 << 21] for i in range(10)} | {"app/__init__.py": ""}, level=0)
    case.wheel("many", "1.0", {f"many/m{i}.txt": str(i) for i in range(3000)})
    case.manifest("app==1.0", gpu={"big": "sm_90", "small": "sm_90"})
    text = (case.folder / "envbundle.toml").read_text().replace('requirements = ["app==1.0"]', "requirements = []")
    text = text.replace("[target.big]", '[target.big]\nrequirements = ["app==1.0"]')
    text = text.replace("[target.small]", '[target.small]\nrequirements = ["many==1.0"]')
    (case.folder / "envbundle.toml").write_text(text)
    case.packed()
    return case


def _install(case: Case, prefix: Path, target: str, *words: str, **env: str) -> tuple[int, list[str]]:
    done = case.run("install", case.store, "--arch", target, "--prefix", prefix, "--no-device", *words, **env)
    return done.status, done.codes


def test_4_no_space_for_an_install(made: Case, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=15m") as disk:
        done = made.run("install", made.store, "--arch", "big", "--prefix", disk / "env", "--no-device")
        assert (done.status, done.codes) == (4, ["E-SPACE"])
        found = done.one("E-SPACE")
        assert found["subject"].startswith(str(disk))
        assert int(found["expected"].split()[0]) > 20 << 20
        assert int(found["found"].split()[0]) <= 15 << 20
        assert not list(disk.iterdir())


def test_4_small_files_take_whole_blocks(made: Case, tmp_path: Path) -> None:
    """3,000 files of 4 bytes need 12 MB and more; a preflight that adds sizes up would let it begin."""
    with mounted(tmp_path / "disk", "size=11m") as disk:
        assert _install(made, disk / "env", "small") == (4, ["E-SPACE"])
        assert not list(disk.iterdir())


def test_4_no_inodes_for_an_install(made: Case, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=100m,nr_inodes=1000") as disk:
        done = made.run("install", made.store, "--arch", "small", "--prefix", disk / "env", "--no-device")
        assert (done.status, done.codes) == (4, ["E-INODES"])
        assert int(done.one("E-INODES")["found"]) < 1000
        assert not list(disk.iterdir())


@pytest.mark.parametrize("old", [False, True], ids=["first install", "over another"])
def test_4_the_disk_fills_in_the_middle(made: Case, tmp_path: Path, old: bool) -> None:
    """Somebody else takes the space after the preflight: the stage goes, and what was there stays."""
    with mounted(tmp_path / "disk", f"size={52 if old else 34}m") as disk:
        prefix = disk / "env"
        if old:
            assert _install(made, prefix, "small") == (0, [])
        before = sorted(p.name for p in disk.iterdir())
        stop = threading.Event()

        def eat() -> None:
            while not stop.is_set():
                if list(disk.glob("env.generations/.stage-*")):
                    free = os.statvfs(disk)
                    with (disk / "eaten").open("wb") as out, contextlib.suppress(OSError):
                        while free.f_bavail:
                            at = os.fstat(out.fileno()).st_size
                            os.posix_fallocate(out.fileno(), at, free.f_bavail * free.f_frsize)
                            free = os.statvfs(disk)
                    return
                time.sleep(0.0002)

        thread = threading.Thread(target=eat)
        thread.start()
        status, codes = _install(made, prefix, "big")
        stop.set()
        thread.join()
        assert (disk / "eaten").exists()
        (disk / "eaten").unlink()
        assert (status, codes) == (4, ["E-SPACE"])
        assert sorted(p.name for p in disk.iterdir() if p.name != "env.generations") == [n for n in before if n != "env.generations"]
        assert not list(disk.glob("env.generations/.stage-*"))
        if old:
            assert (prefix / SITE / "many/m7.txt").read_text() == "7"
            made.ok("verify", prefix)
        assert _install(made, prefix, "big") == (0, [])
        made.ok("verify", prefix)


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["install", "--check"])
def test_4_a_read_only_prefix(made: Case, tmp_path: Path, check: tuple[str, ...]) -> None:
    with mounted(tmp_path / "disk", "size=100m,ro") as disk:
        assert _install(made, disk / "env", "big", *check) == (4, ["E-READ-ONLY"])
        assert _install(made, disk / "sub/env", "big", *check) == (4, ["E-READ-ONLY"])
        assert not list(disk.iterdir())


def test_4_read_only_over_another(made: Case, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=100m") as disk:
        assert _install(made, disk / "env", "small") == (0, [])
        remount(disk, "ro")
        assert _install(made, disk / "env", "big") == (4, ["E-READ-ONLY"])
        assert made.run("rollback", disk / "env").status in (2, 4)
        made.ok("verify", disk / "env")


def test_temporary_files_elsewhere_do_not_matter(made: Case, tmp_path: Path) -> None:
    """The stage stands beside the prefix; /tmp on another, tiny volume is no hindrance."""
    with mounted(tmp_path / "tmp", "size=64k") as tiny, mounted(tmp_path / "disk", "size=100m") as disk:
        assert _install(made, disk / "env", "big", TMPDIR=str(tiny)) == (0, [])
        assert not list(tiny.iterdir())


@pytest.mark.parametrize("options", ["size=5m", "size=100m,nr_inodes=8"], ids=["no space", "no inodes"])
def test_4_pack_to_a_full_disk(made: Case, tmp_path: Path, options: str) -> None:
    shutil.rmtree(made.root / "cache", ignore_errors=True)
    with mounted(tmp_path / "disk", options) as disk:
        done = made.run("pack", "--arch", "big", "--key", "key", "-o", disk / "dist")
        assert (done.status, done.codes) == (4, ["E-SPACE"]), done.answer
        assert str(disk) in done.first("E-SPACE")["subject"]
        assert not list(disk.iterdir())
        remount(disk, "size=100m,nr_inodes=10000")
        made.ok("pack", "--arch", "big", "--key", "key", "-o", disk / "dist")
        made.ok("verify", disk / "dist")


def test_4_pack_beside_another_bundle_on_a_full_disk(made: Case, tmp_path: Path) -> None:
    """What was packed before stays whole, and the refused one leaves no byte."""
    with mounted(tmp_path / "disk", "size=5m") as disk:
        made.ok("pack", "--arch", "small", "--key", "key", "-o", disk / "dist")
        before = sorted(p.relative_to(disk) for p in disk.rglob("*"))
        done = made.run("pack", "--key", "key", "-o", disk / "dist")
        assert (done.status, done.codes) == (4, ["E-SPACE"])
        assert sorted(p.relative_to(disk) for p in disk.rglob("*")) == before
        made.ok("verify", disk / "dist")


@pytest.mark.parametrize("options", ["size=5m", "size=100m,nr_inodes=8"], ids=["no space", "no inodes"])
def test_4_copy_to_a_full_disk(made: Case, tmp_path: Path, options: str) -> None:
    with mounted(tmp_path / "disk", options) as disk:
        done = made.run("copy", made.store, disk / "there", "--arch", "big")
        assert (done.status, done.codes) == (4, ["E-SPACE"]), done.answer
        assert made.run("install", disk / "there", "--prefix", tmp_path / "env").status != 0
        remount(disk, "size=100m,nr_inodes=10000")
        made.ok("copy", made.store, disk / "there", "--arch", "big")
        made.ok("verify", disk / "there")


@pytest.mark.parametrize("words", [("pack", "--key", "key", "-o"), ("copy", "dist")])
def test_4_a_read_only_destination(made: Case, tmp_path: Path, words: tuple[str, ...]) -> None:
    with mounted(tmp_path / "disk", "size=100m,ro") as disk:
        done = made.run(*words, disk / "there", "--arch", "big")
        assert (done.status, done.codes) == (4, ["E-READ-ONLY"]), done.answer
        assert str(disk) in done.one("E-READ-ONLY")["subject"]


def test_4_a_store_that_became_read_only(made: Case, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=100m") as disk:
        made.ok("copy", made.store, disk / "there", "--arch", "small")
        remount(disk, "ro")
        made.ok("verify", disk / "there")
        assert _install(Case(made.root, made.env), tmp_path / "e", "small") == (0, [])
        for words in (("copy", "dist", disk / "there"), ("pack", "--key", "key", "-o", disk / "there"), ("sign", disk / "there", "--key", "key"), ("gc", disk / "there")):
            done = made.run(*words)
            assert (done.status, set(done.codes)) == (4, {"E-READ-ONLY"}), (words, done.answer)


@pytest.mark.parametrize("options", ["size=100m,ro", "size=100k"], ids=["read-only", "full"])
def test_4_a_project_or_cache_that_cannot_be_written(made: Case, tmp_path: Path, options: str) -> None:
    with mounted(tmp_path / "disk", "size=100m") as disk:
        folder = disk / "project"
        shutil.copytree(made.folder, folder, ignore=shutil.ignore_patterns("dist", "pylock*"))
        remount(disk, options.replace("size=100k", "size=21m"))
        if "ro" not in options:
            with (disk / "eaten").open("wb") as out:
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(out.fileno(), os.fstat(out.fileno()).st_size, 4096)
        before = sorted(folder.rglob("*"))
        manifest = folder / "envbundle.toml"
        code = "E-READ-ONLY" if "ro" in options else "E-SPACE"
        done = made.run("lock", "--manifest", manifest)
        assert (done.status, code in done.codes) == (4, True), done.answer
        done = made.run("lock", "--manifest", manifest, ENVBUNDLE_CACHE=str(disk / "cache"))
        assert (done.status, code in done.codes) == (4, True), done.answer
        assert sorted(folder.rglob("*")) == before
