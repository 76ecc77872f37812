"""Where each key and array element of a TOML document stands.

* TOML parsers give values without positions, and an error that names no line is little help. This scanner
  walks a text that a parser has *already accepted* and notes places: it validates nothing, reads no values.
* A path is a tuple of keys and, inside arrays (of tables or not), zero-based indexes:
  ``("resolve", "requirements", 1)``, ``("overlay", 0, "path")``.
* Lines and columns count from 1; a column is a character, as the standard library's parser counts them.
* A table named in several places is where it is first named.
* Nothing here recurses, and a path longer than any document of ours ends the scan: no nesting or dotted key
  that a parser accepts can exhaust stack or memory.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from typing import NamedTuple, TypeAlias

from envbundle.errors import UserInputError

from .toml_text import read_toml
from .toml_writer import key_of

KeyPath: TypeAlias = "tuple[str | int, ...]"

_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n,]+|#[^\n]*)*")  # inside brackets: space, line ends, comments, commas
_STATEMENTS = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"{3,5}'
    r"|'''[^']*(?:'(?!'')[^']*)*'{3,5}"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9][^,\]}\s#]*|[^,\]}\s#]+")

_DEEPEST = 200


class Position(NamedTuple):
    """A place in a text; both count from 1."""

    line: int
    column: int


START = Position(1, 1)


class Block(NamedTuple):
    """A ``[table]`` or ``[[table]]`` with its header. ``end`` is the offset after its last statement."""

    path: KeyPath
    end: int


class Positions:
    """The places of one document's keys and elements; ``blocks`` are its headed tables in order."""

    def __init__(self, places: dict[KeyPath, Position], blocks: tuple[Block, ...]) -> None:
        """Hold what was scanned."""
        self.places, self.blocks = places, blocks

    def at(self, path: KeyPath) -> Position:
        """Return where ``path`` stands, or the nearest thing around it that stands somewhere."""
        for length in range(len(path), 0, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return place
        return START


def scan(text: str) -> Positions:
    """Return the positions of every key and array element of ``text``, a document that a TOML parser accepts.

    Where the text is not what it should be the scan stops and returns what it has seen so far.
    """
    scanner = _Scanner(text)
    with contextlib.suppress(_LostError):
        scanner.document()
    return Positions(scanner.places, tuple(scanner.blocks))


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: ``target.sm_90.package."a.b".exempt[0]``."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += ("." if out else "") + key_of(part)
    return out


class _LostError(Exception):
    """The text is not the document that a parser accepted."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.here = 0
        self.places: dict[KeyPath, Position] = {}
        self.blocks: list[Block] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._last: dict[KeyPath, int] = {}  # array of tables -> index of its newest table

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_STATEMENTS)
            if self.here >= len(self.text):
                return
            if self.text.startswith("[[", self.here):
                table = self._header(array=True)
                self.blocks.append(Block(table, self.here))
            elif self.text.startswith("[", self.here):
                table = self._header(array=False)
                self.blocks.append(Block(table, self.here))
            else:
                self._pair(table)
                if self.blocks:
                    self.blocks[-1] = Block(table, self.here)

    def _header(self, *, array: bool) -> KeyPath:
        self.here += 2 if array else 1
        path: KeyPath = ()
        parts = self._key()
        for number, (part, start) in enumerate(parts, 1):
            path = (*path, part)
            self._note(path, start)
            if array and number == len(parts):
                self._last[path] = self._last.get(path, -1) + 1
                path = (*path, self._last[path])
                self._note(path, start)
            elif path in self._last:
                path = (*path, self._last[path])
        self._skip(_BLANK)
        self._take("]]" if array else "]")
        return path

    def _pair(self, table: KeyPath) -> None:
        """Read ``key = value`` with everything inside the value, by an own stack of open brackets."""
        open_brackets: list[_Bracket] = []
        self._begin(self._named(table), open_brackets)
        while open_brackets:
            bracket = open_brackets[-1]
            self._skip(_BETWEEN)
            if self.text.startswith(bracket.closed_by, self.here):
                self.here += 1
                open_brackets.pop()
            elif bracket.closed_by == "]":
                path = (*bracket.path, bracket.seen)
                bracket.seen += 1
                self._note(path, self.here)
                self._begin(path, open_brackets)
            else:
                self._begin(self._named(bracket.path), open_brackets)

    def _named(self, table: KeyPath) -> KeyPath:
        """Read ``key =`` and return the key's path."""
        path = table
        for part, start in self._key():
            path = (*path, part)
            self._note(path, start)
        self._skip(_BLANK)
        self._take("=")
        self._skip(_BLANK)
        return path

    def _begin(self, path: KeyPath, open_brackets: list[_Bracket]) -> None:
        """Read a value that is no bracket, or open the bracket."""
        first = self.text[self.here : self.here + 1]
        if first in ("[", "{"):
            self.here += 1
            open_brackets.append(_Bracket(path, "]" if first == "[" else "}"))
            return
        self._skip_one(_STRING if first in ('"', "'") else _SCALAR)

    def _key(self) -> list[tuple[str, int]]:
        parts = []
        while True:
            self._skip(_BLANK)
            start = self.here
            quoted = self.text[start : start + 1] in ('"', "'")
            raw = self._skip_one(_STRING if quoted else _BARE)
            parts.append((_unquote(raw) if quoted else raw, start))
            self._skip(_BLANK)
            if not self.text.startswith(".", self.here):
                return parts
            self.here += 1

    def _note(self, path: KeyPath, offset: int) -> None:
        if len(path) > _DEEPEST:
            raise _LostError
        if path not in self.places:
            line = bisect_right(self._lines, offset)
            self.places[path] = Position(line, offset - self._lines[line - 1] + 1)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.here)
        if match:
            self.here = match.end()

    def _skip_one(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.here)
        if match is None:
            raise _LostError
        self.here = match.end()
        return match[0]

    def _take(self, expected: str) -> None:
        if not self.text.startswith(expected, self.here):
            raise _LostError
        self.here += len(expected)


class _Bracket:
    """An array or inline table whose end has not come yet."""

    __slots__ = ("closed_by", "path", "seen")

    def __init__(self, path: KeyPath, closed_by: str) -> None:
        self.path, self.closed_by, self.seen = path, closed_by, 0


def _unquote(raw: str) -> str:
    try:
        return str(read_toml(f"key = {raw}", filename="")["key"])
    except UserInputError:
        raise _LostError from None
