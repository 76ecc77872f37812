"""Versions that files ask of glibc and libstdc++ against what a target has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envbundle.resolver.glibc import floors, judge_runtimes

from .environment import linkage, placed

if TYPE_CHECKING:
    from envbundle.resolver.placed import PlacedFile


def file(*, glibc: str = "", cxx: str = "", path: str = "ext/_m.abi3.so", weak: str = "") -> PlacedFile:
    versions = {}
    if glibc:
        versions["libc.so.6"] = ["GLIBC_2.2.5", glibc]
    if cxx:
        versions["libstdc++.so.6"] = [cxx]
    return placed(path, versions=versions, weak_versions={"libc.so.6": [weak]} if weak else None)


@pytest.mark.parametrize(
    ("glibc", "cxx", "weak", "floor", "codes"),
    [
        ("GLIBC_2.34", "GLIBCXX_3.4.29", "", "2.34", []),
        ("GLIBC_2.39", "", "", "2.34", ["E-GLIBC"]),
        ("GLIBC_2.34", "", "GLIBC_2.39", "2.34", []),
        ("", "GLIBCXX_3.4.30", "", "2.34", ["E-GLIBCXX"]),
        ("", "GLIBCXX_3.4.30", "", "2.35", []),
        ("", "CXXABI_1.3.15", "", "2.35", ["E-GLIBCXX"]),
        ("", "GLIBCXX_3.4", "", "2.17", []),
        ("GLIBC_PRIVATE", "", "", "2.17", []),
        ("GLIBC_ABI_DT_RELR", "", "", "2.39", []),
    ],
)
def test_b59_versions_against_the_floor(
    glibc: str, cxx: str, weak: str, floor: str, codes: list[str]
) -> None:
    found = judge_runtimes(linkage(file(glibc=glibc, cxx=cxx, weak=weak)), floor)
    assert [f.code for f in found] == codes


def test_a_program_counts_as_well_as_a_library() -> None:
    (finding,) = judge_runtimes(linkage(file(glibc="GLIBC_2.39", path="tool/bin/server")), "2.34")
    assert finding.subject == "tool 1.0 tool/bin/server"
    assert (finding.expected, finding.found) == (
        "at most GLIBC_2.34, as glibc of a target with glibc 2.34 has",
        "GLIBC_2.39",
    )


def test_too_new_for_the_source_as_well_is_a_note() -> None:
    links = linkage(file(glibc="GLIBC_2.39"))
    assert [f.code for f in judge_runtimes(links, "2.34", source_glibc="2.35")] == ["N-NEVER-HAD"]
    assert [f.code for f in judge_runtimes(links, "2.34", source_glibc="2.39")] == ["E-GLIBC"]


def test_the_true_floor_of_an_environment() -> None:
    files = [file(glibc="GLIBC_2.28", cxx="GLIBCXX_3.4.22"), file(glibc="GLIBC_2.32", path="a/libb.so")]
    assert floors(files).requires() == {"glibc": "2.32", "glibcxx": "3.4.22"}
    assert floors([]).requires() == {}
