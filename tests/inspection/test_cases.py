"""Reported cases, as far as they are about reading and judging files; the ids are those of the case list."""

from __future__ import annotations

import io
import resource
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import IntegrityError, UserInputError
from envbundle.inspection.coverage import Judgement, judge_file, sum_distribution
from envbundle.inspection.report import describe, gap_finding, inspect_json
from envbundle.inspection.scan import scan_file
from envbundle.inspection.wheel import read_wheel, scan_wheel
from envbundle.spec.target import Arch
from tests.builders import (
    container,
    cubin,
    gpu_library,
    modules,
    ptx,
    sass,
    shared_object,
    wheel_bytes,
    wheel_filename,
)

if TYPE_CHECKING:
    from envbundle.spec.coverage import FileScan


def scanned_wheel(files: dict[str, bytes], **more: object) -> tuple[FileScan, ...]:
    """Scan a wheel of these files, as lock does."""
    data = wheel_bytes("pkg", "1.0", files, **more)  # type: ignore[arg-type]
    stream = io.BytesIO(data)
    return scan_wheel(stream, read_wheel(stream, wheel_filename("pkg", "1.0")))


def judged(data: bytes, arch: str, *, driver: str | None = None) -> tuple[FileScan, Judgement]:
    (scan,) = scanned_wheel({"pkg/x.so": data})
    return scan, judge_file(scan, Arch(arch), driver=driver)


def test_b01_too_old_for_the_gpu() -> None:
    scan, judgement = judged(gpu_library(modules("sm_80", "sm_90")), "sm_120")
    assert judgement.verdict == "none"
    finding = gap_finding(scan, judgement, code="E-ARCH-NONE", severity="error")
    assert finding is not None
    assert (finding.code, finding.subject) == ("E-ARCH-NONE", "pkg/x.so")
    assert finding.found == "SASS sm_80, sm_90; no PTX; nothing runs on sm_120"


def test_b02_a_variants_cover_one_chip() -> None:
    library = gpu_library(modules("sm_80", "sm_90a", "sm_100a"))
    scan, judgement = judged(library, "sm_103")
    assert judgement.verdict == "none"
    assert set(judgement.reasons) == {
        "sm_80: other major",
        "sm_90a: other major",
        "sm_100a: exact-only, not sm_103",
    }
    finding = gap_finding(scan, judgement)
    assert finding is not None
    assert "sm_100a: exact-only, not sm_103" in finding.hint
    assert judged(library, "sm_100")[1].verdict == "native"
    assert gap_finding(scan, judged(library, "sm_100")[1]) is None


def test_b03_what_is_declared_does_not_count() -> None:
    scans = scanned_wheel(
        {"pkg/x.so": gpu_library(modules("sm_100a")), "pkg/build.txt": b"TORCH_CUDA_ARCH_LIST=10.0;10.3"},
        metadata_lines=["Keywords: sm_103"],
    )
    assert [judge_file(scan, Arch("sm_103")).verdict for scan in scans] == ["none"]


def test_b04_higher_minor_is_fine_a_is_not() -> None:
    judgement = judged(gpu_library(modules("sm_120")), "sm_121")[1]
    assert judgement.verdict == "native"
    assert judgement.notes == ("sm_121 served by sm_120 SASS (same major)",)
    assert judged(gpu_library(modules("sm_120a")), "sm_121")[1].verdict == "none"


def test_b05_tegra_needs_its_own_or_ptx() -> None:
    judgement = judged(gpu_library(modules("sm_80"), machine=183), "sm_87")[1]
    assert judgement.verdict == "none"
    assert any("sm_80 SASS does not run on Tegra sm_87" in reason for reason in judgement.reasons)
    assert judged(gpu_library(modules("sm_80", "compute_80"), machine=183), "sm_87")[1].verdict == "jit"


