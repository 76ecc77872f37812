"""Bare hosts: Debian roots with python3 and nothing more, and one store packed elsewhere for both.

Packages come from the mirror that apt on this machine is configured for, asked at run time. Each command runs
in a mount namespace of its own, entered by chroot, so that nothing it mounts stays.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..journey.project import Project

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STICK = "/media/a stick/store"
SIGNERS = "/media/allowed_signers"
#: suite -> the Python that is its python3
SUITES = {"bookworm": "3.11", "trixie": "3.13"}


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def codes(self) -> list[str]:
        return [f["code"] for f in self.answer["findings"] if f["severity"] == "error"]


@dataclass(frozen=True, slots=True)
class Host:
    """One root. ``python`` is its python3, ``3.N``."""

    root: Path
    python: str

    @property
    def version(self) -> str:
        """The version of the bundle that was packed for it."""
        return self.python.replace(".", "_")

    @property
    def tag(self) -> str:
        return f"demo-{self.version}-sm_103"

    def run(
        self,
        *words: str | Path,
        user: int = 0,
        cwd: str = "/",
        before: str = "",
        **env: str,
    ) -> Ran:
        """Run a program in the root as ``user``; ``before`` is shell that runs first, as root, outside of it."""
        inside = {"PATH": PATH, "HOME": "/root", **env}
        named = " ".join(f"{key}={shlex.quote(value)}" for key, value in inside.items())
        command = " ".join(shlex.quote(str(word)) for word in words)
        root = shlex.quote(str(self.root))
        script = (
            f"set -e; R={root}; mount -t proc proc $R/proc; {before or ':'}; exec env -i {named} "
            f"chroot --userspec={user}:{user} --groups= $R /bin/sh -c {shlex.quote(f'cd {shlex.quote(cwd)}; exec {command}')}"
        )
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={"PATH": f"{os.environ['PATH']}:{PATH}"},
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def bare(self, *words: str | Path, pyz: str = f"{STICK}/install.pyz", **more: Any) -> Ran:
        """Run ``python3 install.pyz WORDS --json`` there."""
        return self.run("python3", pyz, *words, "--json", **more)

    def install(self, prefix: str, *words: str, **more: Any) -> Ran:
        """Install the bundle that is for it at ``prefix``."""
        words = ("--arch", self.tag, "--prefix", prefix, "--allowed-signers", SIGNERS, "--no-device", *words)
        return self.bare("install", STICK, *words, **more)

    def path(self, inside: str) -> Path:
        """Return where a path of the root is on this machine."""
        return self.root / inside.lstrip("/")


def mirror() -> str:
    """Return the mirror of Debian's packages that apt is configured for."""
    words = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN) $(RELEASE) $(REPO_URI)",
        "Created-By: Packages",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = [row.split() for row in done.stdout.splitlines()]
    found = [row[2] for row in rows if len(row) == 3 and row[0] == "Debian" and "-" not in row[1]]
    return (found or [rows[0][-1]])[0]


def make_roots(folder: Path) -> dict[str, Host]:
    """Bootstrap all suites side by side."""
    url = mirror()
    running = {}
    for suite, python in SUITES.items():
        kept = os.environ.get("ENVBUNDLE_E2E_ROOTS")  # roots of an earlier run, while tests are written
        if kept:
            words = ["cp", "-a", f"{kept}/{suite}", str(folder / suite)]
        else:
            words = ["debootstrap", "--variant=minbase", "--include=python3", suite, str(folder / suite), url]
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PATH": f"{os.environ['PATH']}:{PATH}",
                "DEBOOTSTRAP_DIR": "/usr/share/debootstrap",
            },
        )
        running[suite] = (process, Host(folder / suite, python))
    hosts = {}
    for suite, (process, host) in running.items():
        said, _ = process.communicate(timeout=900)
        assert process.returncode == 0, said[-3000:]
        hosts[suite] = host
    return hosts


def pack(folder: Path) -> tuple[Path, Path]:
    """Pack one bundle for each suite into one store; return it and the file of allowed signers.

    The example's own wheels come from a folder; those of install.pyz from an index, by way of the cache: a
    project that asks an index is packed before.
    """
    asking, project = Project.make(folder / "asking"), Project.make(folder / "project")
    project.env = {**os.environ, **project.env, "HOME": os.environ.get("HOME", "/")}
    asking.env = project.env
    for python in SUITES.values():
        for each in (asking, project):
            set_value(each, "python", python)
            set_value(each, "version", python.replace(".", "_"))
            set_value(each, "platform", "x86_64-manylinux_2_34")
        text = (
            (asking.folder / "envbundle.toml")
            .read_text()
            .replace('requirements = ["demo-app==1.0"]', 'requirements = ["packaging"]')
        )
        text = text.replace("no-index = true\n", "").partition("[[overlay]]")[0]
        (asking.folder / "envbundle.toml").write_text(text)
        for each in (asking, project):
            each.ok("lock", "--arch", "sm_103")
            answer = each.ok("pack", "--arch", "sm_103", "--key", "keys/id_ed25519")
            assert [f for f in answer["findings"] if f["code"] == "W-BOOTSTRAP"] == []
    assert answer["bootstrap"]["pythons"] == [f"{python} x86_64" for python in sorted(SUITES.values())]
    return project.folder / "dist", project.folder / "keys/allowed_signers"


def set_value(project: Project, key: str, value: str) -> None:
    """Set every ``key = ...`` of the manifest."""
    path = project.folder / "envbundle.toml"
    path.write_text(re.sub(rf"(?m)^{key} = .*$", f'{key} = "{value}"', path.read_text()))


def deliver(host: Host, store: Path, signers: Path) -> None:
    """Carry the store to a host, readable by everybody and writable by nobody but root."""
    shutil.copytree(store, host.path(STICK))
    shutil.copy(signers, host.path(SIGNERS))
