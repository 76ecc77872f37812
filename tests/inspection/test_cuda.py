"""The rules of what runs where, row by row."""

from __future__ import annotations

import pytest

from envbundle.errors import EnvbundleError
from envbundle.inspection import cuda
from envbundle.spec.coverage import Image

SASS_RUNS = [
    ("sm_80", 80),
    ("sm_80", 86),
    ("sm_80", 89),
    ("sm_86", 89),
    ("sm_90", 90),
    ("sm_90a", 90),
    ("sm_100", 100),
    ("sm_100", 103),
    ("sm_100f", 103),
    ("sm_100f", 107),
    ("sm_103a", 103),
    ("sm_120", 121),
    ("sm_120f", 121),
    ("sm_87", 87),
    ("sm_110", 110),
    ("sm_101", 101),
]
SASS_FAILS = [
    ("sm_86", 80, "newer than sm_80"),
    ("sm_80", 90, "other major"),
    ("sm_90a", 103, "other major"),
    ("sm_100a", 103, "exact-only, not sm_103"),
    ("sm_120a", 121, "exact-only, not sm_121"),
    ("sm_103f", 100, "newer than sm_100"),
    ("sm_100", 110, "other major"),
    ("sm_100", 120, "other major"),
    ("sm_80", 87, "sm_80 SASS does not run on Tegra sm_87"),
    ("sm_86", 87, "sm_86 SASS does not run on Tegra sm_87"),
    ("sm_87", 89, "sm_87 SASS does not run on desktop GPU sm_89"),
    ("sm_101a", 110, "CUDA 13 calls it sm_110"),
    ("sm_101", 110, "binaries of one name do not load as the other"),
    ("sm_110", 101, "sm_101 is the CUDA 12 name"),
]
PTX = [
    ("compute_90", 100, True),
    ("compute_100", 120, True),
    ("compute_100", 107, True),
    ("compute_110", 120, True),
    ("compute_90a", 90, True),
    ("compute_90a", 100, False),
    ("compute_100a", 103, False),
    ("compute_100f", 100, True),
    ("compute_100f", 103, True),
    ("compute_100f", 107, True),
    ("compute_103f", 107, True),
    ("compute_100f", 110, False),
    ("compute_100f", 120, False),
    ("compute_120f", 121, True),
    ("compute_103f", 100, False),
    ("compute_107f", 110, False),
    ("compute_101", 110, True),
    ("compute_101a", 110, True),
    ("compute_101f", 110, True),
    ("compute_101f", 103, False),
    ("compute_101", 103, False),
    ("compute_80", 87, True),
    ("compute_90", 80, False),
]


def image(name: str, isa: str = "8.0") -> Image:
    return Image.parse(name + (f"@{isa}" if name.startswith("compute") else ""))


@pytest.mark.parametrize(("name", "device"), SASS_RUNS, ids=str)
def test_sass_runs(name: str, device: int) -> None:
    assert cuda.sass_fault(image(name), device) is None
    assert cuda.serve([image(name)], device, None).how == "native"


@pytest.mark.parametrize(("name", "device", "why"), SASS_FAILS, ids=str)
def test_sass_does_not_run(name: str, device: int, why: str) -> None:
    fault = cuda.sass_fault(image(name), device)
    assert fault is not None
    assert fault.startswith(f"{name}: ")
    assert why in fault
    assert cuda.serve([image(name)], device, None).how == "missing"


@pytest.mark.parametrize(("name", "device", "runs"), PTX, ids=str)
def test_ptx(name: str, device: int, *, runs: bool) -> None:
    assert (cuda.ptx_fault(image(name), device) is None) is runs
    assert cuda.serve([image(name)], device, None).how == ("jit" if runs else "missing")


def test_lto_counts_as_nothing() -> None:
    lto = Image.parse("lto_90")
    assert cuda.serve([lto], 90, None).how == "missing"
    assert cuda.fault(lto, 90, None) == "lto_90: LTO-IR is not compiled at load"


def test_best_image_wins() -> None:
    images = [image("sm_80"), image("sm_86"), image("compute_80")]
    service = cuda.serve(images, 89, None)
    assert (service.how, service.image) == ("native", image("sm_86"))
    service = cuda.serve([image("compute_80", "9.2"), image("compute_90", "8.0")], 100, None)
    assert (service.how, service.image, service.isa) == ("jit", image("compute_90", "8.0"), (8, 0))


@pytest.mark.parametrize(
    ("driver", "isa"),
    [
        ("580", (9, 0)),
        ("580.65.06", (9, 0)),
        ("570", (8, 7)),
        ("550", (8, 4)),
        ("560", (8, 5)),
        ("525", (8, 0)),
        ("470", (7, 4)),
    ],
    ids=str,
)
def test_driver_knows_isa(driver: str, isa: tuple[int, int]) -> None:
    assert cuda.isa_of_driver(driver) == isa


def test_isa_and_cuda_tables() -> None:
    rows = {(12, 0): (8, 0), (12, 6): (8, 5), (12, 7): (8, 6), (12, 9): (8, 8), (13, 4): (9, 4)}
    for release, isa in rows.items():
        assert cuda.isa_of_cuda(release) == isa
    assert cuda.driver_for_isa((9, 0)) == "580"
    assert cuda.driver_for_isa((8, 5)) == "555"
    assert cuda.driver_for_isa((9, 4)) == "that of CUDA 13.4"


@pytest.mark.parametrize("driver", ["390", "abc", "", "580-x"])
def test_bad_driver(driver: str) -> None:
    with pytest.raises(EnvbundleError, match="E-DRIVER-VERSION"):
        cuda.isa_of_driver(driver)


def test_ptx_newer_than_the_driver() -> None:
    service = cuda.serve([image("compute_90", "9.2")], 103, (9, 0))
    assert (service.how, service.refused_isa) == ("missing", (9, 2))
    assert cuda.serve([image("compute_90", "9.0")], 103, (9, 0)).how == "jit"
    why = cuda.fault(image("compute_90", "9.2"), 103, (9, 0))
    assert why == "compute_90: PTX ISA 9.2 is newer than the driver's 9.0"
