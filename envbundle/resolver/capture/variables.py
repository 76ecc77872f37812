"""Environment variables worth carrying: from an ``*_env.sh`` beside the environment, from a running server.

* An environment file is read, never run: ``export A=b``, ``A=b``, quotes, ``$A`` and ``${A:-b}`` of what the
  file itself set before. A line that needs a shell is named and left out.
* Names that look like secrets are dropped and named; values are never shown in that case.
* What a session or an installation sets by itself (PATH, HOME, VIRTUAL_ENV ...) is not carried.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECRET = re.compile(r"TOKEN(?!IZER)|SECRET|KEY|PASSW|CREDENTIAL|PRIVATE|AUTH(?!OR)|COOKIE|SESSION")
_SESSION = re.compile(
    r"""
      PATH | HOME | USER | LOGNAME | SHELL | PWD | OLDPWD | SHLVL | _ | TERM | COLORTERM | TERM_.* | LANG
    | LANGUAGE | LC_.* | TZ | MAIL | HOSTNAME | HOST | DISPLAY | WAYLAND_.* | EDITOR | VISUAL | PAGER | LESS.*
    | LS_COLORS | PS[0-9] | PROMPT.* | TMUX.* | STY | WINDOWID | XDG_.* | DBUS_.* | SSH_.* | SUDO_.* | GPG_.*
    | INVOCATION_ID | JOURNAL_STREAM | SYSTEMD_.* | NOTIFY_SOCKET | LISTEN_.* | MAINPID | MANAGERPID
    | CREDENTIALS_DIRECTORY | VIRTUAL_ENV.* | CONDA_.* | PYENV_.* | UV | UV_.* | PIP_.* | POETRY_.*
    | PYTHONHOME | PYTHONUSERBASE | KUBERNETES_.* | .*_SERVICE_(HOST|PORT.*) | container | DEBIAN_FRONTEND
    | (HTTP|HTTPS|FTP|NO|ALL)_PROXY | (http|https|ftp|no|all)_proxy | BASH_.* | ENV | TMPDIR
    | .*_PORT_[0-9]+_(TCP|UDP).* | MEMORY_PRESSURE_.* | GIT_.*
    """,
    re.VERBOSE,
)
_LINE = re.compile(r"(?:export[ \t]+|declare[ \t]+-x[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}$]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
_LISTS = ("LD_LIBRARY_PATH", "PYTHONPATH", "LIBRARY_PATH", "CPATH", "LD_PRELOAD")


@dataclass(slots=True, kw_only=True)
class Variables:
    """Variables to carry, and what is not carried: names that look secret, others with a reason."""

    values: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Variables) -> None:
        """Lay another set over this one."""
        self.values |= other.values
        self.secrets = sorted({*self.secrets, *other.secrets})
        self.skipped += other.skipped


def is_secret(name: str) -> bool:
    """Say whether a variable's name looks like that of a secret."""
    return _SECRET.search(name.upper()) is not None


def is_session(name: str) -> bool:
    """Say whether a variable belongs to a login, a supervisor or an installation."""
    return _SESSION.fullmatch(name) is not None


def keep(values: Mapping[str, str]) -> Variables:
    """Return those variables of a process that are worth carrying."""
    found = Variables()
    for name, value in sorted(values.items()):
        if is_session(name):
            continue
        if is_secret(name):
            found.secrets.append(name)
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not _plain(value):
            found.skipped.append((ascii(name)[:80], "a name or value of more than one plain line"))
        else:
            found.values[name] = value
    return found


def read_env_file(text: str, prefixes: Sequence[str]) -> Variables:
    """Read an environment file; ``prefixes`` are the absolute paths of the environment."""
    found = Variables()
    seen: dict[str, str] = {"VIRTUAL_ENV": prefixes[0]} if prefixes else {}
    for raw in _logical_lines(text):
        line = raw.strip().rstrip(";")
        if not line or line.startswith(("#", ":")):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            if not re.fullmatch(r"(export[ \t]+[A-Za-z_][\w \t]*)|set[ \t].*|unset[ \t].*", line):
                found.skipped.append((line[:80], "a line that only a shell understands"))
            continue
        name, value = match[1], _value(match[2], match[1], seen)
        if value is None:
            found.skipped.append((name, "a value that only a shell can work out"))
            continue
        seen[name] = value
        if is_secret(name):
            found.secrets.append(name)
        elif is_session(name):
            continue
        elif not _plain(value):
            found.skipped.append((name, "a value of more than one plain line"))
        else:
            found.values[name] = value
    return found


def _logical_lines(text: str) -> list[str]:
    return text.replace("\\\r\n", "").replace("\\\n", "").splitlines()


def _value(text: str, name: str, seen: Mapping[str, str]) -> str | None:
    """Return a shell word's value; None where it needs a shell, or more of the environment than is known."""
    text = text.strip()
    single = len(text) > 1 and text[0] == text[-1] == "'" and "'" not in text[1:-1]
    if single:
        return text[1:-1]
    if "`" in text or "$(" in text or "<(" in text:
        return None
    unknown: list[str] = []

    def replace(match: re.Match[str]) -> str:
        reference = match[1] or match[3]
        if reference in seen:
            return seen[reference]
        if match[2] is not None:
            return match[2]
        if reference == name and name in _LISTS:
            return ""  # what was there before: nothing, where an installation starts
        unknown.append(reference)
        return ""

    expanded = _REFERENCE.sub(replace, text)
    if unknown or "$" in expanded:
        return None
    try:
        words = shlex.split(expanded, comments=True)
    except ValueError:
        return None
    if len(words) > 1:
        return None
    value = words[0] if words else ""
    return ":".join(part for part in value.split(":") if part) if name in _LISTS else value


def _plain(value: str) -> bool:
    return (all(ord(c) >= 32 and ord(c) != 127 for c in value) and value.isprintable()) or value == ""