def test_b06_thor_has_two_names() -> None:
    judgement = judged(gpu_library(modules("sm_101a")), "sm_110")[1]
    assert judgement.verdict == "none"
    assert "sm_101 is the CUDA 12 name of this chip; CUDA 13 calls it sm_110" in judgement.reasons[0]
    assert "binaries of one name do not load as the other" in judgement.reasons[0]
    assert judged(gpu_library(modules("compute_101")), "sm_110")[1].verdict == "jit"


def test_b08_gap_inside_one_library() -> None:
    library = gpu_library(
        container(sass("sm_75", ["first"]), sass("sm_80", ["first"])),
        container(sass("sm_80", ["second"])),
        modules("sm_80", kernels=[]),
    )
    scan = scan_file("x.so", library, size=len(library), names=True)
    judgement = judge_file(scan, Arch("sm_75"))
    assert judgement.verdict == "partial"
    assert judgement.kernels_missing == ("second",)
    finding = gap_finding(scan, judgement)
    assert finding is not None
    assert finding.code == "W-ARCH-PARTIAL"
    assert "sm_75: 1 of 2 device modules" in finding.found
    assert "second" in finding.hint
    assert judge_file(scan, Arch("sm_80")).verdict == "native"


def test_b09_directories_say_nothing() -> None:
    scans = scanned_wheel(
        {
            "pkg/sm90/x.so": gpu_library(modules("sm_80", "sm_90a")),
            "pkg/sm100/x.so": gpu_library(modules("sm_100a")),
        }
    )
    judgements = [judge_file(scan, Arch("sm_120")) for scan in scans]
    assert [judgement.verdict for judgement in judgements] == ["none", "none"]
    for_90 = [judge_file(scan, Arch("sm_90")) for scan in scans]
    assert sum_distribution(for_90).verdict == "partial"


@pytest.mark.parametrize(("driver", "verdict"), [("580", "none"), (None, "jit")])
def test_b13_ptx_newer_than_the_driver(driver: str | None, verdict: str) -> None:
    scan, judgement = judged(gpu_library(modules("compute_90@9.2")), "sm_103", driver=driver)
    assert judgement.verdict == verdict
    codes = [finding.code for finding in judgement.findings]
    assert codes == (["E-PTX-DRIVER"] if driver else [])
    assert judgement.ptx_isa_needed == (None if driver else (9, 2))
    assert describe(scan) == "no SASS; PTX compute_90 (9.2)"


@pytest.mark.parametrize("arch", ["sm_70", "sm_61"])
def test_b15_the_new_wheel_dropped_the_old_gpu(arch: str) -> None:
    library = gpu_library(modules("sm_75", "sm_80", "sm_90", "sm_100", "sm_120"))
    judgement = judged(library, arch)[1]
    assert judgement.verdict == "none"
    assert ("sm_75: newer than sm_70" in judgement.reasons) is (arch == "sm_70")


B16 = {
    "cubin-of-12.9": (cubin(90, "a", layout="old", toolkit="12.9"), "x.cubin", "sm_90", "native"),
    "100f": (gpu_library(container(sass("sm_100f"))), "x.so", "sm_103", "native"),
    "100a": (gpu_library(container(sass("sm_100a"))), "x.so", "sm_103", "none"),
    "relocatable-ptx": (
        shared_object({"__nv_relfatbin": container(ptx("compute_80"))}),
        "x.so",
        "sm_103",
        "jit",
    ),
    "zstd": (gpu_library(container(sass("sm_103a", compression="zstd"))), "x.so", "sm_103", "native"),
}


@pytest.mark.parametrize("name", B16)
def test_b16_the_entry_headers_say_it(name: str) -> None:
    data, file, arch, verdict = B16[name]
    scan = scan_file(file, data, size=len(data))
    assert judge_file(scan, Arch(arch)).verdict == verdict


def test_b16_family_of_a_bare_cubin_that_no_note_tells() -> None:
    data = cubin(100, "f", note=False)
    scan = scan_file("x.cubin", data, size=len(data))
    assert [entry.arch for entry in scan.entries] == ["sm_100"]
    assert judge_file(scan, Arch("sm_103")).verdict == "native"


