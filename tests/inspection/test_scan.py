"""Files built here: where modules are found, which count, and what damage does."""

from __future__ import annotations

import ctypes
import io
import struct
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from envbundle.inspection.coverage import Judgement, judge_file, sum_distribution
from envbundle.inspection.scan import scan_file
from envbundle.spec.coverage import Counts, FileScan
from envbundle.spec.target import Arch
from tests.builders import (
    Part,
    archive,
    container,
    cubin,
    elf_file,
    entry,
    gpu_library,
    modules,
    nvvm,
    ptx,
    ptx_text,
    sass,
    shared_object,
)

if TYPE_CHECKING:
    from pathlib import Path


def scan(data: bytes, name: str = "x.so", *, names: bool = False) -> FileScan:
    """Scan as a buffer and as a stream; the two must agree."""
    of_buffer = scan_file(name, data, size=len(data), names=names)
    assert scan_file(name, io.BytesIO(data), size=len(data), names=names) == of_buffer
    return of_buffer


def judge(data: bytes, arch: str, name: str = "x.so", *, driver: str | None = None) -> Judgement:
    return judge_file(scan(data, name), Arch(arch), driver=driver)


def counts(judgement: Judgement) -> tuple[int, int, int]:
    row = judgement.counts.summary()
    return row["native"], row["jit"], row["missing"]


# --- the builders are true


def test_built_library_is_loaded_by_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(
        gpu_library(
            modules("sm_80"),
            needed=["libc.so.6"],
            soname="libx.so",
            runpath="$ORIGIN",
            versions={"libc.so.6": ["GLIBC_2.2.5" if struct.calcsize("P") == 8 else "GLIBC_2.0"]},
        )
    )
    if ctypes.sizeof(ctypes.c_void_p) == 8:
        assert ctypes.CDLL(str(path))._name == str(path)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_built_library_is_read_by_pyelftools(bits: int, order: str) -> None:
    data = gpu_library(modules("sm_80"), needed=["liba.so"], bits=bits, order=order)
    section = ELFFile(io.BytesIO(data)).get_section_by_name(".nv_fatbin")
    assert section is not None
    assert section.data() == modules("sm_80")


# --- ELF forms


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("overflow", [False, True])
def test_both_classes_orders_and_overflow_forms(bits: int, order: str, *, overflow: bool) -> None:
    data = gpu_library(
        modules("sm_80"),
        needed=["liba.so.1", "libb.so"],
        soname="libx.so.2",
        rpath="/a:$ORIGIN/b",
        runpath="${ORIGIN}",
        versions={"liba.so.1": ["A_2", "A_1"]},
        weak_versions={"libb.so": ["B_1"]},
        bits=bits,
        order=order,
        overflow=overflow,
    )
    found = scan(data)
    assert found.modules == (1, 0)
    assert found.groups[0].section == ".nv_fatbin"
    assert found.findings == ()
    needs = found.needs
    assert needs is not None
    assert needs.machine == "x86_64"
    assert needs.sonames == ("liba.so.1", "libb.so")
    assert needs.soname == "libx.so.2"
    assert needs.rpath == ("/a", "$ORIGIN/b")
    assert needs.runpath == ("${ORIGIN}",)
    assert needs.versions == (("liba.so.1", ("A_1", "A_2")),)
    assert needs.weak_versions == (("libb.so", ("B_1",)),)


def test_stripped_section_headers_are_said() -> None:
    data = gpu_library(modules("sm_80"), modules("sm_90"), section_headers=False)
    found = scan(data)
    assert {entry.section for entry in found.entries} == {"(scan)"}
    assert [finding.code for finding in found.findings] == ["N-NO-SECTIONS"]
    assert judge(data, "sm_80").verdict == "partial"


def test_needs_of_a_file_whose_dynamic_table_points_out_of_it() -> None:
    data = bytearray(shared_object({}, needed=["liba.so"]))
    strtab = next(at for at in range(0, len(data) - 16, 8) if data[at : at + 8] == struct.pack("<q", 5))
    struct.pack_into("<Q", data, strtab + 8, 1 << 40)
    found = scan(bytes(data))
    assert found.needs is None
    assert [(finding.code, finding.severity) for finding in found.findings] == [("E-ELF", "warning")]


# --- which modules count


def test_empty_modules_judge_nothing() -> None:
    data = gpu_library(
        modules("sm_90", kernels=["k"]), modules("sm_80", "compute_80", kernels=[]), container()
    )
    assert scan(data).modules == (2, 1)
    assert counts(judge(data, "sm_80")) == (0, 0, 1)
    assert counts(judge(data, "sm_90")) == (1, 0, 0)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("kernels", [[], ["k"]], ids=["empty", "kernel"])
