"""Findings about sonames: the cases of the public reports and of a real environment, in small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from envbundle.resolver.libraries import library_rules
from envbundle.resolver.sonames import judge_sonames

from .environment import linkage, placed

if TYPE_CHECKING:
    from envbundle.resolver.placed import PlacedFile
    from envbundle.spec.finding import Finding

TORCH = (
    placed("torch/_C.cpython-312-x86_64-linux-gnu.so", needed=["libtorch.so"], rpath="$ORIGIN/lib"),
    placed(
        "torch/lib/libtorch.so", soname="libtorch.so", needed=["libc10.so", "libcuda.so.1"], rpath="$ORIGIN"
    ),
    placed("torch/lib/libc10.so", soname="libc10.so", needed=["libstdc++.so.6", "libc.so.6"]),
)


def judged(*files: PlacedFile, **more: Any) -> list[Finding]:
    return list(judge_sonames(linkage(*files), **more))


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [f"{f.code} {f.subject}" for f in findings]
    return findings[0]


def test_torch_alone_has_nothing_to_say() -> None:
    assert judged(*TORCH) == []


@pytest.mark.parametrize(("wanted", "there"), [("13", "12"), ("12", "13")])
def test_b57_cuda_releases_are_told_by_files(wanted: str, there: str) -> None:
    """The distribution's name says the other release than its file."""
    module = placed("ext/_m.abi3.so", needed=[f"libcudart.so.{wanted}"])
    runtime = placed(
        f"nvidia/lib/libcudart.so.{there}",
        soname=f"libcudart.so.{there}",
        owner=f"nvidia-cuda-runtime-cu{wanted}",
    )
    finding = only(judged(module, runtime))
    assert finding.code == "E-SONAME"
    assert finding.subject == "ext 1.0 ext/_m.abi3.so"
    assert finding.expected.startswith(f"libcudart.so.{wanted},")
    assert f"it has libcudart.so.{there} (nvidia-cuda-runtime-cu{wanted} 1.0)" in finding.found
    assert library_rules().bringer(f"libcudart.so.{wanted}") in finding.hint
    assert f'[[invariant]] kind = "library" soname = "libcudart.so.{wanted}"' in finding.hint


def test_an_extension_of_an_absent_torch_names_it_once() -> None:
    sonames = ["libtorch.so", "libtorch_cpu.so", "libc10.so"]
    files = (placed("ext/a.abi3.so", needed=sonames), placed("ext/b.abi3.so", needed=sonames))
    finding = only(judged(*files))
    assert finding.expected.startswith("libc10.so, libtorch.so, libtorch_cpu.so")
    assert finding.subject == "ext 1.0 ext/a.abi3.so and 1 more"
    assert (finding.code, finding.severity) == ("W-SONAME-OUTSIDE", "warning")
    assert "torch brings it" in finding.hint
    assert judged(*files, declared=sonames) == []


def test_a_provider_that_is_loaded_before_is_a_note() -> None:
    module = placed("ext/_m.abi3.so", needed=["libtorch.so", "libc10.so"])
    finding = only(judged(*TORCH, module))
    assert (finding.code, finding.severity) == ("N-LOAD-ORDER", "note")
    assert finding.expected == "libtorch.so (torch), libc10.so (torch)"
    assert "torch imported first" in finding.hint


def test_a_private_copy_that_no_import_loads_is_a_warning() -> None:
    module = placed("ext/_m.abi3.so", needed=["libcupti.so.12"])
    private = placed("triton/backends/lib/libcupti.so.12", soname="libcupti.so.12")
    assert only(judged(module, private)).code == "W-LOAD-ORDER"


def test_plugins_of_fabrics_that_are_not_there_are_one_note() -> None:
    files = [
        placed(f"nvshmem/lib/nvshmem_{name}.so.3", needed=[soname, "libc.so.6"])
        for name, soname in (("mpi", "libmpi.so.40"), ("ucx", "libucp.so.0"), ("pmix", "libpmix.so.2"))
    ]
    finding = only(judged(*files))
    assert (finding.code, finding.severity) == ("N-SONAME", "note")
    assert all(name in finding.expected for name in ("libmpi.so.40", "libucp.so.0", "libpmix.so.2"))


@pytest.mark.parametrize("soname", ["libz.so.1", "libpython3.12.so.1.0", "libGL.so.1"])
def test_what_platform_tags_allow_is_a_warning_with_its_check(soname: str) -> None:
    finding = only(judged(placed("ext/_m.abi3.so", needed=[soname])))
    assert (finding.code, finding.severity) == ("W-HOST-LIBRARY", "warning")
    assert f'soname = "{soname}"' in finding.hint


def test_a_module_of_cupy_that_is_optional_by_its_own_code() -> None:
    module = placed(
        "cupy/cutensor.cpython-312-x86_64-linux-gnu.so", needed=["libcutensor.so.2"], owner="cupy-cuda13x"
    )
    assert only(judged(module)).code == "N-SONAME"


@pytest.mark.parametrize(
    ("source", "code"),
    [(None, "E-SONAME"), (["libfoo.so.1"], "E-SONAME"), ([], "N-NEVER-HAD")],
    ids=["no source", "lost", "never had"],
)
def test_compared_with_the_source(source: list[str] | None, code: str) -> None:
    finding = only(judged(placed("ext/_m.abi3.so", needed=["libfoo.so.1"]), source_libraries=source))
    assert finding.code == code
    assert ("lost" in finding.found) is bool(source)


def test_b35_the_runpath_of_the_build_machine() -> None:
    good = placed("a/_m.abi3.so", needed=["libx.so"], runpath="$ORIGIN:/opt/ci/build/lib")
    library = placed("a/libx.so", soname="libx.so")
    finding = only(judged(good, library))
    assert (finding.code, finding.found) == ("W-RUNPATH", "/opt/ci/build/lib")
    refused = judged(placed("a/_m.abi3.so", needed=["libx.so"], runpath="/opt/ci/build/lib"))
    assert [f.code for f in refused] == ["E-SONAME", "W-RUNPATH"]
    assert "/opt/ci/build/lib of the machine that built it" in refused[0].found


@pytest.mark.parametrize(
    ("path", "runpath", "code"),
    [
        ("nv/lib/libcuda.so.1", "", "E-DRIVER-PACKED"),
        ("nv/lib/libnvidia-ml.so.1", "", "E-DRIVER-PACKED"),
        ("nv/lib/stubs/libcuda.so", "", "N-DRIVER-STUB"),
        ("nv/lib/stubs/libcuda.so.1", "$ORIGIN/../nv/lib/stubs", "E-DRIVER-PACKED"),
    ],
    ids=["driver", "nvml", "stub", "stub on a search path"],
)
def test_a_driver_in_the_environment(path: str, runpath: str, code: str) -> None:
    name = path.rpartition("/")[2]
    soname = name if name.endswith(".1") else name + ".1"
    module = placed("ext/_m.abi3.so", needed=[soname], runpath=runpath)
    assert only(judged(module, placed(path, soname=soname))).code == code


def test_parts_of_one_family_from_two_releases() -> None:
    files = (
        placed("a/libcudnn.so.9", soname="libcudnn.so.9", owner="nvidia-cudnn-cu12", version="9.1"),
        placed(
            "b/libcudnn_graph.so.9", soname="libcudnn_graph.so.9", owner="nvidia-cudnn-cu13", version="9.24"
        ),
    )
    finding = only(judged(*files))
    assert (finding.code, finding.subject) == ("W-LIBRARY-FAMILY", "cuDNN 9")
    assert "different parts" in finding.hint
