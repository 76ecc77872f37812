"""The judge of test reports: skipped tests and absent suites are faults."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PASSED = '<testcase classname="tests.spec.test_a" name="test_one" time="0.5" />'
SKIPPED = '<testcase classname="tests.spec.test_a" name="test_two"><skipped message="no tool" /></testcase>'
FAILED = '<testcase classname="tests.spec.test_a" name="test_3"><failure message="boom" /></testcase>'
CASES = {
    "all passed": (PASSED, "unit tests.spec", 0, "1 passed"),
    "one skipped": (PASSED + SKIPPED, "", 1, "skipped: tests.spec.test_a::test_two no tool"),
    "one failed": (PASSED + FAILED, "", 1, "1 failed, 1 passed"),
    "none ran": ("", "", 1, "no tests at all in unit"),
    "a suite is absent": (PASSED, "unit tests.trust", 1, "suite did not run: tests.trust in unit"),
    "a suite of a longer name": (PASSED, "unit tests.spe", 1, "suite did not run: tests.spe in unit"),
    "a suite that only skipped": (SKIPPED, "unit tests.spec", 1, "suite did not run: tests.spec in unit"),
}


@pytest.mark.parametrize(("cases", "suites", "status", "line"), CASES.values(), ids=CASES.keys())
def test_reports_are_judged(cases: str, suites: str, status: int, line: str, tmp_path: Path) -> None:
    report, needed = tmp_path / "unit.xml", tmp_path / "suites"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", "utf-8")
    needed.write_text(f"# a comment\n{suites}\n", "utf-8")
    program = [
        sys.executable,
        str(ROOT / "scripts" / "check_reports.py"),
        "--suites",
        str(needed),
        str(report),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert line in done.stdout
    assert done.stdout.splitlines()[-1].startswith("===== ")


def test_every_test_folder_is_a_suite_that_must_run() -> None:
    lines = [
        line.partition("#")[0].split() for line in (ROOT / ".ci" / "suites").read_text("utf-8").splitlines()
    ]
    named = {words[1] for words in lines if words}
    folders = {path.name for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))}
    assert {f"tests.{folder}" for folder in folders} - named == set()


def test_every_room_with_code_has_a_suite() -> None:
    named = (ROOT / ".ci" / "suites").read_text("utf-8")
    rooms = {path.parent.name for path in (ROOT / "envbundle").glob("*/*.py") if path.name != "__init__.py"}
    assert {room for room in rooms - {"schemas"} if f"unit tests.{room}\n" not in named} == set()
