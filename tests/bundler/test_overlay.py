"""Overlay layers: exactly the locked bytes over exactly the locked base."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, IntegrityError, VerdictError
from envbundle.host.folder import Folder
from envbundle.spec.digest import Digest
from envbundle.spec.layer import BaseFile, Layer
from envbundle.store.memory import MemoryStore
from envbundle.store.read import read_layer, read_plain

from .builders import Shelf, entry_bytes, lock_of, overlay_file, overlay_of, run_pack, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from envbundle.bundler.pack import PackResult
    from envbundle.spec.lock import LockedOverlay, LockedPackage

SITE = "lib/python3.12/site-packages"
FILES = {"demo/a.py": b"a = 1\n", "demo/b.py": b"b = 1\n", "demo/c.py": b"c = 1\n"}
PATCH = {"demo/a.py": b"a = 2\n", "demo/new/d.py": b"d = 2\n"}


class World:
    """One base wheel, one overlay of it, a store and the folder."""

    def __init__(self, tmp_path: Path, *, purelib: bool = True, inside: bool = False) -> None:
        self.shelf, self.store, self.folder = Shelf(), MemoryStore(), tmp_path
        self.base: LockedPackage = self.shelf.wheel("demo", files=FILES, purelib=purelib)
        self.root = tmp_path / "overlays" / "demo"
        write_files(
            self.root, {path.removeprefix("demo/") if inside else path: data for path, data in PATCH.items()}
        )
        self.locked: LockedOverlay = overlay_of(
            self.base,
            overlay_file("demo/a.py", PATCH["demo/a.py"], replaces=FILES["demo/a.py"]),
            overlay_file("demo/new/d.py", PATCH["demo/new/d.py"], mode=0o755),
            removes={"demo/c.py": FILES["demo/c.py"]},
        )

    def pack(self, **more: object) -> PackResult:
        lock = lock_of(self.base, overlays=(self.locked,))
        return run_pack(lock, self.shelf, self.store, overlays=self.folder, **more)  # type: ignore[arg-type]

    def overlay_layer(self, result: PackResult) -> tuple[Layer, dict[Digest, bytes]]:
        layer = read_layer(self.store, result.descriptor, result.descriptor.content.layers[1])
        return layer, {
            digest: read_plain(self.store, result.descriptor, digest) for digest, _ in layer.chunks
        }


@pytest.mark.parametrize("purelib", [True, False], ids=["purelib", "platlib"])
@pytest.mark.parametrize(
    "inside", [False, True], ids=["laid out as site-packages", "laid out as the package"]
)
def test_an_overlay(tmp_path: Path, purelib: bool, inside: bool) -> None:
    world = World(tmp_path, purelib=purelib, inside=inside)
    result = world.pack()
    layer, chunks = world.overlay_layer(result)
    scheme = "purelib" if purelib else "platlib"
    assert [(e.path, e.mode) for e in layer.entries] == [
        (f"{scheme}/demo/a.py", 0o644),
        (f"{scheme}/demo/new/d.py", 0o755),
    ]
    assert entry_bytes(layer, f"{scheme}/demo/a.py", chunks) == PATCH["demo/a.py"]
    assert layer.replaces == (BaseFile(path=f"{scheme}/demo/a.py", sha256=Digest.of(FILES["demo/a.py"])),)
    assert layer.removes == (BaseFile(path=f"{scheme}/demo/c.py", sha256=Digest.of(FILES["demo/c.py"])),)
    assert (layer.kind, layer.distribution, layer.version, layer.wheel) == ("overlay", "demo", "1.0", None)
    ref = result.descriptor.content.layers[1]
    assert (ref.kind, ref.origin, ref.files) == ("overlay", "installed-tree", 2)
    assert result.descriptor.content.provides == {f"{SITE}/demo/a.py": 1, f"{SITE}/demo/c.py": None}


def test_modes_come_from_the_lock(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.pack()
    (world.root / "demo/a.py").chmod(0o700)
    (world.root / "demo/new/d.py").chmod(0o400)
    assert world.pack().descriptor == first.descriptor


def test_what_python_leaves_in_the_folder_does_not_matter(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.pack()
    write_files(world.root, {"demo/__pycache__/a.cpython-312.pyc": b"x"})
    assert world.pack().descriptor == first.descriptor
    write_files(world.root, {"demo-1.0.dist-info/RECORD": b"x"})  # which lock refuses
    with pytest.raises(VerdictError) as caught:
        world.pack()
    assert caught.value.code == "E-OVERLAY-CHANGED"


@pytest.mark.parametrize("cached", [False, True], ids=["first pack", "reused layer"])
@pytest.mark.parametrize(
    ("edit", "subject"),
    [
        pytest.param(lambda root: (root / "demo/a.py").write_bytes(b"a = 3\n"), "demo/a.py", id="edited"),
        pytest.param(lambda root: (root / "demo/a.py").write_bytes(b"a = 33\n"), "demo/a.py", id="longer"),
        pytest.param(lambda root: (root / "demo/a.py").unlink(), "demo/a.py", id="gone"),
        pytest.param(lambda root: (root / "demo/e.py").write_bytes(b""), "demo/e.py", id="added"),
    ],
)
def test_an_overlay_that_is_not_as_locked_is_refused(
    tmp_path: Path, edit: Callable[[Path], object], subject: str, cached: bool
) -> None:
    world = World(tmp_path)
    if cached:
        assert world.pack(cache=tmp_path / "cache").layers_reused == 0
        assert world.pack(cache=tmp_path / "cache").layers_reused == 2
    edit(world.root)
    with pytest.raises(VerdictError) as caught:
        world.pack(cache=tmp_path / "cache")
    assert [(f.code, f.subject) for f in caught.value.findings] == [
        ("E-OVERLAY-CHANGED", f"overlays/demo/{subject}")
    ]
    assert world.store.tags() == ()
    assert world.shelf.opened == ([] if not cached else ["demo-1.0-py3-none-any.whl"]), (
        "told before any wheel"
    )


def test_all_changes_are_said_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    for path, data in PATCH.items():
        (world.root / path).write_bytes(b"?" * len(data))
    with pytest.raises(VerdictError) as caught:
        world.pack()
    assert [f.subject for f in caught.value.findings] == [f"overlays/demo/{path}" for path in PATCH]


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        pytest.param(
            {"files": (overlay_file("demo/a.py", PATCH["demo/a.py"], replaces=b"?"),)}, "a.py", id="replaced"
        ),
        pytest.param(
            {"files": (overlay_file("demo/a.py", PATCH["demo/a.py"]),)}, "a.py", id="said to be new"
        ),
        pytest.param(
            {"files": (overlay_file("demo/new/d.py", PATCH["demo/new/d.py"], replaces=b"?"),)},
            "d.py",
            id="said to be there",
        ),
        pytest.param({"removes": (("demo/c.py", Digest.of(b"?")),)}, "c.py", id="removed, with other bytes"),
        pytest.param(
            {"removes": (("demo/none.py", Digest.of(b"?")),)}, "none.py", id="removed, and not there"
        ),
        pytest.param({"base_wheel": Digest.of(b"?")}, "the base wheel", id="another base"),
        pytest.param({"distribution": "other"}, "overlay of other", id="a base that is not locked"),
    ],
)
def test_a_lock_that_does_not_fit_its_base_is_refused(
    tmp_path: Path, change: dict[str, object], subject: str
) -> None:
    world = World(tmp_path)
    world.locked = replace(world.locked, **change)  # type: ignore[arg-type]
    for path in PATCH:
        if path not in {file.path for file in world.locked.files}:
            (world.root / path).unlink()
    with pytest.raises(IntegrityError) as caught:
        world.pack()
    assert caught.value.code == "E-OVERLAY-LOCK"
    assert caught.value.subject.endswith(subject)


def test_an_edited_overlay_leaves_the_base_layer_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.pack(cache=tmp_path / "cache")
    (world.root / "demo/a.py").write_bytes(b"a = 5\n")
    world.locked = replace(
        world.locked,
        files=(overlay_file("demo/a.py", b"a = 5\n", replaces=FILES["demo/a.py"]), world.locked.files[1]),
    )
    second = world.pack(cache=tmp_path / "cache")
    assert second.layers_reused == 1
    before, after = first.descriptor.content.layers, second.descriptor.content.layers
    assert before[0] == after[0]
    assert before[1] != after[1]


def folder_files(root: Path) -> dict[str, bytes]:
    folder = Folder(root)
    return {file.path: b"".join(folder.blocks(file.path)) for file in folder.files()}


def test_a_folder_lists_and_reads_its_files(tmp_path: Path) -> None:
    files = {"b/c.py": b"c", "a.py": b"a" * 3_000_000, "b/é.py": b"e", "b.py": b""}
    write_files(tmp_path / "root", {**files, "b/__pycache__/c.pyc": b"no"})
    (tmp_path / "root" / "link.py").symlink_to("b/c.py")
    (tmp_path / "alias").symlink_to("root")
    assert folder_files(tmp_path / "alias") == {**files, "link.py": b"c"}
    assert [f.path for f in Folder(tmp_path / "root").files()] == sorted([*files, "link.py"], key=str.encode)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(lambda root: (root / "x").symlink_to("/etc/passwd"), "E-SYMLINK", id="a link out"),
        pytest.param(
            lambda root: (root / "x").symlink_to("../outside"), "E-SYMLINK", id="a relative link out"
        ),
        pytest.param(lambda root: (root / "x").symlink_to("sub"), "E-SYMLINK", id="a link to a folder"),
        pytest.param(lambda root: (root / "x").symlink_to("nothing"), "E-NOT-FOUND", id="a link to nothing"),
        pytest.param(lambda root: os.mkfifo(root / "x"), "E-NOT-A-FILE", id="a pipe"),
    ],
)
def test_a_folder_refuses_what_is_no_file_of_its_own(
    tmp_path: Path, make: Callable[[Path], object], code: str
) -> None:
    root = write_files(tmp_path / "root", {"sub/a": b"a"})
    (tmp_path / "outside").write_bytes(b"secret")
    make(root)
    with pytest.raises(HostError) as caught:
        Folder(root).files()
    assert caught.value.code == code
    with pytest.raises((HostError, IntegrityError)):
        b"".join(Folder(root).blocks("x"))


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "sub/../../outside", ""])
def test_a_folder_opens_no_name_that_leads_out(tmp_path: Path, path: str) -> None:
    write_files(tmp_path / "root", {"sub/a": b"a"})
    (tmp_path / "outside").write_bytes(b"secret")
    with pytest.raises(IntegrityError) as caught:
        b"".join(Folder(tmp_path / "root").blocks(path))
    assert caught.value.code == "E-PATH"
