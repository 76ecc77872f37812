"""The GPU cases of the public reports, each locked for real from a folder of tiny wheels."""

from __future__ import annotations

import pytest

from envbundle.errors import IntegrityError

from .project import GPU_TAG, Project, codes, library, only

ARM = "cp312-cp312-manylinux_2_28_aarch64"


def test_b01_a_wheel_too_old_for_the_gpu_is_refused(project: Project) -> None:
    wheel = project.gpu_wheel("oldlib", "1.0", {"oldlib/k.so": ("sm_80 sm_90",)})
    project.requirements = ["oldlib==1.0"]
    project.target("sm_120")
    outcome = project.write("sm_120")
    finding = only(outcome, "E-ARCH-NONE")
    assert outcome.status == "refused"
    assert finding.subject == f"{wheel.name} oldlib/k.so"
    assert finding.found.startswith("has SASS sm_80, sm_90; no PTX; nothing")
    assert "sm_120" in finding.expected
    assert not project.path("sm_120").exists()


def test_b02_architecture_specific_code_covers_one_chip(project: Project) -> None:
    project.gpu_wheel("fast", "1.0", {"fast/k.so": ("sm_80 sm_90a sm_100a",)})
    project.requirements = ["fast"]
    project.target("sm_100")
    project.target("sm_103")
    assert project.write("sm_100").status == "written"
    finding = only(project.write("sm_103"), "E-ARCH-NONE")
    assert "sm_100a: exact-only, not sm_103" in finding.hint
    assert "sm_90a: other major" in finding.hint
    assert not project.path("sm_103").exists()


def test_b03_the_bytes_decide_and_not_what_is_declared(project: Project) -> None:
    project.gpu_wheel(
        "declared",
        "1.0+sm100.sm103",
        {"declared/k.so": ("sm_100a",)},
        metadata_lines=["Summary: TORCH_CUDA_ARCH_LIST=10.0;10.3"],
    )
    project.requirements = ["declared"]
    project.target("sm_103")
    assert "E-ARCH-NONE" in codes(project.lock("sm_103"))


@pytest.mark.parametrize(("arch", "status"), [("sm_120", "stale"), ("sm_120a", "refused")])
def test_b04_the_same_major_serves_and_an_exact_one_does_not(
    project: Project, arch: str, status: str
) -> None:
    project.gpu_wheel("one", "1.0", {"one/k.so": (arch,)})
    project.requirements = ["one"]
    project.target("sm_121")
    outcome = project.lock("sm_121")
    assert outcome.status == status
    if status == "stale":
        assert only(outcome, "N-SAME-MAJOR").found == "sm_121 served by sm_120 SASS (same major)"


@pytest.mark.parametrize(
    ("module", "code"),
    [("sm_80", "E-ARCH-NONE"), ("sm_80 compute_80@8.0", "W-PTX-ONLY")],
    ids=["sass", "with ptx"],
)
def test_b05_desktop_code_does_not_run_on_tegra(project: Project, module: str, code: str) -> None:
    project.gpu_wheel("orin", "1.0", {"orin/k.so": (module,)}, tag=ARM)
    project.requirements = ["orin"]
    project.target("sm_87", platform="aarch64-manylinux_2_35")
    outcome = project.lock("sm_87")
    finding = only(outcome, code)
    if code.startswith("E"):
        assert "Tegra" in finding.hint
    else:
        assert outcome.lock is not None
        assert outcome.lock.requires["ptx-isa"] == "8.0"


def test_b06_the_old_name_of_a_chip_is_no_other_name(project: Project) -> None:
    project.gpu_wheel("thor", "1.0", {"thor/k.so": ("sm_101a",)}, tag=ARM)
    project.requirements = ["thor"]
    project.target("sm_110", platform="aarch64-manylinux_2_39")
    hint = only(project.lock("sm_110"), "E-ARCH-NONE").hint
    assert "sm_101 is the CUDA 12 name of this chip" in hint


def test_b08_a_gap_inside_one_file_is_counted(project: Project) -> None:
    project.gpu_wheel("ops", "1.0", {"ops/k.so": ("sm_75 sm_80", "sm_80")})
    project.requirements = ["ops"]
    project.target("sm_75")
    outcome = project.lock("sm_75")
    assert only(outcome, "W-ARCH-PARTIAL").found == "sm_75: 1 of 2 device modules"
    assert outcome.status == "stale"
    project.more = '[package.ops]\ncoverage = "complete"'
    strict = project.lock("sm_75")
    assert strict.lock is None
    assert only(strict, "E-ARCH-PARTIAL").found == "sm_75: 1 of 2 device modules"


