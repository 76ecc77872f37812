"""First lines of scripts: reading every form that installers wrote, writing one that runs here.

* The kernel reads 128 bytes of the first line on old systems (256 since Linux 5.1) and cuts at white space;
  there is no quoting. Where ``#!<interpreter>[ <argument>]<newline>`` has more than 127 bytes, counted in
  bytes, or the interpreter's path holds white space, a ``/bin/sh`` line starts the interpreter instead.
* Everything after the interpreter is one argument to the kernel; what has several words needs the sh line.
* A carriage return belongs to the interpreter's name for the kernel: a first line ends with a line feed.
* Read forms: ``#!python`` of the wheel format; a plain absolute path, with spaces after ``#!``, quoted, with
  arguments, with CR; the ``/bin/sh`` trampolines that pip, uv, virtualenv and distlib write.
* Left alone: ``/usr/bin/env``, interpreters outside the old prefixes (``/a/v2`` is not ``/a/v``), binaries.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .quoting import sh

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 127
_PLACEHOLDER = re.compile(r"#![ \t]*(pythonw?)(?:[ \t]+(.*))?")
_QUOTED = re.compile(r"""#![ \t]*(["'])(/[^"']+)\1(?:[ \t]+(.*))?""")
_PLAIN = re.compile(r"#![ \t]*(/[^ \t]+)(?:[ \t]+(.*))?")
_SHELL = re.compile(r"#![ \t]*/bin/(?:sh|dash|bash)[ \t]*")
_EXEC = re.compile(
    r"""'''(?:exec'|':')?[ \t]*(?:exec[ \t]+)?(?:"([^"]+)"|'([^']+)'|([^ \t"']+))"""
    r"""[ \t]*(.*?)[ \t]*"\$0"[ \t]+"\$@"[ \t]*"""
)
_END = re.compile(r"[ \t]*(?:'[ \t]*)?'''(?:; __doc__ = None)?")
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*\r?\n|[ \t]*\n")
_NEWLINE = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shebang:
    """A script's way to its interpreter, as found.

    ``interpreter`` is a path, or ``python`` where the wheel stood for any interpreter; ``argument`` what
    follows it; ``head`` the number of bytes it takes, up to where the script proper begins; ``crlf`` whether
    the first line ended with a carriage return.
    """

    interpreter: str
    argument: str
    head: int
    crlf: bool = False


def read_shebang(data: bytes) -> Shebang | None:
    """Return how the script ``data`` names its interpreter, or None where it has no such line."""
    if not data.startswith(b"#!"):
        return None
    line, end = _line(data, 0)
    if b"\0" in data[:end]:
        return None
    crlf = line.endswith("\r")
    line = line.rstrip("\r")
    if _SHELL.fullmatch(line):
        return _read_trampoline(data, end, crlf=crlf)
    for form, path_group, argument_group in ((_PLACEHOLDER, 1, 2), (_QUOTED, 2, 3), (_PLAIN, 1, 2)):
        match = form.fullmatch(line)
        if match:
            name = "python" if form is _PLACEHOLDER else match[path_group]
            return Shebang(
                interpreter=name, argument=(match[argument_group] or "").strip(), head=end, crlf=crlf
            )
    return None


def _read_trampoline(data: bytes, start: int, *, crlf: bool) -> Shebang | None:
    second, end = _line(data, start)
    match = _EXEC.fullmatch(second.rstrip("\r"))
    if match is None:
        return None
    third, after = _line(data, end)
    if not _END.fullmatch(third.rstrip("\r")):
        return None
    path = match[1] or match[2] or match[3]
    argument = match[4].strip()
    with contextlib.suppress(ValueError):  # an open quote: left for the caller to refuse
        argument = " ".join(shlex.split(argument))
    return Shebang(interpreter=path, argument=argument, head=after, crlf=crlf)


def _line(data: bytes, start: int) -> tuple[str, int]:
    """Return the line at ``start`` without its line feed, byte for character, and where the next begins."""
    end = data.find(b"\n", start, start + 8192)
    if end < 0:
        return data[start : start + 8192].decode("utf-8", "surrogateescape"), min(len(data), start + 8192)
    return data[start:end].decode("utf-8", "surrogateescape"), end + 1


