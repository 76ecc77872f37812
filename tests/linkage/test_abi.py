"""C++ symbols of modules against what their libraries export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from envbundle.resolver.abi import judge_abi

from .environment import linkage, placed

if TYPE_CHECKING:
    from envbundle.resolver.placed import PlacedFile
    from envbundle.spec.finding import Finding

CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
WARN = "_ZN3c104warnERKNS_7WarningE"
PLAIN = "_Z6rotatePfi"


def judged(*files: PlacedFile, built_for: dict[str, str] | None = None) -> list[Finding]:
    return list(judge_abi(linkage(*files), built_for or {}))


def module(wanted: list[str], needed: list[str], name: str = "_m", **more: Any) -> PlacedFile:
    return placed(
        f"ext/{name}.abi3.so", undefined=wanted, needed=needed, runpath="$ORIGIN/../torch/lib", **more
    )


def library(exported: list[str], name: str = "libc10.so", **more: Any) -> PlacedFile:
    more.setdefault("version", "2.14.1")
    return placed(f"torch/lib/{name}", soname=name, exported=exported, **more)


def test_b10_a_symbol_that_the_locked_torch_does_not_export() -> None:
    (finding,) = judged(module([CHECK, WARN], ["libc10.so"]), library([WARN]), built_for={"ext": "torch 2.9"})
    assert (finding.code, finding.severity) == ("E-ABI", "error")
    assert (
        "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, bool)"
        in finding.expected
    )
    assert "c10::warn" not in finding.expected
    assert finding.found == "1 of them not exported by torch 2.14.1; it says that it was built for torch 2.9"


def test_the_right_pair_has_no_finding() -> None:
    assert judged(module([CHECK, WARN], ["libc10.so"]), library([CHECK, WARN])) == []


def test_missing_plain_c_libraries_excuse_nothing() -> None:
    found = judged(module([CHECK], ["libc10.so", "libcudart.so.12"]), library([WARN]))
    assert [f.code for f in found] == ["E-ABI"]


@pytest.mark.parametrize("soname", ["libtorch_cuda.so", "libother.so.1"])
def test_a_missing_library_may_have_the_symbol(soname: str) -> None:
    assert judged(module([CHECK], ["libc10.so", soname]), library([WARN])) == []


def test_a_name_without_a_namespace_needs_all_libraries_there() -> None:
    assert [f.code for f in judged(module([PLAIN], ["libc10.so"]), library([WARN]))] == ["E-ABI"]
    assert judged(module([PLAIN], ["libc10.so", "libnvrtc.so.13"]), library([WARN])) == []


@pytest.mark.parametrize(
    "name",
    [
        "_ZNSt6vectorIiSaIiEE9push_backEOi",
        "_ZTTNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEE",
        "_ZTVN10__cxxabiv117__class_type_infoE",
        "_Znwm",
        "_ZdlPvm",
        "_ZSt4cout",
        "_ZTIi",
        "_ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE4sizeEv",
    ],
)
def test_the_cxx_runtime_is_not_judged_by_names(name: str) -> None:
    assert judged(module([name], ["libc10.so"]), library([WARN])) == []


def test_versions_of_the_runtime_exclude_a_name() -> None:
    """What is bound to GLIBCXX is of libstdc++, whatever its namespace."""
    bound = placed(
        "ext/_m.abi3.so",
        undefined=[CHECK],
        needed=["libc10.so"],
        runpath="$ORIGIN/../torch/lib",
        versions={"libstdc++.so.6": ["GLIBCXX_3.4"]},
        symbol_versions={CHECK: "GLIBCXX_3.4"},
    )
    assert judged(bound, library([WARN])) == []


def test_a_library_is_judged_in_the_scope_of_what_loads_it() -> None:
    """libx wants a name that only its sibling has: fine, since the module loads both."""
    sibling = placed("torch/lib/liby.so", soname="liby.so", exported=[CHECK])
    wanting = placed("torch/lib/libx.so", soname="libx.so", undefined=[CHECK], exported=[WARN])
    assert judged(module([], ["libx.so", "liby.so"]), wanting, sibling) == []
    assert [f.code for f in judged(module([], ["libx.so"]), wanting, sibling)] == ["W-ABI-SCOPE"]


def test_files_that_nothing_imports_are_not_judged() -> None:
    plugin = placed(
        "ext/libplugin.so", undefined=[CHECK], needed=["libc10.so"], runpath="$ORIGIN/../torch/lib"
    )
    assert judged(plugin, library([WARN])) == []


def test_a_symbol_of_another_module_of_the_environment_is_a_warning() -> None:
    other = placed("zzz/libz_other.so", exported=[CHECK])
    assert [f.code for f in judged(module([CHECK], ["libc10.so"]), library([WARN]), other)] == ["W-ABI-SCOPE"]


def test_files_of_one_distribution_are_one_finding() -> None:
    found = judged(
        module([CHECK], ["libc10.so"], "a"), module([CHECK, PLAIN], ["libc10.so"], "b"), library([WARN])
    )
    assert [f.subject for f in found] == ["ext 1.0 ext/a.abi3.so and 1 more"]
    assert found[0].found.startswith("2 of them")
