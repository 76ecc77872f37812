"""The plain path: install, use, verify, upgrade, roll back."""


from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from envbundle.host.run import run
from envbundle.installer.generations import generations, rollback
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment

from .builders import LATER, NOW, SITE, output, sample

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("folder", ["env", "my env", "ümlaut-환경", "cash $(touch X) & co"])
def test_an_installed_environment_runs(tmp_path: Path, folder: str) -> None:
    prefix = tmp_path / folder
    trusted, store = sample()
    result = install(trusted, store, InstallOptions(prefix=prefix), now=NOW)
    assert result.status == "installed"
    real = os.path.realpath(prefix)
    assert output(prefix / "bin/app").split(" ", 1)[0] == "one"
    assert output(prefix / "bin/python", "-c", "import sys; print(sys.prefix)") == real
    assert output(prefix / "bin/python", "-Ic", "import sys; print(sys.executable)") == f"{real}/bin/python"
    report = verify_environment(prefix, runner=run)
    assert report.ok, report
    assert report.checked > 20
    assert not (tmp_path / "X").exists()
    assert output("sh", "-c", '. "$1/bin/activate"; command -v app; app', "sh", prefix).splitlines()[
        0
    ] == str(prefix / "bin/app")


def test_upgrade_and_rollback_by_reuse(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    first = install(*sample("one"), InstallOptions(prefix=prefix), now=NOW)
    second = install(*sample("two"), InstallOptions(prefix=prefix), now=LATER)
    assert (first.generation[:5], second.generation[:5]) == ("0001-", "0002-")
    assert output(prefix / "bin/app").startswith("two ")
    assert second.reused_bytes > 20000  # the library did not change
    before, after = (prefix.parent / "env.generations" / r.generation for r in (first, second))
    name = f"{SITE}/lib/big.bin"
    assert os.path.samefile(before / name, after / name)  # ext4: a hard link; else a reflink would differ
    assert verify_environment(prefix, runner=run).ok
    assert rollback(prefix, now=LATER).name == first.generation
    assert output(prefix / "bin/app").startswith("one ")
    assert verify_environment(prefix, runner=run).ok
    assert [g.live for g in generations(prefix)] == [True, False]


def test_installing_what_is_live_verifies_it(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    trusted, store = sample()
    first = install(trusted, store, InstallOptions(prefix=prefix), now=NOW)
    again = install(trusted, store, InstallOptions(prefix=prefix), now=LATER)
    assert (again.status, again.generation) == ("unchanged", first.generation)
    assert len(generations(prefix)) == 1


def test_a_drifted_environment_is_made_anew(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    trusted, store = sample()
    install(trusted, store, InstallOptions(prefix=prefix), now=NOW)
    changed = prefix / SITE / "app/late.py"
    changed.chmod(0o644)
    changed.write_text("value = 'hacked'\n")
    report = verify_environment(prefix, runner=run)
    assert report.modified == (f"{SITE}/app/late.py",)
    again = install(trusted, store, InstallOptions(prefix=prefix), now=LATER)
    assert (again.status, again.generation[:5]) == ("installed", "0002-")
    assert verify_environment(prefix, runner=run).ok


def test_content_that_was_live_before_is_switched_to(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    one, two = sample("one"), sample("two")
    first = install(*one, InstallOptions(prefix=prefix), now=NOW)
    install(*two, InstallOptions(prefix=prefix), now=NOW)
    again = install(*one, InstallOptions(prefix=prefix), now=LATER)
    assert (again.status, again.generation) == ("switched", first.generation)
    assert output(prefix / "bin/app").startswith("one ")
    assert rollback(prefix, now=LATER).name.startswith("0002-")