def test_b09_directories_named_after_gpus_mean_nothing(project: Project) -> None:
    project.gpu_wheel(
        "variants", "1.0", {"variants/sm90/x.so": ("sm_80 sm_90a",), "variants/sm100/x.so": ("sm_100a",)}
    )
    project.requirements = ["variants"]
    project.target("sm_120")
    project.target("sm_100")
    refused = [f for f in project.lock("sm_120").findings if f.code == "E-ARCH-NONE"]
    assert [f.subject.split()[1] for f in refused] == ["variants/sm100/x.so", "variants/sm90/x.so"]
    # On sm_100 one variant serves; no union over the two makes the other one fit.
    assert only(project.lock("sm_100"), "E-ARCH-FILE").subject.endswith("variants/sm90/x.so")


def test_b15_a_new_wheel_that_dropped_the_old_gpu(project: Project) -> None:
    project.gpu_wheel("torch", "2.9.0+cu130", {"torch/lib/libtorch_cuda.so": ("sm_75 sm_80 sm_90 sm_120",)})
    project.requirements = ["torch==2.9.0+cu130"]
    for gpu in ("sm_70", "sm_61"):
        project.target(gpu)
        finding = only(project.lock(gpu), "E-ARCH-NONE")
        assert f"may still have {gpu}" in finding.hint


def test_b20_local_wheels_are_judged_by_content(project: Project) -> None:
    project.gpu_wheel("local", "1.0", {"local/k.so": ("sm_90",)})
    project.requirements = [f"local @ {(project.wheels / f'local-1.0-{GPU_TAG}.whl').as_uri()}"]
    project.target("sm_103")
    assert "E-ARCH-NONE" in codes(project.lock("sm_103"))


def test_b20_an_overlay_with_compiled_code_is_not_pure(project: Project) -> None:
    project.wheel("app", "1.0", {"app/__init__.py": ""})
    for name, data in {"fast.so": library("sm_90"), "ok.py": b"x = 1\n"}.items():
        (project.folder / "overlays/app").mkdir(parents=True, exist_ok=True)
        (project.folder / "overlays/app" / name).write_bytes(data)
    project.requirements = ["app"]
    project.more = '[[overlay]]\ndistribution = "app"\npath = "overlays/app"'
    project.target("sm_90")
    outcome = project.lock("sm_90")
    finding = only(outcome, "E-OVERLAY-NOT-PURE")
    assert (finding.subject, finding.found) == ("overlays/app/fast.so", "ELF")
    assert outcome.lock is None


@pytest.mark.parametrize("policy", ["complete", "files", "any"])
def test_b21_a_cpu_build_in_disguise_is_refused(project: Project, policy: str) -> None:
    wheel = project.gpu_wheel("torch", "2.9.0", {"torch/lib/libtorch_cpu.so": ()})
    project.requirements = ["torch"]
    project.target("sm_103")
    assert project.lock("sm_103").status == "stale"
    project.more = f'[package.torch]\ncoverage = "{policy}"'
    finding = only(project.lock("sm_103"), "E-NO-DEVICE-CODE")
    assert finding.subject == wheel.name
    assert "sm_103" in finding.expected


def test_every_gpu_of_a_target_must_pass(project: Project) -> None:
    project.gpu_wheel("two", "1.0", {"two/k.so": ("sm_90",)})
    project.requirements = ["two"]
    project.target("both", '["sm_90", "sm_100"]')
    outcome = project.lock("both")
    assert "sm_100" in only(outcome, "E-ARCH-NONE").expected


def test_a_target_without_gpu_judges_no_gpu_code(project: Project) -> None:
    project.gpu_wheel("two", "1.0", {"two/k.so": ("sm_90",)})
    project.requirements = ["two"]
    project.target("cpu", "none")
    outcome = project.write("cpu")
    assert (outcome.status, codes(outcome)) == ("written", [])
    assert project.written("cpu").coverage[0].counts == ()


def test_a_gap_is_accepted_by_the_lines_that_the_refusal_prints(project: Project) -> None:
    project.gpu_wheel("mixed", "1.0", {"mixed/old.so": ("sm_80",), "mixed/new.so": ("sm_100",)})
    project.requirements = ["mixed"]
    project.target("sm_100")
    refused = project.lock("sm_100")
    hint = only(refused, "E-ARCH-FILE").hint
    assert "--accept-gap mixed:mixed/old.so" in hint
    header, line = hint.splitlines()[-2:]
    assert [(gap.distribution, gap.path) for gap in refused.gaps] == [("mixed", "mixed/old.so")]
    project.more = f"{header}\n{line}"
    outcome = project.write("sm_100")
    assert outcome.status == "written"
    exempt = project.written("sm_100").exemptions
    assert [(e.path, e.gpu, e.verdict) for e in exempt] == [("mixed/old.so", "sm_100", "none")]


