"""Writing text into other programs' languages so that it means exactly itself."""

from __future__ import annotations


def sh(text: str) -> str:
    """Return ``text`` as one word of the POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def csh(text: str) -> str:
    """Return ``text`` as one word of csh, which looks for ``!`` even between single quotes."""
    return "'" + text.replace("'", "'\\''").replace("!", "\\!") + "'"


def fish(text: str) -> str:
    """Return ``text`` as one word of fish, where a backslash escapes itself and the quote."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def systemd(text: str) -> str:
    """Return ``text`` as a value of an EnvironmentFile, in double quotes with C-like escapes."""
    for character in ("\\", '"', "$", "`"):
        text = text.replace(character, "\\" + character)
    return f'"{text}"'
