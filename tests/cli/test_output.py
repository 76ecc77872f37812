"""What a person sees: grouped findings, byte counts, nothing but JSON in JSON mode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from envbundle.cli.output import Output, human_bytes
from envbundle.errors import VerdictError
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from envbundle.spec.finding import Severity


def _finding(subject: str, severity: Severity = "error", offset: int | None = None) -> Finding:
    return Finding(code="E-X", severity=severity, subject=subject, found="this", expected="that", offset=offset)


def test_equal_findings_are_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    Output().findings([_finding(f"file{n}") for n in range(9)])
    err = capsys.readouterr().err
    assert err.count("found: this") == 1
    assert "and 5 more" in err
    Output(verbose=True).findings([_finding(f"file{n}") for n in range(9)])
    assert "file8" in capsys.readouterr().err


def test_errors_come_last_where_they_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    Output().findings([_finding("bad"), _finding("so-so", "warning"), _finding("fine", "note")])
    err = capsys.readouterr().err
    assert err.index("fine") < err.index("so-so") < err.index("bad")


def test_quiet_keeps_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    Output(quiet=True).findings([_finding("bad"), _finding("so-so", "warning")])
    err = capsys.readouterr().err
    assert "bad" in err
    assert "so-so" not in err


def test_offsets_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Output().findings([_finding("file", offset=12)])
    assert "file at byte 12" in capsys.readouterr().err


def test_json_mode_prints_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json_mode=True)
    out.line("for people")
    out.findings([_finding("x")])
    out.failure(VerdictError("E-Y", "z", offset=3))
    out.answer({"late": 1})
    got = capsys.readouterr()
    assert json.loads(got.out)["findings"][0] == {
        "code": "E-Y",
        "severity": "error",
        "subject": "z",
        "expected": "",
        "found": "",
        "hint": "",
        "offset": 3,
    }
    assert got.err == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_660_000_000, "1.7 GB"), (5_000_000_000_000, "5000.0 GB")],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text
