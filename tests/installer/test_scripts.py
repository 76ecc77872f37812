"""Scripts run, wherever they are installed: B22, B23, B25, B26, B28, and what a trampoline must keep."""


from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.host.run import run
from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions
from envbundle.installer.shebang import LIMIT, is_inside, read_shebang, start_with
from envbundle.installer.verify import verify_environment

from .builders import NOW, Dist, bundle, call, output

if TYPE_CHECKING:
    from pathlib import Path

ASK = "import sys; print(sys.executable, sys.argv[1:], sep='|')\n"
GENERATION = len(".generations/0001-0123456789ab")


def prefix_of(folder: Path, interpreter: int) -> Path:
    """Return a prefix for which ``<generation>/bin/python`` is ``interpreter`` bytes long."""
    fixed = len(os.fsencode(folder)) + 1 + GENERATION + len("/bin/python")
    name = "é" + "p" * (interpreter - fixed - 2)
    if len(name) < 240:
        return folder / name
    half = (len(name) - 2) // 2
    return folder / name[:half] / name[half:-1]


@pytest.mark.parametrize("line", [120, 126, 127, 128, 129, 255, 256, 257, 300])
def test_b23_first_lines_are_counted_in_bytes(tmp_path: Path, line: int) -> None:
    prefix = prefix_of(tmp_path, line - len("#!\n"))
    dist = Dist(
        name="d",
        files={"m.py": f"def main():\n    {ASK}"},
        entry_points={"point": "m:main"},
        scripts={"carried": f"#!python\n{ASK}"},
    )
    install(*bundle(dist), InstallOptions(prefix=prefix, compile=False), now=NOW)
    real = os.path.realpath(prefix)
    for name in ("point", "carried"):
        text = (prefix / "bin" / name).read_bytes()
        direct = f"#!{real}/bin/python\n".encode()
        assert len(direct) == line
        assert text.startswith(direct if line <= LIMIT else b"#!/bin/sh\n")
        assert (
            output(prefix / "bin" / name, "a b", "$HOME", "it's")
            == f"{real}/bin/python|['a b', '$HOME', \"it's\"]"
        )


def test_a_prefix_of_260_bytes_with_all_that_is_allowed(tmp_path: Path) -> None:
    prefix = tmp_path / ("long " * 20) / ("ü$(touch X)`touch Y`&;#!*?[a]{b}~<>|" + "p" * 120)
    assert len(os.fsencode(prefix)) > 260
    dist = Dist(name="d", files={"m.py": f"def main():\n    {ASK}"}, entry_points={"point": "m:main"})
    install(
        *bundle(dist, environment={"GREETING": "it's $HOME `id`"}), InstallOptions(prefix=prefix), now=NOW
    )
    real = os.path.realpath(prefix)
    assert output(prefix / "bin/point", cwd=tmp_path) == f"{real}/bin/python|[]"
    said = output(
        "sh",
        "-euc",
        '. "$1/bin/activate"; point; echo "$GREETING"; deactivate; echo "${GREETING-gone}"',
        "sh",
        prefix,
        cwd=tmp_path,
    )
    assert said.splitlines() == [f"{real}/bin/python|[]", "it's $HOME `id`", "gone"]
    assert sorted(os.listdir(tmp_path)) == [prefix.parent.name]
    assert verify_environment(prefix, runner=run).ok


OLD = "/old place/v"
FORMS = {
    "plain": (f"#!/a/v/bin/python\n{ASK}", True, []),
    "argument": (f"#!/a/v/bin/python -E\n{ASK}", True, ["-E"]),
    "version": (f"#!/a/v/bin/python3.12\n{ASK}", True, []),
    "space": (f"#! /a/v/bin/python\n{ASK}", True, []),
    "quoted": (f'#!"/a/v/bin/python"\n{ASK}', True, []),
    "placeholder": (f"#!python\n{ASK}", True, []),
    "placeholder-windowed": (f"#!pythonw -E\n{ASK}", True, ["-E"]),
    "crlf": (f"#!/a/v/bin/python\r\n{ASK}".replace("\n", "\r\n").replace("\r\r", "\r"), True, []),
    "pip-trampoline": (f"#!/bin/sh\n'''exec' \"/a/v/bin/python\" \"$0\" \"$@\"\n' '''\n{ASK}", True, []),
    "uv-trampoline": (f"#!/bin/sh\n'''exec' '/a/v/bin/python3' -E \"$0\" \"$@\"\n' '''\n{ASK}", True, ["-E"]),
    "env": (f"#!/usr/bin/env python3\n{ASK}", False, []),
    "prefix-of-the-name": (f"#!/a/v2/bin/python\n{ASK}", False, []),
    "other-program": ("#!/a/v/bin/pypy\nx", False, []),
    "shell": ("#!/bin/sh\necho hello\n", False, []),
    "binary": ("#!\0\1\2/a/v/bin/python\n", False, []),
    "no-shebang": (ASK, False, []),
    "empty": ("", False, []),
}