def is_inside(interpreter: str, prefixes: Sequence[str]) -> bool:
    """Say whether ``interpreter`` is a Python of one of the old ``prefixes``."""
    for prefix in prefixes:
        rest = interpreter.removeprefix(prefix.rstrip("/") + "/bin/")
        if rest != interpreter and re.fullmatch(r"pythonw?[0-9.]*", rest):
            return True
    return False


def can_quote(argument: str) -> bool:
    """Say whether an interpreter's argument can stand in both forms of first line."""
    return not any(character in argument for character in "'\"\\\r\n") and argument.isprintable()


def fits(interpreter: str, argument: str) -> bool:
    """Say whether the kernel can read ``#!interpreter argument`` as one first line."""
    return len(_plain(interpreter, argument)) <= LIMIT and not any(map(str.isspace, interpreter + argument))


def _plain(interpreter: str, argument: str) -> bytes:
    return (f"#!{interpreter} {argument}" if argument else f"#!{interpreter}").encode() + b"\n"


def start_with(interpreter: str, body: bytes, argument: str = "") -> bytes:
    """Return the script whose Python text is ``body``, started by ``interpreter`` (an absolute path).

    The path holds neither quotes nor backslashes nor control characters (preflight refuses such a prefix).
    Where the kernel cannot read the line, sh finds an ``exec`` that Python takes for a string. That string
    must not become the script's docstring, nor stand before its ``__future__`` imports with another one, nor
    push a coding line out of the first two lines: see ``_weave``.
    """
    if fits(interpreter, argument):
        return _plain(interpreter, argument) + body
    words = " ".join(map(sh, (interpreter, *argument.split())))
    text = f"'''exec' {words} \"$0\" \"$@\"\n' '''"
    return b"#!/bin/sh\n" + _weave(text.encode(), body)


def _weave(text: bytes, body: bytes) -> bytes:
    """Put the string literal ``text`` into ``body`` so that the module means what it meant.

    Comments and empty lines in front stay in front: they are comments for sh too. A docstring after it is
    assigned to ``__doc__``; before ``__future__`` imports, where no assignment may stand, both strings become
    one literal and ``__doc__`` is cut right after the imports. What cannot be parsed here gets the string in
    front and nothing else.
    """
    top = _comments(body)
    tree = None if _coding(body) else _parse(body)
    if tree is None or not tree.body:
        return body[:top] + text + b"\n" + body[top:]
    first = tree.body[0]
    documented = ast.get_docstring(tree, clean=False) is not None
    start = _offset(body, first.lineno, first.col_offset)
    futures = [
        node for node in tree.body[:64] if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    if not futures:
        if not documented:
            return body[:top] + text + b"; __doc__ = None\n" + body[top:]
        return body[:top] + text + b"\n" + body[top:start] + b"__doc__ = " + body[start:]
    last = futures[-1]
    after = _offset(body, last.end_lineno or last.lineno, last.end_col_offset or 0)
    if not documented:
        return body[:top] + text + b"\n" + body[top:after] + b"; __doc__ = None" + body[after:]
    if start != top:  # something that is no comment for sh stands before the docstring
        return body[:top] + text + b"\n" + body[top:]
    cut = f"; __doc__ = __doc__[{len(ast.literal_eval(text.decode()))}:]".encode()
    return body[:top] + text + b" " + body[top:after] + cut + body[after:]


def _parse(body: bytes) -> ast.Module | None:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(body)
    return None


def _comments(body: bytes) -> int:
    """Return where the comments and empty lines at the start of ``body`` end."""
    at = 0
    while match := _COMMENT.match(body, at):
        at = match.end()
    return at


def _coding(body: bytes) -> str | None:
    """Return the coding that the first line of ``body`` (the second of the script) names, unless UTF-8."""
    match = _COOKIE.match(body)
    name = match[1].decode().lower().replace("_", "-") if match else "utf-8"
    return None if name in ("utf-8", "utf8") else name


def _offset(body: bytes, line: int, column: int) -> int:
    """Return the byte offset of a position of ``ast``: line from 1, column in UTF-8 bytes."""
    at = 0
    for _ in range(line - 1):
        match = _NEWLINE.search(body, at)
        at = match.end() if match else len(body)
    return at + column
