"""The compiled fixtures: entries, modules and verdicts, and what a real H200 did with them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from envbundle.inspection.coverage import judge_file
from envbundle.inspection.report import DEFAULT_ARCHS, inspect_json
from envbundle.inspection.scan import scan_file
from envbundle.spec.coverage import FileScan
from envbundle.spec.target import Arch

GPU = Path(__file__).parent.parent / "data" / "gpu"
EXPECTED: dict[str, Any] = json.loads((GPU / "EXPECTED.json").read_text())["files"]
WHOLE = sorted(name for name, row in EXPECTED.items() if not row.get("damaged"))
DAMAGED = sorted(name for name, row in EXPECTED.items() if row.get("damaged"))


def scanned(name: str, *, names: bool = False) -> FileScan:
    data = (GPU / name).read_bytes()
    return scan_file(name, data, size=len(data), names=names)


def test_every_fixture_is_expected() -> None:
    files = {path.name for path in GPU.iterdir()} - {"EXPECTED.json", "H200.tsv", "README.md", "launcher.c"}
    assert files == set(EXPECTED)
    assert len(WHOLE) + len(DAMAGED) == len(files)


@pytest.mark.parametrize("name", WHOLE)
def test_entries_modules_and_verdicts(name: str) -> None:
    report = inspect_json([scanned(name)])
    row = report["files"][0]
    assert row["entries"] == EXPECTED[name]["entries"]
    assert row["modules"] == EXPECTED[name]["modules"]
    assert row["verdicts"] == EXPECTED[name]["verdicts"]
    assert list(row["verdicts"]) == [str(arch) for arch in DEFAULT_ARCHS]
    assert report["findings"] == []


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_a_finding_with_an_offset(name: str) -> None:
    scan = scanned(name)
    assert [entry.to_dict() for entry in scan.entries] == EXPECTED[name]["entries"]
    errors = [finding for finding in scan.findings if finding.severity == "error"]
    assert errors
    assert {finding.code for finding in errors} <= {"E-FATBIN", "E-ELF"}
    size = (GPU / name).stat().st_size
    assert all(finding.offset is not None and finding.offset <= size for finding in errors)
    for arch in DEFAULT_ARCHS:
        judgement = judge_file(scan, arch)
        assert judgement.verdict == "unknown"
        assert any(finding.severity == "error" for finding in judgement.findings)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_stream_buffer_and_view_agree(name: str) -> None:
    data = (GPU / name).read_bytes()
    of_buffer = scan_file(name, data, size=len(data))
    assert scan_file(name, io.BytesIO(data), size=len(data)) == of_buffer
    assert scan_file(name, memoryview(data), size=len(data)) == of_buffer


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_scan_survives_its_json_form(name: str) -> None:
    scan = scanned(name, names=True)
    again = FileScan.from_dict(json.loads(json.dumps(scan.to_dict())))
    assert again == scan
    assert judge_file(again, Arch("sm_90")) == judge_file(scan, Arch("sm_90"))


@pytest.mark.parametrize("name", WHOLE)
def test_named_sections_alone_give_the_same_for_linked_files(name: str) -> None:
    data = (GPU / name).read_bytes()
    named = scan_file(name, data, size=len(data), every_section=False)
    assert named == scan_file(name, data, size=len(data))


def h200_rows() -> list[tuple[str, str, str]]:
    rows = list(csv.reader((GPU / "H200.tsv").read_text().splitlines(), delimiter="\t"))[1:]
    return [(row[0], row[1], row[2]) for row in rows]


def test_all_29_rows_are_there() -> None:
    assert len(h200_rows()) == 29


@pytest.mark.parametrize(("name", "function", "result"), h200_rows(), ids=lambda value: str(value)[:24])
def test_what_the_h200_did(name: str, function: str, result: str) -> None:
    judgement = judge_file(scanned(name, names=True), Arch("sm_90"))
    ran = result == "ok"
    if name == "two_containers.so":
        kernel = {"run_k": "k1", "run_k2": "k2"}[function]
        missing = any(kernel in symbol for symbol in judgement.kernels_missing)
        assert judgement.verdict == "partial"
        assert missing is not ran
        return
    assert judgement.verdict in (("native", "jit") if ran else ("none",))


def test_kernel_names_of_missing_modules() -> None:
    judgement = judge_file(scanned("two_containers.so", names=True), Arch("sm_90"))
    assert judgement.kernels_missing == ("_Z2k2Pii",)
    judgement = judge_file(scanned("two_containers.so", names=True), Arch("sm_120"))
    assert judgement.kernels_missing == ("_Z2k1Pii",)
    ptx_only = judge_file(scanned("ptx90a.so", names=True), Arch("sm_100"))
    assert len(ptx_only.kernels_missing) == 1
    report = inspect_json([scanned("two_containers.so", names=True)], archs=[Arch("sm_90")])
    assert report["files"][0]["kernels_missing"] == {"sm_90": ["_Z2k2Pii"]}
