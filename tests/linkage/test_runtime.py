"""What compiles or fetches at run time: bundled compilers, tools of the host, files for machines offline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envbundle.inspection.scan import scan_file
from envbundle.resolver.jit import default_groups, jit_rules
from envbundle.resolver.runtime import HostPromise, judge_driver, judge_runtime
from envbundle.spec.compiler import Compiler
from envbundle.spec.manifest import Group, Invariant
from tests.builders import gpu_library, modules, shared_object

from .contents import scans, target, wheel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.resolver.contents import WheelScan
    from envbundle.spec.finding import Finding

NOTHING = HostPromise()
ALL = HostPromise(
    tools=frozenset({"gcc", "nvcc", "ninja"}), paths=frozenset({"/usr/include/python3.12/Python.h"})
)
OLD = ("75", "80", "86", "87", "90", "90a")
PTXAS = (*OLD, "100", "100a", "101", "101a", "120", "120a")


def compiler(version: str, targets: Iterable[str], *, prefix: bytes = b"sm_") -> bytes:
    """Return a program that holds what a compiler's bytes hold."""
    names = b"".join(b"\0" + prefix + name.encode() for name in targets) + b"\0"
    banner = f"\0Cuda compilation tools, release {version.rpartition('.')[0]}, V{version}\0".encode()
    return shared_object({".rodata": banner + bytes(300) + names})


def nvrtc(version: str, targets: Iterable[str]) -> bytes:
    return compiler(version, targets, prefix=b"-arch=compute_")


def triton(version: str = "3.8.0", **files: bytes) -> WheelScan:
    folder = "triton/backends/nvidia/bin/"
    return wheel("triton", version, {folder + name.replace("_", "-"): data for name, data in files.items()})


def judged(
    *wheels: WheelScan, gpu: str = "sm_103", promise: HostPromise = ALL, offline: bool = True
) -> list[Finding]:
    return list(judge_runtime(scans(*wheels), target(gpu, offline=offline), promise))


def codes(found: Iterable[Finding]) -> list[str]:
    return sorted(finding.code for finding in found)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("bin/ptxas", compiler("12.8.93", PTXAS), Compiler(kind="ptxas", version="12.8.93", targets=PTXAS)),
        (
            "bin/ptxas-blackwell",
            compiler("13.3.33", ("75", "103f")),
            Compiler(kind="ptxas", version="13.3.33", targets=("75", "103f")),
        ),
        ("bin/nvcc", compiler("13.0.88", ("75",)), Compiler(kind="nvcc", version="13.0.88", targets=("75",))),
        (
            "lib/libnvrtc.so.13",
            nvrtc("13.0.88", ("75", "103a")),
            Compiler(kind="nvrtc", version="13.0.88", targets=("75", "103a")),
        ),
        ("lib/libnvrtc-builtins.so.13.0", nvrtc("13.0.88", ("75",)), None),
        ("bin/ptxas", shared_object(), None),
        ("bin/other", compiler("12.8.93", PTXAS), None),
    ],
    ids=["ptxas", "second ptxas", "nvcc", "nvrtc", "builtins", "says nothing", "another name"],
)
def test_b12_compilers_are_read_from_their_bytes(name: str, data: bytes, expected: Compiler | None) -> None:
    scan = scan_file(name, data, size=len(data))
    assert scan.compiler == expected
    assert type(scan).from_dict(scan.to_dict()) == scan


@pytest.mark.parametrize(
    ("version", "targets", "number", "compiles"),
    [
        ("12.8.93", PTXAS, 103, False),
        ("12.8.93", PTXAS, 120, True),
        ("12.8.93", PTXAS, 121, False),
        ("12.8.93", PTXAS, 89, True),
        ("12.8.93", PTXAS, 50, True),
        ("13.0.88", ("50", "70", *OLD, "103"), 70, False),
        ("13.0.88", ("50", "70", *OLD, "103"), 75, True),
        ("12.4.1", ("50", "90"), 100, False),
        ("", ("50", "90"), 90, True),
    ],
)
def test_what_a_compiler_compiles_for(
    version: str, targets: tuple[str, ...], number: int, compiles: bool
) -> None:
    assert Compiler(kind="ptxas", version=version, targets=targets).compiles(number) is compiles


def test_b12_a_ptxas_that_does_not_know_the_gpu() -> None:
    (finding,) = judged(triton(ptxas=compiler("12.8.93", PTXAS)))
    assert finding.code == "E-PTXAS"
    assert finding.expected == "a ptxas that knows sm_103 (CUDA 12.9 or newer)"
    assert finding.found.startswith("12.8.93, which knows sm_50 to sm_120")
    assert "TRITON_PTXAS_PATH" in finding.hint


def test_b12_another_ptxas_of_the_wheel_serves() -> None:
    both = triton(
        ptxas=compiler("12.8.93", PTXAS), ptxas_blackwell=compiler("13.3.33", ("75", "103", "103a"))
    )
    (finding,) = judged(both)
    assert (finding.code, finding.severity) == ("N-COMPILER", "note")
    assert finding.subject.endswith("ptxas-blackwell")
    assert finding.found == "13.3.33, up to sm_103: used for sm_103"
    (other,) = judged(both, gpu="sm_90")
    assert other.subject.endswith("bin/ptxas")


def test_b12_a_ptxas_of_the_host_named_by_a_variable() -> None:
    promise = replace(ALL, variables={"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"})
    (finding,) = judged(triton(ptxas=compiler("12.8.93", PTXAS)), promise=promise)
    assert finding.code == "N-COMPILER"
    assert "TRITON_PTXAS_PATH names another" in finding.found