@pytest.mark.parametrize("size", [0, 20_000], ids=["small", "large"])
def test_emptiness_is_seen_through_compression(compression: str, kernels: list[str], size: int) -> None:
    size = size if kernels else 0
    data = gpu_library(container(sass("sm_80", kernels, compression=compression, size=size)))
    assert scan(data).modules == (1, 0 if kernels else 1)
    text = gpu_library(container(ptx("compute_80", kernels, compression=compression)))
    assert scan(text).modules == (1, 0 if kernels else 1)


@pytest.mark.parametrize("layout", ["old", "new"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_kernel_names(layout: str, compression: str) -> None:
    names = ["_Z3fooPi", "_Z3barPi"]
    data = gpu_library(container(sass("sm_80", names, layout=layout, compression=compression)))
    assert scan(data, names=True).groups[0].kernels == ("_Z3barPi", "_Z3fooPi")


def test_a_module_is_never_rescued_by_another_one() -> None:
    data = gpu_library(modules("sm_80"), modules("compute_80"))
    assert counts(judge(data, "sm_90")) == (0, 1, 1)
    assert judge(data, "sm_90").verdict == "partial"


def test_lto_alone_is_missing() -> None:
    judgement = judge(gpu_library(container(nvvm(90))), "sm_90")
    assert judgement.verdict == "none"
    assert judgement.reasons == ("lto_90: LTO-IR is not compiled at load",)


def test_notes_and_needed_isa() -> None:
    data = gpu_library(modules("sm_120", "compute_80@8.4"), modules("compute_90@8.7"))
    judgement = judge(data, "sm_121")
    assert judgement.verdict == "jit"
    assert judgement.ptx_isa_needed == (8, 7)
    assert set(judgement.notes) == {
        "sm_121 served by compute_90 PTX 8.7, compiled at load",
        "sm_121 served by sm_120 SASS (same major)",
    }


# --- relocatable code


def relocatable(linked: bytes, *objects: bytes) -> bytes:
    return shared_object({".nv_fatbin": linked, "__nv_relfatbin": b"".join(objects)})


@pytest.mark.parametrize(
    ("linked", "objects", "arch", "expected"),
    [
        (modules("sm_80"), [modules("sm_80", "compute_80")], "sm_80", (1, 0, 0)),
        (modules("sm_80"), [modules("sm_80", "compute_80")] * 2, "sm_103", (0, 1, 0)),
        (modules("sm_80"), [modules("sm_80", "compute_80"), modules("sm_80")], "sm_103", (0, 0, 1)),
        (modules("sm_80"), [modules("sm_103")], "sm_103", (0, 1, 0)),
        (container(), [modules("compute_80"), modules("compute_90")], "sm_100", (0, 1, 0)),
        (container(), [modules("compute_80"), modules("compute_103")], "sm_100", (0, 0, 1)),
        (container(), [modules("sm_100"), modules("sm_100f")], "sm_103", (1, 0, 0)),
        (modules("sm_75", kernels=[]), [modules("compute_80")], "sm_100", (0, 1, 0)),
        (container(), [container(nvvm(100))], "sm_100", (0, 0, 1)),
    ],
    ids=[
        "linked",
        "jit-link",
        "one-object-lacks",
        "sass-link",
        "alone",
        "alone-lacks",
        "alone-sass",
        "stub",
        "lto",
    ],
)
def test_relocatable_modules(
    linked: bytes, objects: list[bytes], arch: str, expected: tuple[int, int, int]
) -> None:
    data = relocatable(linked, *objects)
    judgement = judge(data, arch)
    assert counts(judgement) == expected
    total, empty = scan(data).modules
    assert total - empty == sum(expected) == 1


def test_relocatable_objects_of_an_archive_are_judged_each() -> None:
    def member(*archs: str) -> bytes:
        return elf_file([Part("__nv_relfatbin", modules(*archs))])

    data = archive({"a.o": member("sm_90"), "b.o": member("compute_80"), "c.o": member("sm_80")})
    assert scan(data, "x.a").modules == (3, 0)
    assert counts(judge(data, "sm_90", "x.a")) == (1, 1, 1)


# --- catalogues


def test_containers_in_other_sections_are_alternatives() -> None:
    every = [modules(arch) for arch in ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_90")]
    data = shared_object({".nv_fatbin": modules("sm_75", kernels=[]), ".ldata": b"".join(every)})
    assert scan(data).modules == (7, 1)
    judgement = judge(data, "sm_90")
    assert judgement.verdict == "native"
    assert judgement.counts.summary() == {"verdict": "native", "native": 1, "jit": 1, "missing": 4}
    assert judge(data, "sm_110").verdict == "jit"
    assert judge(data, "sm_72").verdict == "none"


def test_bare_cubins_in_rodata_are_found() -> None:
    inside = b"\1" * 40 + cubin(80) + cubin(90, "a", layout="old") + b"rest"
    data = shared_object({".rodata": inside})
    found = scan(data, names=True)
    assert {entry.arch for entry in found.entries} == {"sm_80", "sm_90a"}
    assert {entry.section for entry in found.entries} == {".rodata"}
    assert judge(data, "sm_90").verdict == "native"
    assert judge(data, "sm_75").verdict == "none"


def test_an_unfit_catalogue_beside_fit_modules_is_partial() -> None:
    data = shared_object({".nv_fatbin": modules("sm_90"), ".rodata": modules("sm_80")})
    judgement = judge(data, "sm_90")
    assert judgement.verdict == "partial"
    assert counts(judgement) == (1, 0, 1)


@pytest.mark.parametrize(
    "chance",
    [
        bytes.fromhex("50ed55ba01001000") + b"\xff" * 200,
        bytes.fromhex("50ed55ba01001000") + bytes(200),
        b"\x7fELF\x02\x01\x01\x33\x07" + bytes(200),
        b"\x7fELF\x02\x01\x01\x41\x08" + b"\xff" * 200,
        cubin(90)[:200],
    ],
    ids=["garbage", "zeros", "old-cubin-magic", "new-cubin-magic", "cut-cubin"],
)
def test_a_pattern_in_ordinary_data_is_no_module(chance: bytes) -> None:
    found = scan(shared_object({".rodata": b"code" * 5 + chance}))
    assert found.groups == ()
    assert found.findings == ()


def test_stand_alone_files_of_a_distribution_are_one_catalogue() -> None:
    files = [judge(cubin(90, "a"), "sm_90", "a.cubin"), judge(cubin(100), "sm_90", "b.cubin")]
    files += [judge(ptx_text("sm_80"), "sm_90", "c.ptx"), judge(modules("sm_75"), "sm_90", "d.fatbin")]
    assert [judgement.verdict for judgement in files] == ["native", "none", "jit", "none"]
    total = sum_distribution(files)
    assert total.summary() == {"verdict": "native", "native": 1, "jit": 1, "missing": 2}
    assert sum_distribution(files[1:]).verdict == "jit"
    assert sum_distribution([files[1], files[3]]).verdict == "none"
    with_library = [*files, judge(gpu_library(modules("sm_80")), "sm_90")]
    assert sum_distribution(with_library).verdict == "partial"
    assert sum_distribution([]) == Counts()


# --- stand-alone files


@pytest.mark.parametrize(
    ("number", "suffix", "layout", "toolkit", "note", "expected"),
    [
        (90, "", "old", "12.4", True, "sm_90"),
        (90, "a", "old", "12.4", True, "sm_90a"),
        (60, "a", "old", "9.0", False, "sm_60"),  # bit 0x800 means nothing below 90
        (90, "a", "new", "13.0", True, "sm_90a"),  # in .nv.compat alone
        (100, "a", "new", "12.9", True, "sm_100a"),  # in e_flags
        (100, "f", "new", "13.0", True, "sm_100f"),  # in the note alone
        (100, "f", "new", "13.0", False, "sm_100"),
        (120, "", "new", "12.8", True, "sm_120"),
    ],
)
def test_bare_cubins(
    number: int, suffix: str, layout: str, toolkit: str, *, note: bool, expected: str
) -> None:
    data = cubin(number, suffix, layout=layout, toolkit=toolkit, note=note)
    found = scan(data, "x.cubin")
    assert found.kind == "cubin"
    assert [entry.arch for entry in found.entries] == [expected]
    assert found.findings == ()


def test_what_a_file_is_its_bytes_say() -> None:
    assert scan(cubin(90), "model.bin").kind == "cubin"
    assert scan(modules("sm_90"), "model.bin").kind == "fatbin"
    assert scan(ptx_text("sm_90a", "8.0"), "kernel.txt").kind == "ptx"
    assert scan(archive({"a.o": gpu_library(modules("sm_90"))}), "x.dat").modules == (1, 0)
    assert scan(b"INPUT(-lfoo)\n", "libfoo.so").findings == ()


def test_ptx_with_comments_first_and_without_kernels() -> None:
    late = b"// comment\n" * 500 + b"\n  .version 7.8\n\t.target sm_80, debug\n.entry k(){}\n"
    found = scan(late, "x.ptx", names=True)
    assert [(entry.arch, entry.isa) for entry in found.entries] == [("compute_80", "7.8")]
    assert found.groups[0].kernels == ("k",)
    assert scan(ptx_text(kernels=[]), "x.ptx").modules == (1, 1)


@pytest.mark.parametrize("name", ["x.cubin", "x.fatbin", "x.ptx", "x.so", "x.a"])
@pytest.mark.parametrize("content", [b"\x93garbage\x00\x01" * 20, b"\x7fE"], ids=["garbage", "cut"])
def test_a_name_that_the_bytes_contradict_is_damage(name: str, content: bytes) -> None:
    found = scan(content, name)
    assert found.lost
    assert [finding.severity for finding in found.findings] == ["error"]
    assert judge(content, "sm_90", name).verdict == "unknown"


@pytest.mark.parametrize("name", ["x.cubin", "x.fatbin", "x.ptx"])
def test_an_empty_gpu_file_is_damage(name: str) -> None:
    assert judge(b"", "sm_90", name).verdict == "unknown"


# --- damage


def test_a_flipped_magic_is_never_no_device_code() -> None:
    data = gpu_library(modules("sm_90"))
    at = data.find(bytes.fromhex("50ed55ba"))
    broken = data[:at] + b"\x51" + data[at + 1 :]
    judgement = judge(broken, "sm_90")
    assert judgement.verdict == "unknown"
    assert [(f.code, f.severity, f.offset) for f in judgement.findings] == [("E-FATBIN", "error", at)]


def test_a_flipped_magic_behind_a_whole_module_hides_one() -> None:
    first = modules("sm_90")
    data = gpu_library(first, modules("sm_80"))
    at = data.find(first) + len(first)
    broken = data[:at] + b"\0" * 8 + data[at + 8 :]
    assert judge(broken, "sm_90").verdict == "unknown"


def test_damage_that_cannot_change_the_answer_is_a_warning() -> None:
    bad = container(sass("sm_90"), size=1 << 40)
    data = gpu_library(modules("sm_90"), modules("sm_80"), bad)
    judgement = judge(data, "sm_90")
    assert judgement.verdict == "partial"
    assert {finding.severity for finding in judgement.findings} == {"warning"}
    assert judge(data, "sm_75").verdict == "unknown"


def test_an_unknown_kind_of_entry_is_named_and_matters_only_where_nothing_else_serves() -> None:
    strange = entry("sass", 90, bytes(64), raw_kind=0x40)
    data = gpu_library(container(sass("sm_80"), strange))
    found = scan(data)
    assert found.findings[0].code == "E-FATBIN"
    assert found.findings[0].offset == data.find(strange)
    assert judge(data, "sm_80").verdict == "native"
    assert judge(data, "sm_90").verdict == "unknown"


def test_a_payload_that_does_not_open_is_damage() -> None:
    good = sass("sm_80", compression="zstd")
    at = good.find(b"\x28\xb5\x2f\xfd")
    bad = good[: at + 4] + b"\xff" * 40 + good[at + 44 :]
    assert judge(gpu_library(container(bad)), "sm_80").verdict == "unknown"


def test_records_without_containers_are_damage() -> None:
    record = struct.pack("<IIQQ", 0x466243B1, 1, 0, 0)
    whole = shared_object({".nv_fatbin": modules("sm_90"), ".nvFatBinSegment": record})
    assert scan(whole).findings == ()
    wiped = shared_object({".nv_fatbin": bytes(len(modules("sm_90"))), ".nvFatBinSegment": record})
    assert judge(wiped, "sm_90").verdict == "unknown"


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_library_is_unknown(cut: float) -> None:
    data = gpu_library(modules("sm_90"), modules("sm_80"))
    judgement = judge(data[: int(len(data) * cut)], "sm_90")
    assert judgement.verdict in ("unknown", "partial")
    assert judgement.findings


def test_damaged_archive() -> None:
    data = archive({"a.o": gpu_library(modules("sm_90")), "b.o": gpu_library(modules("sm_90"))})
    judgement = judge(data[:-100], "sm_90", "x.a")
    assert judgement.verdict == "unknown"
    assert "E-ARCHIVE" in {finding.code for finding in judgement.findings}


def test_very_many_faults_stay_few_findings() -> None:
    bad = container(sass("sm_90"), size=1)
    assert len(scan(gpu_library(*[bad] * 200)).findings) <= 50


# --- drivers


def test_ptx_newer_than_the_driver() -> None:
    data = gpu_library(modules("compute_90@9.2"))
    judgement = judge(data, "sm_103", driver="580")
    assert judgement.verdict == "none"
    finding = judgement.findings[0]
    assert (finding.code, finding.severity) == ("E-PTX-DRIVER", "error")
    assert finding.found == "PTX ISA 9.2 needs a newer driver than 580 (580 takes <= 9.0)"
    assert judge(data, "sm_103").ptx_isa_needed == (9, 2)
    native = gpu_library(modules("sm_103", "compute_90@9.2"))
    assert judge(native, "sm_103", driver="580").findings == ()
