"""Reading JSON objects strictly: every field typed, unknown fields refused, errors name the path.

``from_dict`` of every value in ``envbundle.spec`` reads through ``Fields``; a fault is a ``FormatError``
with code E-FORMAT and the dotted path of the field (``layers[3].list.digest``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from envbundle.errors import EnvbundleError, FormatError

from .digest import Digest

T = TypeVar("T")
_MISSING = object()


class Fields:
    """One JSON object being read. ``where`` is its path for messages."""

    def __init__(self, value: Any, where: str) -> None:
        """Accept ``value`` if it is an object with string keys, else raise ``FormatError``."""
        if not isinstance(value, Mapping):
            raise FormatError("E-FORMAT", where, expected="an object", found=_kind(value))
        self._values = dict(value)
        self._seen: set[str] = set()
        self.where = where

    def path(self, key: str) -> str:
        """Return the dotted path of ``key`` in the whole document."""
        return f"{self.where}.{key}" if self.where else key

    def _take(self, key: str, default: Any) -> Any:
        self._seen.add(key)
        value = self._values.get(key, _MISSING)
        if value is _MISSING or (value is None and default is not _MISSING):
            if default is _MISSING:
                raise FormatError("E-FORMAT", self.path(key), expected="a value", found="nothing")
            return default
        return value

    def _typed(self, key: str, kind: type[T], name: str, default: Any) -> Any:
        value = self._take(key, default)
        if value is default and default is not _MISSING:
            return value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FormatError("E-FORMAT", self.path(key), expected=name, found=_kind(value))
        return value

    def text(self, key: str, default: Any = _MISSING) -> str:
        """A string."""
        value: str = self._typed(key, str, "a string", default)
        return value

    def opt_text(self, key: str) -> str | None:
        """A string, or None where it is absent or null."""
        value: str | None = self._typed(key, str, "a string", None)
        return value

    def integer(self, key: str, default: Any = _MISSING, *, minimum: int = 0) -> int:
        """An integer of at least ``minimum``."""
        value: int = self._typed(key, int, "an integer", default)
        if value is not default and value < minimum:
            raise FormatError("E-FORMAT", self.path(key), expected=f"at least {minimum}", found=str(value))
        return value

    def opt_integer(self, key: str, *, minimum: int = 0) -> int | None:
        """An integer, or None where it is absent or null."""
        if self._values.get(key) is None:
            self._seen.add(key)
            return None
        return self.integer(key, minimum=minimum)

    def boolean(self, key: str, default: Any = _MISSING) -> bool:
        """Either true or false."""
        value: bool = self._typed(key, bool, "true or false", default)
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: Any = _MISSING) -> str:
        """One of the strings ``allowed``."""
        value = self.text(key, default)
        if value not in allowed:
            raise FormatError(
                "E-FORMAT", self.path(key), expected="one of " + ", ".join(allowed), found=repr(value)
            )
        return value

    def digest(self, key: str) -> Digest:
        """A ``sha256:<hex>`` string."""
        return self.parsed(key, Digest.parse)

    def opt_digest(self, key: str) -> Digest | None:
        """A ``sha256:<hex>`` string, or None."""
        return None if self.opt_text(key) is None else self.digest(key)

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """A string read by ``parse``; its error gains the field's path."""
        text = self.text(key)
        try:
            return parse(text)
        except EnvbundleError as fault:
            raise FormatError(
                "E-FORMAT", self.path(key), expected=fault.expected, found=fault.found or repr(text[:80])
            ) from fault

    def items(self, key: str, read: Callable[[Any, str], T], default: Any = _MISSING) -> tuple[T, ...]:
        """A list, each item read by ``read(value, path)``."""
        value = self._typed(key, list, "a list", default)
        return tuple(read(item, f"{self.path(key)}[{i}]") for i, item in enumerate(value))

    def texts(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        """A list of strings."""
        return self.items(key, read_text, default)

    def mapping(self, key: str, read: Callable[[Any, str], T], default: Any = _MISSING) -> dict[str, T]:
        """An object of any keys, each value read by ``read(value, path)``."""
        value = self._typed(key, dict, "an object", default)
        return {name: read(item, f"{self.path(key)}[{name!r}]") for name, item in value.items()}

    def raw(self, key: str, default: Any = _MISSING) -> Any:
        """The JSON value as it is."""
        return self._take(key, default)

    def done(self) -> None:
        """Refuse fields that nobody asked for."""
        unknown = sorted(set(self._values) - self._seen)
        if unknown:
            raise FormatError(
                "E-FORMAT",
                self.path(unknown[0]),
                expected="no such field",
                found=f"unknown field {unknown[0]!r}",
            )


def read_text(value: Any, where: str) -> str:
    """Read a plain string item."""
    if not isinstance(value, str):
        raise FormatError("E-FORMAT", where, expected="a string", found=_kind(value))
    return value


def read_integer(value: Any, where: str) -> int:
    """Read a plain non-negative integer item."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError("E-FORMAT", where, expected="a non-negative integer", found=_kind(value))
    return value


def read_digest(value: Any, where: str) -> Digest:
    """Read a ``sha256:<hex>`` item."""
    try:
        return Digest.parse(read_text(value, where))
    except FormatError as fault:
        raise FormatError("E-FORMAT", where, expected=fault.expected, found=fault.found) from fault


def known_format(fields: Fields, expected: str) -> None:
    """Check the ``format`` field of a document; a newer one says what to upgrade."""
    found = fields.text("format")
    if found != expected:
        raise FormatError(
            "E-FORMAT-VERSION",
            fields.path("format"),
            expected=expected,
            found=repr(found),
            hint="written by another version of envbundle: install the version that wrote it",
        )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "an integer", float: "a float", str: "a string"}
    return names.get(type(value), "a list" if isinstance(value, list) else "an object")
