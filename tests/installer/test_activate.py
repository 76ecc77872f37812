"""activate, env.sh and env.conf in real shells, with values that would like to be code."""


from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import UserInputError
from envbundle.installer.activate import check_environment, env_conf, scripts
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions

from .builders import NOW, bundle, call, output, sample_items

if TYPE_CHECKING:
    from pathlib import Path

VALUES = {
    "PLAIN": "a",
    "SPACE": "two  words",
    "QUOTES": 'it\'s "so"',
    "CODE": "$(touch X) `touch Y` ${HOME} \\n %s",
    "BANG": "wow! a!b",
    "OTHER": "ü#;&|<>*?[]{}~^",
    "EMPTY": "",
}
FOLDER = "my ! env $(touch X) `id` ü;"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    path = tmp_path / FOLDER
    install(
        *bundle(*sample_items("one"), environment=VALUES), InstallOptions(prefix=path, compile=False), now=NOW
    )
    return path


def read(said: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


SHELLS = {
    "dash": ["dash", "-eu", "-c", '. "$1/bin/activate"; app; env; deactivate; echo ---; env', "x"],
    "bash": [
        "bash",
        "-euo",
        "pipefail",
        "-c",
        '. "$1/bin/activate"; app; env; deactivate; echo ---; env',
        "x",
    ],
    "fish": [
        "fish",
        "--no-config",
        "-c",
        'source "$argv[1]/bin/activate.fish"; app; env; deactivate; echo ---; env',
    ],
    "tcsh": ["tcsh", "-f", "script"],  # an alias is seen from the next line on
}
needs_more = pytest.mark.e2e


@pytest.mark.parametrize(
    "shell", [pytest.param(s, marks=needs_more if s in ("fish", "tcsh") else ()) for s in SHELLS]
)
def test_activating_and_leaving(tmp_path: Path, prefix: Path, shell: str) -> None:
    assert shutil.which(shell), f"{shell} is not there"
    (tmp_path / "script").write_text(
        'source "$WHERE/bin/activate.csh"\napp\nenv\ndeactivate\necho ---\nenv\n'
    )
    before = {"PLAIN": "before", "WHERE": str(prefix), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    said = output(*SHELLS[shell], prefix, env=before, cwd=tmp_path)
    inside, _, outside = said.partition("---\n")
    active, left = read(inside), read(outside)
    assert inside.startswith("one ")
    assert {name: active[name] for name in VALUES} == VALUES
    assert active["VIRTUAL_ENV"] == str(prefix)
    assert active["PATH"].split(":")[0] == f"{prefix}/bin"
    assert left["PLAIN"] == "before"
    assert not set(VALUES) - {"PLAIN"} & set(left)
    assert "VIRTUAL_ENV" not in left
    assert left["PATH"] == os.defpath
    assert {name for name in os.listdir(tmp_path) if not name.startswith(".")} <= {
        FOLDER,
        f"{FOLDER}.generations",
        "script",
    }


def test_activating_twice_and_one_after_another(tmp_path: Path, prefix: Path) -> None:
    other = tmp_path / "other"
    install(*bundle(*sample_items("two")), InstallOptions(prefix=other, compile=False), now=NOW)
    code = '. "$1/bin/activate"; . "$1/bin/activate"; app; . "$2/bin/activate"; app; echo "${BANG-none}"; deactivate; echo "$PATH"'
    said = output("sh", "-euc", code, "sh", prefix, other).splitlines()
    assert [line.split(" ", 1)[0] for line in said] == ["one", "two", "none", os.defpath]


def test_env_sh(tmp_path: Path, prefix: Path) -> None:
    said = output("sh", "-euc", '. "$1/env.sh"; env', "sh", prefix, cwd=tmp_path)
    assert {name: read(said)[name] for name in VALUES} == VALUES


def unquote(text: str) -> str:
    """Read a value as systemd.exec(5) says of EnvironmentFile=: double quotes, backslash escapes inside."""
    assert text[0] == text[-1] == '"'
    found, rest = "", iter(text[1:-1])
    for character in rest:
        found += next(rest) if character == "\\" else character
    return found


def test_env_conf() -> None:
    lines = [line for line in env_conf(VALUES).splitlines() if not line.startswith("#")]
    assert {name: unquote(value) for name, value in (line.split("=", 1) for line in lines)} == VALUES


@pytest.mark.parametrize(
    "environment",
    [
        {"": "x"},
        {"A B": "x"},
        {"A=B": "x"},
        {"1A": "x"},
        {"PATH": "x"},
        {"A;id": "x"},
        {"A": "a\nb"},
        {"A": "\0"},
    ],
    ids=ascii,
)
def test_what_no_shell_can_hold(environment: dict[str, str]) -> None:
    with pytest.raises(UserInputError) as caught:
        check_environment(environment)
    assert caught.value.code == "E-ENVIRONMENT"
    with pytest.raises(UserInputError):
        scripts("/x", "t", environment)


def test_a_prompt_is_given_back(prefix: Path) -> None:
    code = 'PS1="> "; . "$1/bin/activate"; echo "$PS1"; deactivate; echo "$PS1"'
    finished = call("sh", "-c", code, "sh", prefix)
    assert finished.text.splitlines() == ["(tiny) > ", "> "]
