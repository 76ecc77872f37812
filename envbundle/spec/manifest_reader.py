"""Reading one table of a manifest after another while collecting every fault with its place.

* A fault never stops the reading: the reader notes it and hands back nothing (``None``, ``()``), so that all
  faults of a document come out at once.
* Codes: E-KEY (unknown key), E-MISSING, E-TYPE, E-VALUE; of a check's codes ``KEPT_CODES`` stay.
* A finding's subject is ``FILE:LINE:COLUMN: dotted.key``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

from envbundle.errors import EnvbundleError, UserInputError

from .finding import Finding
from .toml_positions import KeyPath, Position, Positions, dotted

Check: TypeAlias = Callable[[str], str]
KEPT_CODES = frozenset({"E-TARGET-NAME", "E-PREFIX-CHARS", "E-CREDENTIALS"})
_TOML_INTEGER_MAX = 2**63 - 1


class Faults:
    """The faults found so far. ``filename`` is printed in front of each."""

    def __init__(self, filename: str, positions: Positions) -> None:
        """Start without any."""
        self._filename, self._positions = filename, positions
        self._found: list[tuple[Position, KeyPath, Finding]] = []

    def add(self, code: str, path: KeyPath, *, expected: str = "", found: str = "", hint: str = "") -> None:
        """Note a fault of the value or table at ``path``."""
        place = self._positions.at(path)
        subject = f"{self._filename}:{place.line}:{place.column}: {dotted(path)}".removesuffix(": ")
        finding = Finding(
            code=code, severity="error", subject=subject, expected=expected, found=found, hint=hint
        )
        if all(finding != known for _, _, known in self._found):
            self._found.append((place, path, finding))

    def add_error(self, path: KeyPath, fault: EnvbundleError, value: str) -> None:
        """Note what a check raised about ``value``."""
        code = fault.code if fault.code in KEPT_CODES else "E-VALUE"
        self.add(code, path, expected=fault.expected, found=fault.found or shown(value), hint=fault.hint)

    def clean(self, path: KeyPath) -> bool:
        """Say whether nothing at or below ``path`` is at fault."""
        return all(faulty[: len(path)] != path for _, faulty, _ in self._found)

    def raise_any(self) -> None:
        """Raise one ``UserInputError`` with every fault in the order of the text, if there are any."""
        if self._found:
            self._found.sort(key=lambda entry: entry[0])
            raise UserInputError.of(finding for _, _, finding in self._found)


class TableReader:
    """One table: each method reads one key; ``done`` refuses the keys that nobody asked for."""

    def __init__(self, value: object, path: KeyPath, faults: Faults) -> None:
        """Accept any value; one that is no table is a fault and reads as empty."""
        self.path, self._faults = path, faults
        self._missing: list[tuple[str, str]] = []
        self._asked: list[str] = []
        self._usable = isinstance(value, dict)
        self._values: dict[str, Any] = value if isinstance(value, dict) else {}
        if not self._usable:
            faults.add("E-TYPE", path, expected="a table", found=shown(value))

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def at(self, key: str) -> KeyPath:
        """Return the path of ``key`` in the document."""
        return (*self.path, key)

    def names(self) -> list[str]:
        """Return the keys of a table whose keys are names, in the text's order; all count as asked for."""
        self._asked.extend(self._values)
        return list(self._values)

    def checked_name(self, key: str, check: Check) -> str | None:
        """Pass a key that is a name through ``check``."""
        return self._checked(self.at(key), key, check)

    def is_empty_array(self, key: str) -> bool:
        """Say whether ``key`` is there and holds ``[]``."""
        return bool(self._values.get(key) == [])

    def fault(self, code: str, key: str, *, expected: str = "", found: str = "", hint: str = "") -> None:
        """Note a fault of ``key``."""
        self._faults.add(code, self.at(key), expected=expected, found=found, hint=hint)

    def text(
        self,
        key: str,
        check: Check | None = None,
        *,
        required: bool = False,
        choices: Iterable[str] = (),
        example: str = "",
    ) -> str | None:
        """Read a string; ``choices`` are all it may be, ``check`` returns it or raises."""
        allowed = tuple(choices)
        value = self._take(key, str, "a string", required=required, example=example)
        if value is None:
            return None
        if allowed and value not in allowed:
            expected = "one of " + ", ".join(f'"{choice}"' for choice in allowed)
            self.fault(
                "E-VALUE", key, expected=expected, found=shown(value), hint=did_you_mean(value, allowed)
            )
            return None
        return self._checked(self.at(key), value, check)

    def integer(
        self, key: str, *, minimum: int, maximum: int = _TOML_INTEGER_MAX, required: bool = False
    ) -> int | None:
        """Read an integer between the two, both allowed."""
        value: int | None = self._take(key, int, "an integer", required=required)
        if value is not None and not minimum <= value <= maximum:
            limit = f"at least {minimum}" if value < minimum else f"at most {maximum}"
            self.fault("E-VALUE", key, expected=limit, found=shown(value))
            return None
        return value

    def boolean(self, key: str) -> bool | None:
        """Read true or false."""
        value: bool | None = self._take(key, bool, "true or false")
        return value

    def texts(
        self, key: str, check: Check | None = None, *, required: bool = False, distinct: bool = False
    ) -> tuple[str, ...]:
        """Read an array of strings, each passed through ``check``; faulty ones are left out."""
        value = self._take(key, list, "an array of strings", required=required)
        return () if value is None else self._texts(self.at(key), value, check, distinct=distinct)

    def text_or_texts(
        self, key: str, check: Check | None = None, *, required: bool = False
    ) -> tuple[str, ...]:
        """Read an array of distinct strings or one string, which is an array of one."""
        expected = "a string or an array of strings"
        value = self._take(key, (str, list), expected, required=required)
        if isinstance(value, str):
            text = self._checked(self.at(key), value, check)
            return () if text is None else (text,)
        return () if value is None else self._texts(self.at(key), value, check, distinct=True)

    def pairs(
        self, key: str, check_name: Check | None = None, check_value: Check | None = None
    ) -> tuple[tuple[str, str], ...]:
        """Read a table of strings, sorted by name; names and values pass through their checks."""
        table = self.table(key)
        pairs: dict[str, str] = {}
        if table is None:
            return ()
        for name in table.names():
            checked = self._checked(table.at(name), name, check_name)
            value = table.text(name, check_value)
            if checked is None or value is None:
                continue
            if checked in pairs:
                table.fault(
                    "E-CONTRADICTION", name, expected="each name once", found=f"{checked} a second time"
                )
            pairs[checked] = value
        return tuple(sorted(pairs.items()))

    def flags(self, key: str) -> tuple[tuple[str, bool], ...]:
        """Read a table of true and false, sorted by name."""
        table = self.table(key)
        if table is None:
            return ()
        values = ((name, table.boolean(name)) for name in table.names())
        return tuple(sorted((name, value) for name, value in values if value is not None))

    def table(self, key: str, *, required: bool = False) -> TableReader | None:
        """Read a table, or None where it is absent."""
        value = self._take(key, dict, f"a table: [{dotted(self.at(key))}]", required=required)
        return None if value is None else TableReader(value, self.at(key), self._faults)

    def tables(self, key: str) -> list[TableReader]:
        """Read an array of tables."""
        expected = f"an array of tables: [[{dotted(self.at(key))}]]"
        value = self._take(key, list, expected) or ()
        return [TableReader(item, (*self.at(key), i), self._faults) for i, item in enumerate(value)]

    def done(self, elsewhere: Callable[[str], str] = lambda _key: "") -> None:
        """Report unknown and missing keys; ``elsewhere(key)`` may say where an unknown key belongs."""
        forgiven: set[str] = set()
        known = sorted(set(self._asked))
        for key in self._values:
            if key in self._asked:
                continue
            near = get_close_matches(key.lower().replace("_", "-"), known, n=1, cutoff=0.6)
            forgiven.update(near)
            hint = f"did you mean `{near[0]}`?" if near else elsewhere(key)
            self.fault(
                "E-KEY", key, expected="one of " + ", ".join(known), found=f"unknown key `{key}`", hint=hint
            )
        for key, example in self._missing:
            if key not in forgiven:
                self.fault("E-MISSING", key, expected="a value", found="nothing", hint=example)

    def allow(self, keys: Iterable[str]) -> None:
        """Count ``keys`` as asked for, where nothing can be said about their values."""
        self._asked.extend(keys)

    def _take(self, key: str, kind: Any, expected: str, *, required: bool = False, example: str = "") -> Any:
        self._asked.append(key)
        if key not in self._values:
            if required and self._usable:
                self._missing.append((key, f"write {key} = {example}" if example else ""))
            return None
        value = self._values[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            hint = ""
            if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
                hint = f'write it in quotes: "{value}"'
            elif kind is list and isinstance(value, str):
                hint = "write it in brackets: [...]"
            self.fault("E-TYPE", key, expected=expected, found=shown(value), hint=hint)
            return None
        return value

    def _texts(
        self, path: KeyPath, values: list[Any], check: Check | None, *, distinct: bool
    ) -> tuple[str, ...]:
        texts: list[str] = []
        for number, value in enumerate(values):
            where = (*path, number)
            if not isinstance(value, str):
                self._faults.add("E-TYPE", where, expected="a string", found=shown(value))
                continue
            text = self._checked(where, value, check)
            if distinct and text in texts:
                self._faults.add(
                    "E-VALUE", where, expected="each one once", found=f"{shown(value)} a second time"
                )
            elif text is not None:
                texts.append(text)
        return tuple(texts)

    def _checked(self, path: KeyPath, value: str, check: Check | None) -> str | None:
        if check is None:
            return value
        try:
            return check(value)
        except EnvbundleError as fault:
            self._faults.add_error(path, fault, value)
            return None


def did_you_mean(text: str, allowed: Iterable[str]) -> str:
    """Return ``did you mean `x`?`` for the nearest of ``allowed``, or nothing where none is near."""
    near = get_close_matches(text, list(allowed), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def shown(value: object) -> str:
    """Return a value as a message shows it: kind and, where it is short, the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"{value[:77]!a}..." if len(value) > 80 else ascii(value)
    if isinstance(value, int):
        return f"the integer {value}" if abs(value) < 10**20 else "a huge integer"
    if isinstance(value, float):
        return f"the float {value}"
    if isinstance(value, (dt.date, dt.time)):
        return f"the date or time {value}"
    return "an array" if isinstance(value, list) else "a table"