def test_an_exemption_does_not_accept_a_whole_distribution(project: Project) -> None:
    project.gpu_wheel("alone", "1.0", {"alone/k.so": ("sm_80",)})
    project.requirements = ["alone"]
    project.more = '[package.alone]\nexempt = ["*"]'
    project.target("sm_100")
    assert "E-ARCH-NONE" in codes(project.lock("sm_100"))


def test_ptx_is_refused_where_the_manifest_says_so(project: Project) -> None:
    project.gpu_wheel("late", "1.0", {"late/k.so": ("sm_80 compute_80@8.0",)})
    project.requirements = ["late"]
    project.more = '[package.late]\njit = "refuse"'
    project.target("sm_103")
    assert only(project.lock("sm_103"), "E-PTX-ONLY").subject.endswith("late/k.so")


def test_ptx_that_the_declared_driver_cannot_read(project: Project) -> None:
    project.gpu_wheel("ahead", "1.0", {"ahead/k.so": ("compute_90@9.2",)})
    project.requirements = ["ahead"]
    project.target("sm_103", driver="580")
    assert "E-PTX-DRIVER" in codes(project.lock("sm_103"))


SOURCE = '[source]\ngpu = "sm_120"'


def test_a_gap_that_the_source_had_too_is_a_note(project: Project) -> None:
    project.gpu_wheel("fa", "1.0", {"fa/old.so": ("sm_80",), "fa/new.so": ("sm_103 sm_120",)})
    project.requirements = ["fa"]
    project.target("sm_103")
    assert project.lock("sm_103").status == "refused"
    project.more = SOURCE
    outcome = project.lock("sm_103")
    assert only(outcome, "N-NEVER-HAD").subject.endswith("fa/old.so")
    assert outcome.lock is not None


def test_a_gap_that_the_source_did_not_have_is_lost(project: Project) -> None:
    project.gpu_wheel("fa", "1.0", {"fa/k.so": ("sm_80 sm_120a",), "fa/new.so": ("sm_103",)})
    project.requirements = ["fa"]
    project.more = SOURCE
    project.target("sm_103")
    assert "lost: it runs on sm_120" in only(project.lock("sm_103"), "E-ARCH-FILE").found


def test_code_compiled_at_run_time_needs_a_compiler(project: Project) -> None:
    project.gpu_wheel("jitted", "1.0", {"jitted/k.so": ("sm_80",)})
    project.requirements = ["jitted"]
    project.more = '[package.jitted]\ncoverage = "runtime-jit"'
    project.target("sm_103")
    assert "E-TOOL" in codes(project.lock("sm_103"))
    project.wheel("compiler", "1.0", {"compiler/bin/ptxas": b"#!"}, tag=GPU_TAG)
    project.requirements += ["compiler"]
    outcome = project.lock("sm_103")
    assert outcome.lock is not None, codes(outcome)


def test_stand_alone_cubins_are_one_catalogue(project: Project) -> None:
    from tests.builders import cubin

    files = {f"cubins/k/{name}.cubin": cubin(number, suffix) for name, number, suffix in CUBINS}
    project.wheel("cubins", "1.0", files, tag=GPU_TAG)
    project.requirements = ["cubins"]
    project.target("sm_103")
    outcome = project.write("sm_103")
    assert outcome.status == "written", codes(outcome)
    (evidence,) = project.written("sm_103").coverage
    assert [file.path for file in evidence.files] == ["cubins/k"]
    counts = dict(evidence.counts)["sm_103"]
    assert (counts.native, counts.missing, counts.spare_missing) == (1, 0, 2)


CUBINS = [("a", 80, ""), ("b", 90, "a"), ("c", 103, "a")]


def test_a_hash_that_is_asked_holds_for_wheels_of_a_folder_too(project: Project) -> None:
    project.gpu_wheel("pinned", "1.0", {"pinned/k.so": ("sm_100",)})
    (project.folder / "requirements.txt").write_text(f"pinned==1.0 --hash=sha256:{'0' * 64}\n")
    project.requirements = []
    project.resolve += '\nrequirement-files = ["requirements.txt"]\ncomplete = true'
    project.target("sm_100")
    with pytest.raises(IntegrityError) as caught:
        project.lock("sm_100")
    assert caught.value.code == "E-HASH"
    assert "0" * 64 in caught.value.expected
