"""The door: help, usage errors, one JSON object, exit statuses by class of error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from envbundle.cli.main import main, status_of
from envbundle.cli.table import COMMANDS
from envbundle.errors import (
    EnvbundleError,
    FormatError,
    HostError,
    IntegrityError,
    TransferError,
    TrustError,
    UserInputError,
    VerdictError,
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"example:\n  envbundle {command}" in out
    assert "--json" in out


def test_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name, (_, summary) in COMMANDS.items():
        assert f"{name} {summary}" in out


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (VerdictError, 1),
        (UserInputError, 2),
        (TrustError, 3),
        (IntegrityError, 3),
        (FormatError, 3),
        (TransferError, 4),
        (HostError, 4),
    ],
)
def test_exit_statuses(kind: type[EnvbundleError], status: int) -> None:
    assert status_of(kind("E-X", "x")) == status


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["lock", "--no-such-option"],
        ["install"],
        ["pack", "--level", "many"],
        ["install", "store", "--reuse", "perhaps"],
        ["copy", "only-one"],
        ["lock", "--arc", "sm_90"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_findings(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"][0]["code"] == "E-USAGE"


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "E-USAGE" in capsys.readouterr().err


def test_a_missing_manifest(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["lock", "--manifest", f"{tmp_path}/none.toml", "--json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "E-NO-MANIFEST"
    assert finding["subject"] == f"{tmp_path}/none.toml"


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "e-arch-none"]) == 0
    assert "exit status 1" in capsys.readouterr().out
    assert main(["explain", "E-ARCH-NON", "--json"]) == 2
    assert "E-ARCH-NONE" in json.loads(capsys.readouterr().out)["findings"][0]["hint"]


def test_a_reader_that_goes_away_is_no_success() -> None:
    """`envbundle explain | head -1`: the pipe closes while we write."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; for i in 1 2 3; do {sys.executable} -m envbundle explain; done | head -c 1 | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_help_costs_little() -> None:
    """What `--help` imports: none of the heavy libraries."""
    code = (
        "import sys\nfrom envbundle.cli.main import main\n"
        "main(['--help'])\n"
        "print([m for m in ('httpx', 'rich', 'cryptography', 'tomlkit', 'zstandard', 'packaging') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
