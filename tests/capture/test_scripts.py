"""First lines of scripts (B25), and what an installation writes for an entry point."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbundle.installer.fixers import entry_point
from envbundle.installer.fixers.interface import Place, Subject
from envbundle.installer.shebang import start_with
from envbundle.resolver.capture.scripts import (
    as_packed,
    body_of,
    generated_body,
    leaves_environment,
    read_first_line,
)
from envbundle.spec.layer import LayerEntry

PREFIXES = ("/a/v", "/real/v")
OURS = [
    pytest.param(b"#!/a/v/bin/python\n", b"#!python\n", id="plain"),
    pytest.param(b"#!/real/v/bin/python\n", b"#!python\n", id="real path"),
    pytest.param(b"#!/a/v/bin/python -E\n", b"#!python -E\n", id="argument"),
    pytest.param(b"#!/a/v/bin/python3.12\n", b"#!python\n", id="version"),
    pytest.param(b"#! /a/v/bin/python\n", b"#!python\n", id="space"),
    pytest.param(b'#!"/a/v/bin/python"\n', b"#!python\n", id="quoted"),
    pytest.param(b"#!/a/v/bin/python\r\n", b"#!python\n", id="carriage return"),
    pytest.param(
        b"#!/bin/sh\n'''exec' '/a/v/bin/python' \"$0\" \"$@\"\n' '''\n", b"#!python\n", id="uv's long line"
    ),
    pytest.param(
        b"#!/bin/sh\n'''exec' /a/v/bin/python \"$0\" \"$@\"\n' '''\n", b"#!python\n", id="pip's long line"
    ),
]
THEIRS = [
    pytest.param(b"#!/usr/bin/env python\n", "", id="env"),
    pytest.param(b"#!/a/v2/bin/python\n", "/a/v2/bin/python", id="prefix of the name only"),
    pytest.param(b"#!/usr/bin/python3\n", "/usr/bin/python3", id="another python"),
    pytest.param(b"#!/bin/bash\n", "", id="shell"),
    pytest.param(b"#!/a/v/bin/tool\n", "", id="another program of ours"),
    pytest.param(b"#!\0\0/a/v/bin/python\n", "", id="a binary that begins with #!"),
    pytest.param(b"\x7fELF", "", id="ELF"),
    pytest.param(
        b"#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
        "",
        id="relocatable",
    ),
]


@pytest.mark.parametrize(("line", "packed"), OURS)
def test_our_interpreter_becomes_the_wheel_formats(line: bytes, packed: bytes) -> None:
    assert as_packed(line + b"print(1)\n", PREFIXES) == packed + b"print(1)\n"
    assert body_of(line + b"print(1)\n") == b"print(1)\n"
    assert leaves_environment(line, PREFIXES) == ""


@pytest.mark.parametrize(("line", "outside"), THEIRS)
def test_all_else_stays(line: bytes, outside: str) -> None:
    assert as_packed(line + b"print(1)\n", PREFIXES) == line + b"print(1)\n"
    assert leaves_environment(line + b"print(1)\n", PREFIXES) == outside


@pytest.mark.parametrize("reference", ["pkg.mod:main", "pkg:App.run", "pkg.cli"])
def test_an_entry_points_script_is_what_an_installation_writes(reference: str) -> None:
    entry = LayerEntry(path="scripts/x", type="entry-point", mode=0o755, reference=reference)
    place = Place(interpreter="/p/bin/python", old_prefixes=(), site="", files_of=lambda _: ())
    written = entry_point.fix(Subject(path="bin/x", entry=entry, layer=0, data=b""), place).data
    assert body_of(written) == generated_body(reference)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    first = read_first_line(b"#!" + data)
    assert first is None or 0 <= first.end <= len(data) + 2
    assert as_packed(b"#!" + data, ()) == b"#!" + data


@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=80).map(str.encode))
def test_what_the_installer_starts_is_read_back(body: bytes) -> None:
    written = start_with("/a/v/bin/python", b"x = 1\n" + body)
    assert as_packed(written, PREFIXES) == b"#!python\nx = 1\n" + body
