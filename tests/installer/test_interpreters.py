"""Environments for every Python that this machine has, made by the one that runs the tests."""


from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError
from envbundle.host.probe import Interpreter, interpreters
from envbundle.host.run import run
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment

from .builders import LATER, NOW, bundle, output, sample, sample_items, with_target

if TYPE_CHECKING:
    from pathlib import Path

FOUND = [found for minor in range(10, 15) for found in list(interpreters(f"3.{minor}", run))[:1]]


@pytest.mark.parametrize("interpreter", FOUND, ids=lambda found: found.version)
def test_an_environment_of_each_python(tmp_path: Path, interpreter: Interpreter) -> None:
    prefix = tmp_path / "my env"
    target = with_target(python=interpreter.python)
    given = bundle(*sample_items("one"), target=target)
    result = install(*given, InstallOptions(prefix=prefix), now=NOW)
    assert result.receipt.interpreter["version"] == interpreter.version
    real = os.path.realpath(prefix)
    python = prefix / "bin/python"
    assert output(prefix / "bin/app") == f"one {real}/bin/python {real}"
    ask = "import sys; print(sys.version_info[:2], sys.prefix, sys.base_prefix, sys.executable, sep='|')"
    major, minor = map(int, interpreter.python.split("."))
    expected = f"({major}, {minor})|{real}|{interpreter.prefix}|{real}/bin/python"
    for flags in ([], ["-I"], ["-E"], ["-s"]):
        assert output(python, *flags, "-c", ask) == expected
    paths = output(python, "-c", "import sys; print(*sys.path, sep='\\n')").splitlines()
    assert [path for path in paths if path.startswith(f"{prefix}/")] == []
    assert f"{real}/lib/python{interpreter.python}/site-packages" in paths
    config = "import sysconfig; print(sysconfig.get_path('purelib'), sysconfig.get_path('scripts'))"
    assert output(python, "-c", config) == f"{real}/lib/python{interpreter.python}/site-packages {real}/bin"
    assert output(prefix / f"bin/python{interpreter.python}", "-c", "import app; print(app.value)") == "one"
    tag = interpreter.cache_tag
    assert (prefix / f"lib/python{interpreter.python}/site-packages/app/__pycache__/late.{tag}.pyc").exists()
    assert verify_environment(prefix, runner=run).ok
    again = install(*bundle(*sample_items("two"), target=target), InstallOptions(prefix=prefix), now=LATER)
    assert again.reused_bytes > 20000
    assert verify_environment(prefix, runner=run).ok


def test_bin_python_is_the_real_interpreter(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    outer = tmp_path / "outer"
    install(*sample(), InstallOptions(prefix=outer), now=NOW)
    alias = tmp_path / "alias"
    alias.symlink_to(outer / "bin/python")  # a link to a virtual environment's python
    result = install(*sample(), InstallOptions(prefix=prefix, interpreter=str(alias)), now=NOW)
    base = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    assert os.readlink(prefix / "bin/python") == base
    assert result.receipt.interpreter["path"] == base
    config = dict(line.split(" = ") for line in (prefix / "pyvenv.cfg").read_text().splitlines())
    assert config["home"] == os.path.dirname(base)
    assert config["include-system-site-packages"] == "false"


@pytest.mark.parametrize("body", ["exit 1", None], ids=["broken", "absent"])
def test_b30_a_named_interpreter_that_does_not_run(tmp_path: Path, body: str | None) -> None:
    path = tmp_path / "python3"
    if body is not None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    with pytest.raises(HostError) as caught:
        install(*sample(), InstallOptions(prefix=tmp_path / "env", interpreter=str(path)), now=NOW)
    assert caught.value.code == "E-HOST-PYTHON"
    assert str(path) in caught.value.found


def test_another_python_makes_a_new_generation(tmp_path: Path) -> None:
    """The content is live, but for an interpreter that is not the one asked for."""
    others = list(interpreters(".".join(map(str, sys.version_info[:2])), run))
    prefix = tmp_path / "env"
    first = install(*sample(), InstallOptions(prefix=prefix, interpreter=others[0].path), now=NOW)
    again = install(*sample(), InstallOptions(prefix=prefix, interpreter=others[-1].path), now=LATER)
    assert again.status == ("unchanged" if len(others) == 1 else "installed")
    assert (again.generation == first.generation) == (len(others) == 1)
