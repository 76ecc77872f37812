"""First lines of scripts: which interpreter a script names, and the script as a wheel would hold it.

* A script that names an interpreter of this environment is held as ``#!python`` (the wheel format's own
  spelling), so that whoever installs it writes the right first line.
* Read forms: an absolute path, with spaces after ``#!``, quoted, with arguments, with a carriage return, and
  the ``/bin/sh`` lines that installers write where the path is long or holds a space.
* ``/usr/bin/env``, other interpreters (``/a/v2`` is not ``/a/v``) and binaries stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SCRIPT = 16 * 1024 * 1024
_QUOTED = re.compile(rb"""#![ \t]*(["'])(/[^"']+)\1[ \t]*(.*)""", re.DOTALL)
_PLAIN = re.compile(rb"#![ \t]*(/[^ \t]+)[ \t]*(.*)", re.DOTALL)
_SHELL = re.compile(rb"#![ \t]*/bin/(?:sh|dash|bash)[ \t]*\r?")
_EXEC = re.compile(
    rb"""'''(?:exec'|':')?[ \t]*(?:exec[ \t]+)?(?:"([^"]+)"|'([^']+)'|([^ \t"']+))"""
    rb"""[ \t]*(.*?)[ \t]*"\$0"[ \t]+"\$@"[ \t]*\r?"""
)
_CLOSE = re.compile(rb"[ \t]*'[ \t]*'''[ \t]*\r?")
_OURS = re.compile(r"pythonw?[0-9.]*t?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLine:
    """How a script names its interpreter: its path, what follows it, where the rest of the script begins."""

    interpreter: str
    argument: bytes
    end: int


def read_first_line(data: bytes) -> FirstLine | None:
    """Return how a script is started, or None for what is no script or names no absolute path."""
    if not data.startswith(b"#!"):
        return None
    line, end = _line(data, 0)
    if b"\0" in line:
        return None
    if _SHELL.fullmatch(line):
        second, after = _line(data, end)
        third, rest = _line(data, after)
        match = _EXEC.fullmatch(second)
        if match is None or not _CLOSE.fullmatch(third):
            return None
        path = match[1] or match[2] or match[3]
        return FirstLine(interpreter=path.decode("utf-8", "surrogateescape"), argument=match[4], end=rest)
    match = _QUOTED.fullmatch(line)
    if match is not None:
        path, argument = match[2], match[3]
    else:
        match = _PLAIN.fullmatch(line)
        if match is None:
            return None
        path, argument = match[1], match[2]
    text = path.rstrip(b"\r").decode("utf-8", "surrogateescape")
    return FirstLine(interpreter=text, argument=argument.strip(b" \t\r"), end=end)


def _line(data: bytes, start: int) -> tuple[bytes, int]:
    end = data.find(b"\n", start, start + 8192)
    return (data[start:], len(data)) if end < 0 else (data[start:end], end + 1)


def is_ours(interpreter: str, prefixes: Sequence[str]) -> bool:
    """Say whether ``interpreter`` is a Python in ``bin`` of one of ``prefixes``."""
    return any(
        interpreter.startswith(prefix + "/bin/") and _OURS.fullmatch(interpreter[len(prefix) + 5 :])
        for prefix in prefixes
    )


def as_packed(data: bytes, prefixes: Sequence[str]) -> bytes:
    """Return a script as a wheel holds it: ``#!python`` for an interpreter of this environment."""
    first = read_first_line(data)
    if first is None or not is_ours(first.interpreter, prefixes):
        return data
    tail = b" " + first.argument if first.argument else b""
    return b"#!python" + tail + b"\n" + data[first.end :]


def leaves_environment(data: bytes, prefixes: Sequence[str]) -> str:
    """Return the Python outside that a script names, '' where it names none."""
    first = read_first_line(data)
    if first is None or is_ours(first.interpreter, prefixes):
        return ""
    return first.interpreter if _OURS.fullmatch(first.interpreter.rpartition("/")[2]) else ""


def body_of(data: bytes) -> bytes:
    """Return a script without its first line, whatever that names: what two installations share."""
    first = read_first_line(data)
    if first is not None:
        return data[first.end :]
    return data.partition(b"\n")[2] if data.startswith(b"#!python") else data


def generated_body(reference: str) -> bytes:
    """Return the body of the script that an installation by envbundle writes for an entry point.

    It must be what ``envbundle.installer.fixers.entry_point`` writes (a test compares the two): a script
    with this body need not be carried.
    """
    module, _, attribute = reference.partition(":")
    if not attribute:
        return (
            "import runpy\n\n"
            'if __name__ == "__main__":\n'
            f'    runpy.run_module("{module}", run_name="__main__", alter_sys=True)\n'
        ).encode()
    return (
        "import sys\n\n"
        f"from {module} import {attribute.partition('.')[0]}\n\n"
        'if __name__ == "__main__":\n'
        f"    sys.exit({attribute}())\n"
    ).encode()
