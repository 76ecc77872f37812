"""Cases of environments at a new place: first lines of scripts, spaces, modes; every script is run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .kit import PYTHON, SITE, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOW = "import sys\nprint(sys.executable)\nprint(sys.prefix)\nprint(sys.argv[1:])\n"
SCRIPTS = {
    "by-python": f"#!python\n{SHOW}",
    "by-pythonw": f"#!pythonw\n{SHOW}",
    "with-argument": f"#!python -E\n{SHOW}",
    "crlf": f"#!python\r\n{SHOW}",
    "crlf-all": f"#!python\n{SHOW}".replace("\n", "\r\n"),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """One project whose wheel has every shape of script, packed once."""
    case = Case.make(tmp_path_factory.mktemp("packed"))
    case.wheel(
        "app",
        "1.0",
        {
            "app/__init__.py": f"def main():\n    {SHOW.replace(chr(10), chr(10) + '    ')}\n",
            "app/tools/ptxas": "#!/bin/sh\necho ptxas\n",
            "app/data.txt": "x",
        },
        entry_points={"console_scripts": {"entry": "app:main"}, "gui_scripts": {"entry-gui": "app:main"}},
        scripts={
            **SCRIPTS,
            "sh": "#!/bin/sh\necho sh $0\n",
            "env-python": f"#!/usr/bin/env python\n{SHOW}",
            "env-crlf": "#!/usr/bin/env python\r\nprint(1)\r\n",
            "binary": b"#!\0\1\2\xff",
        },
        modes={"app/tools/ptxas": 0o755},
    )
    case.manifest("app==1.0", gpu="none")
    text = (case.folder / "envbundle.toml").read_text().replace("[target.none]", "[target.t]")
    (case.folder / "envbundle.toml").write_text(text)
    case.packed()
    return case


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """Another environment, first on PATH, whose interpreter must never be the one that runs."""
    folder = tmp_path / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    yield folder


def _install(case: Case, prefix: Path, *words: str) -> Path:
    done = case.run("install", case.store, "--prefix", prefix, "--no-device", "--no-compile", *words)
    assert done.status == 0, (done.answer, done.err)
    return prefix


def _says(script: Path, *words: str, **env: str) -> list[str]:
    done = subprocess.run([script, *words], capture_output=True, text=True, check=False, env={**os.environ, **env})
    assert done.returncode == 0, (script, done.stderr)
    return done.stdout.splitlines()


def _runs_new(prefix: Path, script: str, **env: str) -> None:
    executable, where, words = _says(prefix / "bin" / script, "a b", "$(touch X)", "'", **env)
    assert Path(executable).parent.resolve() == (prefix / "bin").resolve(), script
    assert Path(where).resolve() == prefix.resolve(), script
    assert words == str(["a b", "$(touch X)", "'"])


ALL = ("entry", "entry-gui", *SCRIPTS)


def test_B22_every_script_runs_the_new_interpreter(packed: Case, tmp_path: Path, old: Path) -> None:
    """Installed here, then there; the first place goes on existing, and an old venv is first on PATH."""
    first, second = _install(packed, tmp_path / "a/v"), _install(packed, tmp_path / "b/v")
    env = {"PATH": f"{old}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(old)}
    for script in ALL:
        _runs_new(second, script, **env)
        _runs_new(first, script, **env)
    for path in sorted((second / "bin").iterdir()):
        data = path.read_bytes()
        assert str(first).encode() not in data, path
        assert str(packed.root / "project").encode() not in data, path
        assert str(sys.prefix).encode() + b"/bin" not in data.split(b"\n")[0], path


def test_B22_with_the_old_place_gone(packed: Case, tmp_path: Path) -> None:
    first = _install(packed, tmp_path / "a/v")
    second = _install(packed, tmp_path / "b/v")
    for path in (first, first.with_name("v.generations")):
        path.rename(path.with_name(path.name + ".gone"))
    for script in ALL:
        _runs_new(second, script)


def _prefix_of(base: Path, length: int, letter: str) -> Path:
    """Return a prefix with a first line of ``length`` bytes, newline counted, in a naive installer."""
    want = length - len(b"#!" + b"/bin/python\n") - len(os.fsencode(base)) - 1
    name = letter * (want // len(letter.encode()))
    name += "y" * (want - len(os.fsencode(name)))
    parts, rest = [], name
    while len(rest.encode()) > 100:
        parts.append(rest[:40])
        rest = rest[41:]
        want_rest = want - sum(len(p.encode()) + 1 for p in parts)
        rest = (letter * 200)[: want_rest // len(letter.encode())]
        rest += "y" * (want_rest - len(rest.encode()))
    prefix = base.joinpath(*parts, rest)
    assert len(b"#!" + os.fsencode(prefix) + b"/bin/python\n") == length
    return prefix


@pytest.mark.parametrize("letter", ["p", "\u00fc"], ids=["ascii", "non-ascii"])
@pytest.mark.parametrize("length", [126, 127, 128, 129, 255, 256, 257, 300])
def test_B23_shebangs_of_every_length(packed: Case, length: int, letter: str) -> None:
    import shutil
    import tempfile

    base = Path(tempfile.mkdtemp(prefix="s"))
    try:
        prefix = _prefix_of(base, length, letter)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        _install(packed, prefix)
        for script in ("entry", "by-python", "crlf"):
            _runs_new(prefix, script)
            first = (prefix / "bin" / script).read_bytes().split(b"\n")[0]
            assert len(first) + 1 <= 127, (length, first)
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("name", ["my env", " lead", "tab\u00a0", "a  b", "-dash", "%s", "a&b;c", "(x)", "*", "~", "$HOME", "a#b", "ünï"])
def test_B26_prefixes_that_a_shell_would_take_apart(packed: Case, tmp_path: Path, name: str) -> None:
    prefix = _install(packed, tmp_path / name)
    for script in ALL:
        _runs_new(prefix, script)
    code = "import sys; print(sys.executable); print(sys.prefix)"
    for activate in (f'. "{prefix}/bin/activate"', f'cd "{tmp_path}" && . "./{name}/bin/activate"'):
        quoted = activate.replace("$HOME", "\\$HOME")
        for shell in ("/bin/sh", "/bin/bash"):
            done = subprocess.run([shell, "-c", f"{quoted} && python -c '{code}' && entry x"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (shell, done.stderr)
            assert Path(done.stdout.splitlines()[1]).resolve() == prefix.resolve()
    packed.ok("verify", prefix)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, f"{name}.generations"])


def test_B28_crlf_becomes_lf_in_the_first_line_alone(packed: Case, tmp_path: Path) -> None:
    done = packed.run("install", packed.store, "--prefix", tmp_path / "env", "--no-device")
    assert done.status == 0
    data = (tmp_path / "env/bin/crlf-all").read_bytes()
    first, _, rest = data.partition(b"\n")
    assert not first.endswith(b"\r")
    assert rest.count(b"\r\n") == SHOW.count("\n")
    told = [f["subject"] for f in done.findings]
    assert [s for s in told if "crlf" in s], done.findings
    # `env python\r` belongs to who wrote it: said, and left as it is
    assert (tmp_path / "env/bin/env-crlf").read_bytes() == b"#!/usr/bin/env python\r\nprint(1)\r\n"
    assert any("env-crlf" in s for s in told), done.findings


def test_scripts_that_are_not_pythons_stay_as_they_are(packed: Case, tmp_path: Path) -> None:
    prefix = _install(packed, tmp_path / "env")
    assert _says(prefix / "bin/sh")[0].startswith("sh ")
    assert (prefix / "bin/binary").read_bytes() == b"#!\0\1\2\xff"
    assert (prefix / "bin/env-python").read_bytes().startswith(b"#!/usr/bin/env python\n")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000, 0o777])
def test_B44_modes_hold_whatever_the_umask_is(packed: Case, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        prefix = _install(packed, tmp_path / "env")
    finally:
        os.umask(before)
    site = prefix / SITE
    assert stat.S_IMODE((site / "app/tools/ptxas").stat().st_mode) in (0o755, 0o555)
    assert _says(site / "app/tools/ptxas") == ["ptxas"]
    assert stat.S_IMODE((site / "app/data.txt").stat().st_mode) in (0o644, 0o444)
    for path in (prefix.resolve(), *prefix.resolve().rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            continue
        assert not mode & 0o7022, (path, oct(mode))
        assert mode & 0o444 == 0o444, (path, oct(mode))
        if path.is_dir():
            assert mode & 0o111 == 0o111, (path, oct(mode))
    packed.ok("verify", prefix)
    (site / "app/tools/ptxas").chmod(0o644)
    done = packed.run("verify", prefix)
    assert (done.status, done.answer["files"]["modified"]) == (3, [f"{SITE}/app/tools/ptxas"])


def test_B44_a_compiler_that_cannot_be_started_is_told(case: Case) -> None:
    """A zip without Unix modes, and a program that the loader of CUDA code will start."""
    from ..builders import shared_object

    case.wheel("app", "1.0", {"app/bin/ptxas": shared_object(), "app/bin/readme": "x"})
    case.manifest("app==1.0")
    case.locked()
    found = case.ok("pack", "--key", "key").one("W-MODE")
    assert "app/bin/ptxas" in found["subject"]
    case.installed()
    assert stat.S_IMODE((case.prefix / SITE / "app/bin/ptxas").stat().st_mode) & 0o111 == 0


def test_B37_bytecode_of_the_old_source_is_never_used(case: Case) -> None:
    """Same size, same time, other text: the patched value is what the environment answers."""
    case.wheel("app", "1.0", {"app/__init__.py": "", "app/a.py": "value = 1\n"})
    patched = case.overlay("app", {"app/a.py": "value = 2\n"}) / "app/a.py"
    os.utime(patched, (315532800, 315532800))
    case.manifest("app==1.0", more='[[overlay]]\ndistribution = "app"\npath = "overlays/app"')
    case.packed()
    prefix = case.installed()
    done = subprocess.run([prefix / "bin/python", "-c", "import app.a; print(app.a.value)"], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    caches = list(prefix.resolve().rglob("__pycache__/*.pyc"))
    assert caches
    assert all(int.from_bytes(path.read_bytes()[4:8], "little") == 3 for path in caches)  # checked by hash
    assert PYTHON
