"""The loader's rules of search, each with files made for it."""

from __future__ import annotations

from typing import Any

import pytest

from envbundle.resolver.closure import foreign_folders

from .environment import SITE, linkage, placed

MODULE = "ext/_m.abi3.so"


def loaded(*files: object, root: str = MODULE, **more: object) -> tuple[list[str], list[str], list[str]]:
    """Return what the root's closure loads, misses, and finds elsewhere."""
    links = linkage(*files, **more)  # type: ignore[arg-type]
    closure = next(c for c in links.closures if c.root.path == SITE + root)
    return (
        [file.path.removeprefix(SITE) for file in closure.files[1:]],
        [missing.soname for missing in closure.missing],
        [item.soname for item in closure.elsewhere],
    )


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"runpath": "$ORIGIN/../lib"}, True),
        ({"rpath": "$ORIGIN/../lib"}, True),
        ({"rpath": "${ORIGIN}/../lib"}, True),
        ({"runpath": "/opt/build:$ORIGIN/../lib/"}, True),
        ({"runpath": "$ORIGIN"}, False),
        ({"runpath": "$ORIGIN/../../../../../../lib"}, False),
        ({"rpath": "$ORIGIN/../lib", "runpath": "$ORIGIN"}, False),
        ({"runpath": "/root/venv/lib/python3.12/site-packages/lib"}, False),
    ],
    ids=["runpath", "rpath", "braces", "second", "elsewhere", "outside", "runpath wins", "absolute"],
)
def test_search_paths_lead_to_the_file(keys: dict[str, Any], found: bool) -> None:
    files = (placed(MODULE, needed=["libx.so.1"], **keys), placed("lib/libx.so.1", soname="libx.so.1"))
    by_path, missing, elsewhere = loaded(*files)
    assert (by_path, missing) == (["lib/libx.so.1"], [])
    assert elsewhere == ([] if found else ["libx.so.1"])


def test_a_fixed_prefix_makes_absolute_paths_of_it_good() -> None:
    prefix = "/root/venv"
    files = (
        placed(MODULE, needed=["libx.so.1"], runpath=f"{prefix}/{SITE}lib"),
        placed("lib/libx.so.1", soname="libx.so.1"),
    )
    assert loaded(*files, prefix=prefix)[2] == []


def test_rpath_is_inherited_and_runpath_is_not() -> None:
    inner = placed("lib/libx.so.1", soname="libx.so.1", needed=["liby.so.1"])
    last = placed("deep/liby.so.1", soname="liby.so.1")
    for keys, elsewhere in (
        ({"rpath": "$ORIGIN/../lib:$ORIGIN/../deep"}, []),
        ({"runpath": "$ORIGIN/../lib:$ORIGIN/../deep"}, ["liby.so.1"]),
    ):
        assert loaded(placed(MODULE, needed=["libx.so.1"], **keys), inner, last)[2] == elsewhere


def test_a_file_with_runpath_does_not_inherit_rpath() -> None:
    inner = placed("lib/libx.so.1", soname="libx.so.1", needed=["liby.so.1"], runpath="$ORIGIN")
    last = placed("deep/liby.so.1", soname="liby.so.1")
    files = (placed(MODULE, needed=["libx.so.1"], rpath="$ORIGIN/../lib:$ORIGIN/../deep"), inner, last)
    assert loaded(*files)[2] == ["liby.so.1"]


def test_what_is_loaded_already_satisfies_whatever_its_path() -> None:
    """libx finds liby by its own path only after the module has loaded it under its soname."""
    files = (
        placed(MODULE, needed=["liby.so.1", "libx.so.1"], runpath="$ORIGIN/../lib:$ORIGIN/../deep"),
        placed("lib/libx.so.1", soname="libx.so.1", needed=["liby.so.1"]),
        placed("deep/liby.so.1", soname="liby.so.1"),
    )
    assert loaded(*files) == (["deep/liby.so.1", "lib/libx.so.1"], [], [])


def test_the_file_name_is_looked_up_and_the_soname_only_of_what_is_loaded() -> None:
    files = (
        placed(MODULE, needed=["libx.so.1"], runpath="$ORIGIN"),
        placed("ext/libx-1.2.so", soname="libx.so.1"),
    )
    assert loaded(*files)[2] == ["libx.so.1"]


def test_files_of_another_machine_are_passed_over() -> None:
    files = (placed(MODULE, needed=["libx.so.1"], runpath="$ORIGIN"), placed("ext/libx.so.1", machine=183))
    assert loaded(*files)[1] == ["libx.so.1"]


def test_circles_end() -> None:
    files = (
        placed(MODULE, needed=["liba.so"], runpath="$ORIGIN"),
        placed("ext/liba.so", soname="liba.so", needed=["libb.so"], runpath="$ORIGIN"),
        placed("ext/libb.so", soname="libb.so", needed=["liba.so"], runpath="$ORIGIN"),
    )
    assert loaded(*files) == (["ext/liba.so", "ext/libb.so"], [], [])


@pytest.mark.parametrize(
    ("path", "keys", "is_root"),
    [
        ("a/m.cpython-312-x86_64-linux-gnu.so", {}, True),
        ("a/m.abi3.so", {}, True),
        ("a/m.cpython-310-x86_64-linux-gnu.so", {}, False),
        ("a/libtriton.so", {"exported": ["PyInit_libtriton"]}, True),
        ("a/libother.so", {"exported": ["PyInit_libtriton"]}, False),
        ("a/_C.so", {"needed": ["libtorch.so"]}, True),
        ("a/_C.so", {"undefined": ["PyModule_Create2"]}, True),
        ("a/plugin.so", {}, False),
        ("a/plugin.so.3", {"undefined": ["PyModule_Create2"]}, False),
        ("a/libx.so", {"undefined": ["PyModule_Create2"]}, False),
    ],
)
def test_what_python_imports(path: str, keys: dict[str, Any], is_root: bool) -> None:
    assert bool(linkage(placed(path, **keys)).roots) is is_root


def test_folders_of_the_build_machine() -> None:
    file = placed(MODULE, runpath="$ORIGIN/..:/opt/ci/build/lib:/usr/lib64:/usr/local/cuda/lib64")
    assert foreign_folders(file) == ["/opt/ci/build/lib", "/usr/local/cuda/lib64"]
