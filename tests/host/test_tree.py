"""Contained writing: nothing in a path leads outside, whatever stands in the tree."""


from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, IntegrityError
from envbundle.host.tree import Tree, remove_tree

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_is_what_is_told(tmp_path: Path) -> None:
    with Tree.create(tmp_path / "root") as tree:
        written = tree.write("a/b/c.txt", b"hello", 0o640)
        status = (tmp_path / "root/a/b/c.txt").stat()
        assert written.sha256 == hashlib.sha256(b"hello").hexdigest()
        assert (written.size, written.mtime_ns, written.inode) == (5, status.st_mtime_ns, status.st_ino)
        assert stat.S_IMODE(status.st_mode) == 0o640
        assert tree.digest("a/b/c.txt") == written.sha256
        assert tree.read("a/b/c.txt", 5) == b"hello"
        with pytest.raises(HostError) as caught:
            tree.read("a/b/c.txt", 4)
        assert caught.value.code == "E-SIZE"


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with Tree.create(tmp_path / "root") as tree:
        tree.symlink("way", str(outside))
        tree.symlink("file", str(outside / "x"))
        for work in (
            lambda: tree.write("way/x", b"", 0o644),
            lambda: tree.write("way/deep/x", b"", 0o644),
            lambda: tree.write("file", b"", 0o644),
            lambda: tree.symlink("way/x", "y"),
            lambda: tree.folder("way"),
        ):
            with pytest.raises(IntegrityError) as caught:
                work()
            assert caught.value.code == "E-PATH"
        assert tree.stat("way/x") is None
        (outside / "secret").write_text("s")
        for read in (lambda: tree.read("way/secret", 9), lambda: tree.open_file("file")):
            with pytest.raises((HostError, IntegrityError)):
                read()
        assert sorted(path for path, _ in tree.walk()) == ["file", "way"]
    assert os.listdir(outside) == ["secret"]
    remove_tree(tmp_path / "root")
    assert (outside / "secret").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with Tree.create(tmp_path / "root") as tree:
        tree.write("a", b"1", 0o644)
        with pytest.raises(IntegrityError) as caught:
            tree.write("a", b"2", 0o644)
        assert caught.value.code == "E-PATH"
        with pytest.raises(IntegrityError):
            tree.write("a/b", b"2", 0o644)
        assert tree.read("a", 9) == b"1"


def test_special_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Tree(tmp_path) as tree, pytest.raises(HostError) as caught:
        tree.open_file("pipe")
    assert caught.value.code == "E-NOT-A-FILE"


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Tree.create(tmp_path / "root") as tree:
        for number in range(300):
            tree.write(f"d{number}/e/f", b"x", 0o644)
        deep = "/".join("x" * 3 for _ in range(200))
        tree.write(f"{deep}/f", b"x", 0o644)
        assert len(os.listdir("/proc/self/fd")) < before + 250
        assert tree.read(f"{deep}/f", 1) == b"x"
        assert len(list(tree.walk())) == 301
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_folders_have_one_mode(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Tree.create(tmp_path / "root") as tree:
            tree.write("a/b/c", b"", 0o600)
    finally:
        os.umask(before)
    for path in ("root", "root/a", "root/a/b"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o755


def test_copies_links_and_clones(tmp_path: Path) -> None:
    with Tree.create(tmp_path / "one") as one, Tree.create(tmp_path / "two") as two:
        one.write("a/x", b"data" * 1000, 0o644)
        os.utime(tmp_path / "one/a/x", ns=(10**18, 10**18 + 7))
        copied = two.copy(one, "a/x", "b/x", 0o600)
        assert (copied.mtime_ns, copied.sha256) == (10**18 + 7, hashlib.sha256(b"data" * 1000).hexdigest())
        two.link(one, "a/x", "b/y")
        assert (tmp_path / "two/b/y").samefile(tmp_path / "one/a/x")
        cloned = two.clone(one, "a/x", "b/z", 0o640)
        if cloned is None:  # this file system has no reflinks
            assert not (tmp_path / "two/b/z").exists()
        else:
            assert (tmp_path / "two/b/z").read_bytes() == b"data" * 1000
        with pytest.raises(HostError):
            two.copy(one, "a/none", "b/none", 0o600)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    with Tree(tmp_path) as tree:
        ((path, status),) = tree.walk()
    assert (os.fsencode(path), status.st_size) == (b"\xff\xfe", 1)
