"""What metadata and labels say, held against the locked set and the bytes."""

from __future__ import annotations

import io
import json

import pytest

from envbundle.inspection.declared import declared_archs
from envbundle.inspection.wheel import read_wheel
from envbundle.resolver.linkage import built_for, judge_labels, judge_torch_tags
from envbundle.resolver.pip_check import judge_requirements
from tests.builders import gpu_library, modules, wheel_bytes, wheel_filename

from .contents import scans, target, wheel


@pytest.mark.parametrize(
    ("requires", "complaint"),
    [
        (["b"], None),
        (["b>=1.0"], None),
        (["B_>=2"], "B_>=2 (1.0 there)"),
        (["absent"], "absent (not there)"),
        (['absent; python_version < "3.12"'], None),
        (['absent; platform_machine == "aarch64"'], None),
        (['absent; extra == "gpu"'], None),
        (["not a requirement !"], None),
        (["b @ https://example.invalid/b-9.whl"], None),
    ],
)
def test_requirements_of_the_locked_set(requires: list[str], complaint: str | None) -> None:
    found = judge_requirements(scans(wheel("a", requires=requires), wheel("b")), target())
    found = (
        found
        if complaint != "B_>=2 (1.0 there)"
        else judge_requirements(scans(wheel("a", requires=["b>=2"]), wheel("b")), target())
    )
    assert [f.code for f in found] == (["W-PIP-CHECK"] if complaint else [])
    if complaint:
        assert complaint.replace("B_", "b") in found[0].found


def test_extras_that_another_distribution_asks_for() -> None:
    found = judge_requirements(
        scans(wheel("a", requires=["b[gpu]"]), wheel("b", requires=['absent; extra == "gpu"'])), target()
    )
    assert [(f.subject, f.found) for f in found] == [("b 1.0", "1 unmet: absent (not there)")]


def test_complaints_of_a_captured_environment_are_notes() -> None:
    wheels = scans(wheel("sglang", requires=[f"dep{n}" for n in range(65)]))
    (finding,) = judge_requirements(wheels, target(), captured=True)
    assert (finding.code, finding.severity) == ("N-PIP-CHECK", "note")
    assert finding.found.startswith("65 unmet: ")
    assert len(finding.found) < 300


def test_a_python_that_a_wheel_does_not_want() -> None:
    (finding,) = judge_requirements(scans(wheel("a", python=">=3.8,<3.12")), target())
    assert "Python" in finding.found
    assert judge_requirements(scans(wheel("a", python=">=3.12.1")), target()) == ()


@pytest.mark.parametrize(
    ("version", "requires", "told"),
    [
        ("1.0+cu130torch2.9", [], "torch 2.9"),
        ("1.0+cu130", ["torch==2.9.1"], "torch==2.9.1"),
        ("1.0", ["torch>=2.8"], ""),
        ("1.0", [], ""),
    ],
)
def test_what_a_wheel_tells_of_its_torch(version: str, requires: list[str], told: str) -> None:
    assert built_for(wheel("ext", version, requires=requires)) == told


def test_b55_local_tags_of_another_torch() -> None:
    locked = scans(
        wheel("torch", "2.14.1+cu130"), wheel("ext", "1.0+cu130torch2.9"), wheel("ok", "1+pt.torch2.14")
    )
    (finding,) = judge_torch_tags(locked)
    assert (finding.code, finding.subject) == ("W-TORCH-TAG", "ext 1.0+cu130torch2.9")


def test_labels_against_bytes() -> None:
    files = {"ext/k.so": gpu_library(modules("sm_90a", "compute_80"))}
    assert judge_labels(scans(wheel("ext", files=files, declared=["sm_80", "sm_90a"]))) == ()
    (finding,) = judge_labels(scans(wheel("ext", files=files, declared=["sm_90", "sm_100", "sm_103"])))
    assert finding.code == "W-ARCH-DECLARED"
    assert finding.found == "nothing compiled for sm_100, sm_103; it holds compute_80, sm_90a"


@pytest.mark.parametrize(
    ("lines", "variant", "declared"),
    [
        ([], None, ()),
        (["Keywords: TORCH_CUDA_ARCH_LIST=9.0a;10.0;12.0+PTX"], None, ("sm_90a", "sm_100", "sm_120")),
        (['Summary: built with CMAKE_CUDA_ARCHITECTURES="80;90-real"'], None, ("sm_80", "sm_90")),
        ([], {"variants": {"x": {"nvidia": {"sm_arch": ["90_real", "120_virtual"]}}}}, ("sm_90", "sm_120")),
        ([], {"variants": {"x": {"nvidia": ["odd"]}}}, ()),
        ([], "not json", ()),
    ],
)
def test_what_labels_declare(lines: list[str], variant: object, declared: tuple[str, ...]) -> None:
    text = variant if isinstance(variant, str) else json.dumps(variant)
    info = {} if variant is None else {"variant.json": text}
    data = wheel_bytes("ext", "1.0", metadata_lines=lines, dist_info=info)
    stream = io.BytesIO(data)
    assert declared_archs(stream, read_wheel(stream, wheel_filename("ext", "1.0"))) == declared