@pytest.mark.parametrize("payload", [b"\xff" * 64, bytes(64)], ids=["ones", "zeros"])
def test_b16_corrupt_entry_is_damage_and_not_absence(payload: bytes) -> None:
    data = gpu_library(container(payload + sass("sm_90")))
    scan = scan_file("x.so", data, size=len(data))
    judgement = judge_file(scan, Arch("sm_90"))
    assert judgement.verdict == "unknown"
    finding = judgement.findings[0]
    assert (finding.code, finding.severity) == ("E-FATBIN", "error")
    assert finding.offset == data.find(bytes.fromhex("50ed55ba")) + 16


@pytest.mark.parametrize(("held", "arch"), [("sm_90", "sm_103"), ("sm_75", "sm_121")])
def test_b20_built_for_the_build_box_alone(held: str, arch: str) -> None:
    assert judged(gpu_library(modules(held)), arch)[1].verdict == "none"


def test_b21_cpu_only_in_disguise() -> None:
    scan, judgement = judged(shared_object({".text": b"\xc3" * 64}, needed=["libc.so.6"]), "sm_103")
    assert judgement.verdict == "no-gpu-code"
    assert scan.modules == (0, 0)
    assert not scan.has_gpu_code
    assert sum_distribution([judgement]).verdict == "no-gpu-code"


def test_b72_b71_hostile_names_in_a_wheel_are_refused_by_inspect() -> None:
    with pytest.raises(IntegrityError, match="E-PATH"):
        scanned_wheel({"../../x.so": gpu_library(modules("sm_90"))})


def test_b75_a_member_of_zeros_takes_little_memory() -> None:
    """300 MB of zeros in a 300 kB wheel: scanned in one pass, in windows."""
    size = 300 << 20
    data = wheel_bytes("pkg", "1.0", {"pkg/x.so": b"\x7fELF" + bytes(size)}, level=1)
    assert len(data) < 4 << 20
    stream = io.BytesIO(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (scan,) = scan_wheel(stream, read_wheel(stream, wheel_filename("pkg", "1.0")))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 64 << 20
    assert scan.lost


def test_an_amd_gpu_is_refused_until_there_are_rules() -> None:
    scan, _ = judged(gpu_library(modules("sm_90")), "sm_90")
    with pytest.raises(UserInputError, match="E-ARCH-VENDOR"):
        judge_file(scan, Arch("gfx942"))


def test_inspect_object() -> None:
    scans = scanned_wheel(
        {
            "pkg/x.so": gpu_library(modules("sm_90"), needed=["libc.so.6"], runpath="$ORIGIN"),
            "pkg/a.cubin": cubin(90),
            "pkg/b.cubin": cubin(100),
        }
    )
    report = inspect_json(scans, [("pkg", "1.0", scans)], [Arch("sm_90"), Arch("sm_100")])
    assert set(report) == {"files", "distributions", "findings"}
    row = next(row for row in report["files"] if row["path"] == "pkg/x.so")
    assert set(row) == {"path", "modules", "entries", "verdicts", "kernels_missing", "needs"}
    assert row["needs"] == {"sonames": ["libc.so.6"], "versions": {}, "rpath": ["$ORIGIN"]}
    assert report["distributions"] == [
        {
            "name": "pkg",
            "version": "1.0",
            "verdicts": {
                "sm_90": {"verdict": "native", "native": 2, "jit": 0, "missing": 1},
                "sm_100": {"verdict": "partial", "native": 1, "jit": 0, "missing": 2},
            },
        }
    ]
    assert {(f["code"], f["subject"]) for f in report["findings"]} == {
        ("W-ARCH-NONE", "pkg/b.cubin"),
        ("W-ARCH-NONE", "pkg/x.so"),
        ("W-ARCH-NONE", "pkg/a.cubin"),
    }
    assert inspect_json(scans)["findings"] == []
