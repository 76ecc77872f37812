"""[[check]]: in the new generation, without a network, before it goes live (B11 is not this: see preflight)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from envbundle.errors import HostError, IntegrityError, VerdictError
from envbundle.host.run import Finished, run
from envbundle.installer.checks import run_checks
from envbundle.installer.generations import generations
from envbundle.installer.install import install
from envbundle.installer.isolation import LAUNCHER, isolation_here, launcher
from envbundle.installer.options import InstallOptions
from envbundle.installer.verify import verify_environment

from .builders import LATER, NOW, SITE, Dist, bundle, listing, output, sample_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DENIED = {"network": "denied", "timeout": 60}
SAY = Dist(
    name="say",
    files={
        "say.py": (
            "import os, socket, sys\n"
            "def main():\n"
            "    print(os.environ['GREETING'], os.environ['HOME'] != '/root', sys.prefix)\n"
            "def network():\n"
            "    socket.create_connection(('192.0.2.1', 9), timeout=3)\n"
        ),
        "slow.py": "import time\ntime.sleep(60)\n",
        "failing.py": "raise SystemExit('no such kernel')\n",
        "writing.py": "import pathlib\npathlib.Path(__file__).with_name('left.txt').write_text('x')\n",
        "breaking.py": "import say, pathlib\np = pathlib.Path(say.__file__)\np.chmod(0o644)\np.write_text('')\n",
    },
    entry_points={"say": "say:main"},
)


def test_checks_see_the_environment_that_will_be(tmp_path: Path) -> None:
    prefix = tmp_path / "my env"
    checks = (
        {**DENIED, "import": ["app", "lib"]},
        {**DENIED, "run": ["say"]},
        {**DENIED, "run": ["sh", "-c", "say && app"]},
    )
    given = bundle(*sample_items("one"), SAY, checks=checks, environment={"GREETING": "it's me"})
    result = install(*given, InstallOptions(prefix=prefix, compile=False), now=NOW)
    real = os.path.realpath(prefix)
    assert [(c.name, c.ok) for c in result.checks] == [
        ("import app, lib", True),
        ("run say", True),
        ("run sh -c say && app", True),
    ]
    assert result.checks[1].output == f"it's me True {real}\n"
    assert {c.isolation for c in result.checks} <= {"namespace", "seccomp"}
    assert result.receipt.checks == result.checks
    assert verify_environment(prefix, runner=run).ok


FAILING = {
    "import": ({**DENIED, "import": ["failing"]}, "no such kernel"),
    "missing": ({**DENIED, "import": ["nowhere"]}, "No module named 'nowhere'"),
    "status": ({**DENIED, "run": ["sh", "-c", "exit 7"]}, "status 7"),
    "timeout": ({"network": "denied", "timeout": 1, "import": ["slow"]}, "E-TIMEOUT"),
    "no-program": ({**DENIED, "run": ["no-such-program"]}, "No such file"),
}


@pytest.mark.parametrize(("check", "said"), FAILING.values(), ids=FAILING.keys())
def test_a_failing_check_leaves_the_old_environment(
    tmp_path: Path, check: dict[str, object], said: str
) -> None:
    prefix = tmp_path / "env"
    given = bundle(*sample_items("two"), SAY, checks=(check,), version="2")
    with pytest.raises(VerdictError) as caught:
        install(*given, InstallOptions(prefix=prefix, compile=False), now=NOW)
    assert (caught.value.code, said in caught.value.found) == ("E-CHECK", True), caught.value
    assert listing(tmp_path) == {}
    install(*bundle(*sample_items("one")), InstallOptions(prefix=prefix, compile=False), now=NOW)
    with pytest.raises(VerdictError):
        install(*given, InstallOptions(prefix=prefix), now=LATER)
    assert output(prefix / "bin/app").startswith("one ")
    assert len(generations(prefix)) == 1
    assert install(*given, InstallOptions(prefix=prefix, checks=False), now=LATER).status == "installed"


def test_nothing_of_an_unsigned_bundle_runs_unasked(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    given = bundle(*sample_items("one"), SAY, checks=({**DENIED, "import": ["failing"]},), unsigned=True)
    result = install(*given, InstallOptions(prefix=prefix, compile=False), now=NOW)
    assert (result.checks, result.receipt.trust) == ((), "unsigned")
    assert "W-UNSIGNED" in {finding.code for finding in result.receipt.findings}
    with pytest.raises(VerdictError):
        install(*given, InstallOptions(prefix=tmp_path / "other", run_checks=True), now=NOW)


def test_what_a_check_leaves_is_removed_and_told(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    given = bundle(SAY, checks=({**DENIED, "import": ["writing"]},))
    result = install(*given, InstallOptions(prefix=prefix, compile=False), now=NOW)
    assert [f.subject for f in result.findings if f.code == "W-CHECK-WROTE"] == [f"{SITE}/left.txt"]
    assert verify_environment(prefix, runner=run).ok


def test_a_check_that_changes_the_environment_is_refused(tmp_path: Path) -> None:
    given = bundle(SAY, checks=({**DENIED, "import": ["breaking"]},))
    with pytest.raises(IntegrityError) as caught:
        install(*given, InstallOptions(prefix=tmp_path / "env", compile=False), now=NOW)
    assert caught.value.code == "E-STAGE"
    assert listing(tmp_path) == {}


LOOPBACK = (
    "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\n"
    "print('loopback')\n"
)
OUTSIDE = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\nprint('out')\n"
LOCAL = "import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))\n"


def isolated(way: str, code: str) -> Finished:
    return run([*launcher(sys.executable, way), sys.executable, "-c", code], timeout=60)  # type: ignore[arg-type]


@pytest.mark.e2e
def test_a_namespace_has_loopback_and_nothing_else() -> None:
    assert isolation_here(sys.executable, run) == "namespace", "this system forbids network namespaces"
    assert isolated("namespace", LOOPBACK).text == "loopback\n"
    assert "unreachable" in isolated("namespace", OUTSIDE).error_text
    assert isolated("open", OUTSIDE).text == "out\n"


def test_a_seccomp_filter_has_local_sockets_alone() -> None:
    assert isolated("seccomp", LOCAL).text == "b'x'\n"
    for code in (OUTSIDE, LOOPBACK):
        finished = isolated("seccomp", code)
        assert finished.status != 0
        assert "PermissionError" in finished.error_text
    inherited = (
        "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
    )
    finished = run(
        [*launcher(sys.executable, "seccomp"), sys.executable, "-c", inherited, OUTSIDE], timeout=60
    )
    assert finished.status != 0


def test_no_isolation_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)

    def nothing_granted(argv: Sequence[str | Path], **more: object) -> Finished:
        if LAUNCHER in argv and argv[-1] == "probe":
            return Finished(status=0, stdout=b"none\n", stderr=b"")
        return run(argv, **more)  # type: ignore[arg-type]

    checks: list[Mapping[str, object]] = [{**DENIED, "run": ["true"]}]
    with pytest.raises(HostError) as caught:
        run_checks(tmp_path, checks, {}, runner=nothing_granted)
    assert caught.value.code == "E-NO-ISOLATION"
    (one,) = run_checks(tmp_path, [{"network": "allowed", "run": ["true"]}], {}, runner=nothing_granted)
    assert (one.ok, one.isolation) == (True, "none")
