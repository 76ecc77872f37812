"""Files of lines that people write: the ones that say something, numbered, and their quoted words."""

from __future__ import annotations

from envbundle.errors import UserInputError

_MAX_FILE = 4 * 1024 * 1024


def numbered_lines(data: bytes, source: str, code: str) -> list[tuple[int, str]]:
    """Return the lines that say something, with their numbers from 1: no blank ones, no comments.

    Raises ``UserInputError`` with ``code`` where the file is no text of reasonable size.
    """
    if len(data) > _MAX_FILE:
        raise UserInputError(code, source, expected=f"at most {_MAX_FILE} bytes", found=f"{len(data)} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise UserInputError(
            code, source, expected="UTF-8 text", found="other bytes", offset=fault.start
        ) from None
    if text.startswith("\ufeff"):
        raise UserInputError(code, source, expected="plain UTF-8", found="a byte order mark", offset=0)
    if "\0" in text:
        raise UserInputError(code, source, expected="text", found="a NUL byte", offset=data.index(b"\0"))
    stripped = ((number, line.strip(" \t\r")) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def first_word(text: str) -> tuple[str, str]:
    """Split at the first white space outside of quotes. A word that is one quoted string loses its quotes."""
    text = text.lstrip(" \t")
    quoted = False
    end = len(text)
    for at, character in enumerate(text):
        if character == '"' and (at == 0 or text[at - 1] != "\\"):
            quoted = not quoted
        elif character in " \t" and not quoted:
            end = at
            break
    if quoted:
        raise ValueError("a quote that is not closed")
    word = text[:end]
    if len(word) >= 2 and word[0] == word[-1] == '"' and '"' not in word[1:-1]:
        word = word[1:-1]
    return word, text[end:].lstrip(" \t")