@pytest.mark.parametrize(
    ("gpu", "data", "cupy", "code"),
    [
        ("sm_103", nvrtc("12.4.1", ("50", "90")), False, "W-NVRTC"),
        ("sm_103", nvrtc("12.4.1", ("50", "90")), True, "W-NVRTC"),
        ("sm_70", nvrtc("13.0.1", ("75", "90")), False, "W-NVRTC"),
        ("sm_70", nvrtc("13.0.1", ("75", "90")), True, "E-NVRTC"),
        ("sm_90", nvrtc("13.0.1", ("75", "90")), True, None),
    ],
)
def test_b18_nvrtc_knows_the_gpus_of_its_release(gpu: str, data: bytes, cupy: bool, code: str | None) -> None:
    found = judged(
        wheel("nvidia-cuda-nvrtc", "1", {"nvidia/lib/libnvrtc.so.13": data}),
        *([wheel("cupy-cuda13x")] if cupy else []),
        gpu=gpu,
    )
    assert codes(found) == ([code] if code else [])


def test_b81_triton_asks_the_host_for_a_compiler_and_headers() -> None:
    found = judged(triton(), promise=NOTHING)
    assert codes(found) == ["W-HOST-TOOL", "W-HOST-TOOL"]
    assert any('kind = "tool" tool = "cc"' in finding.hint for finding in found)
    assert any("Python.h" in finding.hint for finding in found)
    assert judged(triton()) == []
    bundled = HostPromise.of([Invariant(kind="tool", fields=(("tool", "/usr/bin/clang"),))], (), bundled=True)
    assert judged(triton(), promise=bundled) == []


@pytest.mark.parametrize(
    ("cubin", "gpu", "offline", "variables", "code"),
    [
        (None, "sm_103", True, {}, "E-OFFLINE"),
        ("0.6.9", "sm_103", True, {}, "E-OFFLINE"),
        ("0.6.13", "sm_103", True, {}, None),
        ("0.6.13+cu130", "sm_103", True, {}, None),
        (None, "sm_103", False, {}, None),
        (None, "sm_121", True, {}, None),
        (None, "sm_103", True, {"FLASHINFER_CUBIN_DIR": "/srv/cubins"}, None),
    ],
    ids=["none", "another version", "the same", "a local part", "online", "not for that GPU", "a folder"],
)
def test_b79_what_is_fetched_must_be_there(
    cubin: str | None, gpu: str, offline: bool, variables: dict[str, str], code: str | None
) -> None:
    found = judged(
        wheel("flashinfer-python", "0.6.13"),
        *([wheel("flashinfer-cubin", cubin)] if cubin else []),
        gpu=gpu,
        offline=offline,
        promise=replace(ALL, variables=variables),
    )
    assert codes(found) == ([code] if code else [])


def test_b80_tools_are_brought_by_wheels_or_demanded() -> None:
    python, cubin = wheel("flashinfer-python", "0.6.13"), wheel("flashinfer-cubin", "0.6.13")
    wanted = judged(python, cubin, promise=NOTHING)
    assert codes(wanted) == ["W-HOST-TOOL"] * 3
    assert any('tool = "nvcc" min = "12.9"' in finding.hint for finding in wanted)
    nvcc = wheel("nvidia-cuda-nvcc", "13.0.88", {"nvidia/bin/nvcc": compiler("13.0.88", ("75", "103"))})
    some = judged(python, cubin, wheel("ninja"), nvcc, promise=NOTHING)
    assert [finding.expected for finding in some] == ["a C compiler on the target"]
    assert judged(python, cubin, wheel("flashinfer-jit-cache", "0.6.13"), promise=NOTHING) == []


def test_b19_gpus_that_its_own_code_accepts() -> None:
    assert codes(judged(wheel("deep-gemm"), gpu="sm_120")) == ["W-JIT-GPU"]
    assert judged(wheel("deep-gemm"), gpu="sm_103") == []


def test_b21_a_cpu_build_of_the_same_name() -> None:
    cpu = wheel("torch", "2.14.1", {"torch/lib/libtorch.so": shared_object()})
    cuda = wheel("torch", "2.14.1", {"torch/lib/libtorch.so": gpu_library(modules("sm_100"))})
    assert codes(judged(cpu)) == ["W-CPU-BUILD"]
    assert judged(cuda) == []


def test_a_target_without_gpu_has_nothing_to_compile() -> None:
    assert judge_runtime(scans(triton(), wheel("flashinfer-python")), target(), NOTHING) == ()


@pytest.mark.parametrize(
    ("majors", "driver", "refused"),
    [
        ({13}, "570", True),
        ({13}, "580.65.06", False),
        ({12}, "570", False),
        ({12, 13}, "570", True),
        ({13}, None, False),
        (set(), "450", False),
    ],
)
def test_b14_the_driver_of_a_cuda_release(majors: set[int], driver: str | None, refused: bool) -> None:
    assert bool(judge_driver(majors, driver)) is refused


def test_b63_releases_that_belong_together_without_being_named() -> None:
    trio = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
    assert trio in {group.same_version for group in default_groups(())}
    assert default_groups((Group(same_version=("flashinfer-cubin", "other")),)) == ()


def test_the_table_names_known_compilers_and_gpus() -> None:
    for rule in jit_rules().rules:
        assert rule.compiler in ("", "ptxas", "nvrtc", "nvcc")
        assert all(gpu.startswith("sm_") for gpu in rule.gpus)
