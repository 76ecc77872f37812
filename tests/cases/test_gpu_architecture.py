"""What runs on which GPU is told by the bytes, at lock: the reported ways to get it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..builders import container, cubin, gpu_library, modules, ptx, sass, shared_object
from .kit import PLATFORM

if TYPE_CHECKING:
    from .kit import Case

AARCH64 = PLATFORM.replace("x86_64", "aarch64")


@pytest.mark.parametrize(
    ("holds", "gpu"),
    [
        (("sm_80", "sm_90"), "sm_120"),
        (("sm_80", "sm_90"), "sm_103"),
        (("sm_75",), "sm_90"),
        (("sm_120",), "sm_90"),
    ],
)
def test_B01_a_wheel_too_old_for_the_gpu(case: Case, holds: tuple[str, ...], gpu: str) -> None:
    case.gpu_wheel("kern", *holds)
    case.manifest("kern==1.0", gpu=gpu)
    found = case.refused(1, "E-ARCH-NONE", "lock")
    assert found["subject"] == "kern-1.0-py3-none-any.whl kern/_k.so"
    assert found["expected"] == f"code that runs on {gpu}"
    assert all(arch in found["found"] for arch in holds)
    assert "no PTX" in found["found"]
    case.refused(1, "E-LOCK-MISSING", "pack", "--key", "key")


def test_B02_an_a_variant_covers_one_chip(case: Case) -> None:
    case.gpu_wheel("kern", "sm_80", "sm_90a", "sm_100a")
    case.manifest("kern==1.0", gpu={"b300": "sm_103", "b200": "sm_100", "hopper": "sm_90", "rtx": "sm_120"})
    found = case.refused(1, "E-ARCH-NONE", "lock", "--arch", "b300")
    assert "sm_100a" in found["hint"]
    assert "sm_90a" in found["hint"]
    case.refused(1, "E-ARCH-NONE", "lock", "--arch", "rtx")
    done = case.locked("b200", "hopper")
    assert done.codes == []


@pytest.mark.parametrize("where", ["metadata", "file", "name"])
def test_B03_declared_archs_differ_from_those_built(case: Case, where: str) -> None:
    name = "kern_sm103" if where == "name" else "kern"
    more = {"metadata_lines": ["Keywords: TORCH_CUDA_ARCH_LIST=10.0;10.3"]} if where == "metadata" else {}
    files = {f"{name}/_build.py": 'TORCH_CUDA_ARCH_LIST = "10.0;10.3"\n'} if where == "file" else {}
    case.wheel(name, "1.0", {f"{name}/_k.so": gpu_library(modules("sm_100a")), **files}, **more)
    case.manifest(f"{name}==1.0", gpu={"b300": "sm_103", "b200": "sm_100"})
    found = case.refused(1, "E-ARCH-NONE", "lock", "--arch", "b300")
    assert "sm_100a" in found["found"]
    case.locked("b200")


def test_B04_same_major_and_higher_minor_is_served(case: Case) -> None:
    case.gpu_wheel("plain", "sm_120")
    case.gpu_wheel("exact", "sm_120a")
    case.manifest("plain==1.0", gpu="sm_121")
    found = case.locked().one("N-SAME-MAJOR")
    assert "sm_120" in found["found"]
    (case.folder / "pylock.sm_121.toml").unlink()
    case.manifest("exact==1.0", gpu="sm_121")
    assert "sm_120a" in case.refused(1, "E-ARCH-NONE", "lock")["found"]


@pytest.mark.parametrize(
    ("holds", "gpu", "runs"),
    [
        ("sm_86", "sm_89", True),
        ("sm_89", "sm_86", False),
        ("sm_100", "sm_103", True),
        ("sm_100f", "sm_103", True),
        ("sm_103", "sm_100", False),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_120", False),
        ("sm_120f", "sm_121", True),
        ("sm_90", "sm_100", False),
        ("compute_90", "sm_100", True),
        ("compute_90a", "sm_100", False),
        ("compute_120", "sm_103", False),
        ("compute_100f", "sm_103", True),
        ("compute_100f", "sm_120", False),
    ],
)
def test_B04_every_other_pair(case: Case, holds: str, gpu: str, runs: bool) -> None:
    case.gpu_wheel("kern", holds)
    case.manifest("kern==1.0", gpu=gpu, target='driver = "580"')
    if runs:
        case.locked()
    else:
        case.refused(1, "E-ARCH-NONE", "lock")


@pytest.mark.parametrize("gpu", ["sm_87"])
def test_B05_desktop_sass_does_not_run_on_tegra(case: Case, gpu: str) -> None:
    case.gpu_wheel("desk", "sm_80")
    case.gpu_wheel("both", "sm_80", "compute_80")
    case.manifest("desk==1.0", gpu=gpu, platform=AARCH64)
    found = case.refused(1, "E-ARCH-NONE", "lock")
    assert "sm_80" in found["found"]
    assert "Tegra" in found["hint"]
    case.manifest("both==1.0", gpu=gpu, platform=AARCH64)
    assert "PTX" in case.locked().one("W-PTX-ONLY")["found"]


@pytest.mark.parametrize(("holds", "gpu"), [("sm_101a", "sm_110"), ("sm_101", "sm_110"), ("sm_110", "sm_101")])
def test_B06_thor_was_renumbered_and_the_names_are_no_aliases(case: Case, holds: str, gpu: str) -> None:
    case.gpu_wheel("kern", holds)
    case.manifest("kern==1.0", gpu=gpu)
    found = case.refused(1, "E-ARCH-NONE", "lock")
    assert holds in found["found"]
    assert "sm_101" in found["hint"]
    assert "sm_110" in found["hint"]


def _two_units(case: Case) -> None:
    first = modules("sm_75", "sm_80", kernels=("runs",))
    second = modules("sm_80", kernels=("lacks",))
    empty = container(sass("sm_80", ()))
    case.wheel("kern", "1.0", {"kern/_k.so": gpu_library(first, second, empty)})


def test_B08_a_gap_inside_one_library(case: Case) -> None:
    _two_units(case)
    case.manifest("kern==1.0", gpu="sm_75")
    found = case.locked().one("W-ARCH-PARTIAL")
    assert found["subject"] == "kern-1.0-py3-none-any.whl kern/_k.so"
    assert "1 of 2" in found["found"]
    (case.folder / "pylock.sm_75.toml").unlink()
    case.manifest("kern==1.0", gpu="sm_75", more='[package.kern]\ncoverage = "complete"')
    assert "1 of 2" in case.refused(1, "E-ARCH-PARTIAL", "lock")["found"]
    seen = case.run("inspect", "wheels/kern-1.0-py3-none-any.whl", "--arch", "sm_75", "--kernels").answer["files"][0]
    assert seen["modules"] == {"total": 3, "empty": 1}
    assert seen["verdicts"]["sm_75"] == {"verdict": "partial", "native": 1, "jit": 0, "missing": 1}
    assert seen["kernels_missing"]["sm_75"] == ["lacks"]


def test_B09_a_folders_name_says_nothing(case: Case) -> None:
    files: dict[str, bytes | str] = {
        "kern/__init__.py": "",
        "kern/sm90/x.so": gpu_library(modules("sm_80", "sm_90a")),
        "kern/sm100/x.so": gpu_library(modules("sm_100a")),
        "kern/sm120/x.so": gpu_library(modules("sm_80")),
    }
    case.wheel("kern", "1.0", files)
    case.manifest("kern==1.0", gpu={"rtx": "sm_120", "b200": "sm_100"})
    case.refused(1, "E-ARCH-NONE", "lock", "--arch", "rtx")
    found = case.run("lock", "--arch", "b200")
    assert found.status == 1
    assert [f["subject"].partition(" ")[2] for f in found.findings if f["code"] == "E-ARCH-FILE"] == [
        "kern/sm120/x.so",
        "kern/sm90/x.so",
    ]
    assert not (case.folder / "pylock.b200.toml").exists()
    case.manifest(
        "kern==1.0",
        gpu={"rtx": "sm_120", "b200": "sm_100"},
        more='[target.b200.package.kern]\nexempt = ["kern/sm90/x.so", "kern/sm120/x.so"]',
    )
    case.locked("b200")
    case.refused(1, "E-ARCH-NONE", "lock", "--arch", "rtx")


@pytest.mark.parametrize("gpu", ["sm_70", "sm_61"])
def test_B15_a_new_wheel_dropped_the_old_gpu(case: Case, gpu: str) -> None:
    case.gpu_wheel("torch", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", version="2.9.0+cu130")
    case.manifest("torch==2.9.0+cu130", gpu=gpu)
    found = case.refused(1, "E-ARCH-NONE", "lock")
    assert "sm_75" in found["found"]
    assert "older CUDA build" in found["hint"]
    assert gpu in found["hint"]


B16 = {
    "a cubin of the first layout": ({"kern/k.cubin": cubin(90, layout="old")}, {"sm_90": "native", "sm_100": "none"}),
    "a cubin with e_version 1 and no note": (
        {"kern/k.cubin": cubin(100, note=False)},
        {"sm_100": "native", "sm_103": "native"},
    ),
    "100f": ({"kern/k.so": gpu_library(modules("sm_100f"))}, {"sm_103": "native", "sm_120": "none"}),
    "100a": ({"kern/k.so": gpu_library(modules("sm_100a"))}, {"sm_100": "native", "sm_103": "none"}),
    "PTX in a relocatable fatbin alone": (
        {"kern/k.so": shared_object({"__nv_relfatbin": container(ptx("compute_90"))})},
        {"sm_100": "jit", "sm_80": "none"},
    ),
    "zstd": (
        {"kern/k.so": gpu_library(container(sass("sm_90", compression="zstd"), ptx("compute_90", compression="zstd")))},
        {"sm_90": "native", "sm_120": "jit"},
    ),
    "lz4": (
        {"kern/k.so": gpu_library(container(sass("sm_90", compression="lz4"), ptx("compute_90", compression="lz4")))},
        {"sm_90": "native", "sm_120": "jit"},
    ),
}


@pytest.mark.parametrize("name", B16)
def test_B16_the_container_is_read_and_not_its_strings(case: Case, name: str) -> None:
    files, verdicts = B16[name]
    path = case.wheel("kern", "1.0", files)
    archs = [word for arch in verdicts for word in ("--arch", arch)]
    answer = case.run("inspect", path, *archs).answer
    assert {arch: row["verdict"] for arch, row in answer["files"][0]["verdicts"].items()} == verdicts
    for number, (arch, verdict) in enumerate(verdicts.items()):
        case.manifest("kern==1.0", gpu={f"t{number}": arch})
        if verdict == "none":
            case.refused(1, "E-ARCH-NONE", "lock")
        else:
            case.locked()


def _damage(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    ("at", "value"),
    [(4, b"\xff\xff"), (6, b"\xff\xff"), (8, b"\xff" * 8), (16, b"\xff\xff"), (20, b"\xff\xff\xff\xff"), (24, b"\xff" * 8)],
    ids=["container version", "container header", "container size", "entry kind", "entry header", "entry size"],
)
def test_B16_a_damaged_container_is_never_no_device_code(case: Case, at: int, value: bytes) -> None:
    case.wheel("kern", "1.0", {"kern/k.so": gpu_library(_damage(modules("sm_90"), at, value))})
    case.manifest("kern==1.0", gpu="sm_90")
    found = case.refused(1, "E-FATBIN", "lock")
    assert "kern/k.so" in found["subject"]
    assert isinstance(found["offset"], int)
    done = case.run("inspect", "wheels/kern-1.0-py3-none-any.whl", "--arch", "sm_90")
    assert done.status == 1
    assert done.answer["files"][0]["verdicts"]["sm_90"]["verdict"] == "unknown"


def test_E_FATBIN_only_where_the_answer_hangs_on_it(case: Case) -> None:
    good, bad = modules("sm_90"), _damage(modules("sm_80"), 24, b"\xff" * 8)
    case.wheel("kern", "1.0", {"kern/k.so": gpu_library(good), "kern/other.so": gpu_library(bad)})
    case.manifest("kern==1.0", gpu="sm_90")
    found = case.refused(1, "E-FATBIN", "lock")
    assert "kern/other.so" in found["subject"]
    case.manifest("kern==1.0", gpu="sm_90", more='[package.kern]\nexempt = ["kern/other.so"]')
    case.locked()


@pytest.mark.parametrize(("holds", "gpu"), [("sm_90", "sm_103"), ("sm_75", "sm_121")])
def test_B20_a_compiled_overlay_is_refused_by_content(case: Case, holds: str, gpu: str) -> None:
    case.wheel("app", "1.0", {"app/__init__.py": "", "app/a.py": "x = 1\n"})
    case.overlay("app", {"app/_k.so": gpu_library(modules(holds))})
    case.manifest("app==1.0", gpu=gpu, more='[[overlay]]\ndistribution = "app"\npath = "overlays/app"')
    found = case.refused(1, "E-OVERLAY-NOT-PURE", "lock")
    assert found["subject"] == "overlays/app/app/_k.so"
    assert found["found"] == "ELF"


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("lib.txt", shared_object(), "ELF"),
        ("k.cubin", cubin(90), "a cubin"),
        ("k.bin", modules("sm_90"), "a fatbin"),
        ("l.a", b"!<arch>\n", "a static library"),
    ],
)
def test_B20_whatever_the_compiled_file_is_called(case: Case, name: str, data: bytes, what: str) -> None:
    case.wheel("app", "1.0", {"app/__init__.py": ""})
    case.overlay("app", {f"app/{name}": data})
    case.manifest("app==1.0", more='[[overlay]]\ndistribution = "app"\npath = "overlays/app"')
    found = case.refused(1, "E-OVERLAY-NOT-PURE", "lock")
    assert (found["subject"], found["found"]) == (f"overlays/app/app/{name}", what)


@pytest.mark.parametrize("policy", ["files", "complete", "any"])
def test_B21_a_cpu_build_in_disguise(case: Case, policy: str) -> None:
    case.wheel("torch", "2.9.0", {"torch/__init__.py": "", "torch/lib/libtorch.so": shared_object(exported=["f"])})
    case.manifest("torch==2.9.0", more=f'[package.torch]\ncoverage = "{policy}"')
    found = case.refused(1, "E-NO-DEVICE-CODE", "lock")
    assert found["subject"] == "torch-2.9.0-py3-none-any.whl"
    assert "sm_103" in found["expected"]
    assert "no CUDA code" in found["found"]
    case.manifest("torch==2.9.0")
    case.locked()