@pytest.mark.parametrize(("text", "changed", "words"), FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("folder", ["env", "my env"])
def test_b22_b25_b28_forms_of_the_first_line(
    tmp_path: Path, text: str, changed: bool, words: list[str], folder: str
) -> None:
    prefix = tmp_path / folder
    given = bundle(Dist(name="d", scripts={"s": text}), layout={"mode": "relocatable", "prefix": "/a/v"})
    result = install(*given, InstallOptions(prefix=prefix, compile=False), now=NOW)
    script = prefix / "bin/s"
    if not changed:
        assert script.read_bytes() == text.encode()
        return
    real = os.path.realpath(prefix)
    assert output(script, "x") == f"{real}/bin/python|['x']"
    assert ("N-SHEBANG-CRLF" in {f.code for f in result.findings}) == ("\r" in text)
    first, _, rest = script.read_bytes().partition(b"\n")
    assert b"\r" not in first
    if "\r" in text:
        assert rest.endswith(b"\r\n")
    flags = output(script.parent / "flags") if script.parent.joinpath("flags").exists() else ""
    assert flags == ""
    row = next(file for file in result.receipt.files if file.path == "bin/s")
    assert (row.fixer, row.packed is not None) == ("script", True)


def test_b28_an_env_line_with_a_carriage_return_is_left_and_told(tmp_path: Path) -> None:
    given = bundle(Dist(name="d", scripts={"s": "#!/usr/bin/env python\r\nprint(1)\r\n"}))
    result = install(*given, InstallOptions(prefix=tmp_path / "env", compile=False), now=NOW)
    assert [f.code for f in result.findings if f.subject == "bin/s"] == ["W-SHEBANG-CRLF"]
    assert (tmp_path / "env/bin/s").read_bytes().startswith(b"#!/usr/bin/env python\r\n")


def test_b22_the_old_environment_is_not_used_though_it_is_there(tmp_path: Path) -> None:
    old = tmp_path / "old"
    install(*bundle(Dist(name="d")), InstallOptions(prefix=old, compile=False), now=NOW)
    given = bundle(
        Dist(name="d", scripts={"s": f"#!{old}/bin/python\n{ASK}"}),
        layout={"mode": "relocatable", "prefix": str(old)},
    )
    new = tmp_path / "new"
    install(*given, InstallOptions(prefix=new, compile=False), now=NOW)
    assert output(new / "bin/s") == f"{os.path.realpath(new)}/bin/python|[]"


BODIES = {
    "no-docstring": (b"print(__doc__)\n", "None"),
    "docstring": (b'"""What\nit does."""\nprint(__doc__)\n', "What\nit does."),
    "raw-docstring": (b'r"""a\\b"""\nprint(__doc__)\n', "a\\b"),
    "docstring-and-future": (
        (
            b'# -*- coding: utf-8 -*-\n\n"""D\xc3\xb6c"""\nfrom __future__ import annotations\n'
            b"from __future__ import (generator_stop,\n  annotations)  # why\nprint(__doc__)\n"
        ),
        "Döc",
    ),
    "future": (b"# c\nfrom __future__ import annotations\nprint(__doc__)\n", "None"),
    "coding": (b"# vim: set fileencoding=latin-1 :\nprint('\xe9')\n", "é"),
    "crlf": (b'# c\r\n"""x"""\r\nfrom __future__ import annotations\r\nprint(__doc__)\r\n', "x"),
    "form-feed": (b'\x0c\n"""x"""\nprint(__doc__)\n', "x"),
    "docstring-on-one-line": (b"'x'; print(__doc__)\n", "x"),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("argument", ["", "-s", "-s -E"])
def test_a_trampoline_keeps_what_the_script_means(
    tmp_path: Path, body: bytes, expected: str, argument: str
) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    script = tmp_path / "script"
    script.write_bytes(start_with(str(folder / "python"), body, argument))
    script.chmod(0o755)
    finished = call(script, env={"PYTHONIOENCODING": "utf-8"})
    assert (finished.text.rstrip("\n"), finished.error_text) == (expected, "")


@given(
    st.from_regex(re.compile(r"/[a-zé$ ()&;*]{1,40}/bin/python3?", re.ASCII), fullmatch=True),
    st.sampled_from(["", "-E", "-I -s"]),
    st.sampled_from([b"", b"pass\n", b"x = 1\nprint(x)\n", b"not python at all ((\n"]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(interpreter: str, argument: str, body: bytes) -> None:
    found = read_shebang(start_with(interpreter, body, argument))
    assert found is not None
    assert (found.interpreter, found.argument, found.crlf) == (interpreter, argument, False)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_can_be_read(data: bytes) -> None:
    for text in (data, b"#!" + data, b"#!/bin/sh\n'''exec' " + data):
        found = read_shebang(text)
        assert found is None or 0 < found.head <= len(text)


@pytest.mark.parametrize(
    ("interpreter", "inside"),
    [
        ("/a/v/bin/python", True),
        ("/a/v/bin/python3.12", True),
        ("/a/v/bin/pythonw", True),
        ("/a/v2/bin/python", False),
        ("/a/v/bin/../../x/python", False),
        ("/a/v/bin/pypy3", False),
        ("/a/v/python", False),
        ("a/v/bin/python", False),
    ],
)
def test_inside_an_old_prefix(interpreter: str, inside: bool) -> None:
    assert is_inside(interpreter, ("/nowhere", "/a/v/")) is inside
