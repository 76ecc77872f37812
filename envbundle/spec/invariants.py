"""The kinds of invariant and their fields, as data: one row per kind.

``[[invariant]]`` entries are read by this table; the JSON Schema and ``envbundle.installer.invariants`` (one
file a kind) mirror it, and tests hold them together. A new kind is one row here and one file there.

* A field's ``shape`` says what JSON value it holds; ``check`` says what the strings in it must be.
* ``one_of`` names fields of which at least one must be there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import text_checks as is_
from .digest import Digest
from .manifest_reader import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .manifest_reader import TableReader

Shape = Literal["text", "texts", "integer", "boolean", "digests", "text-or-texts"]

_MODE = re.compile(r"0?[0-7]{3,4}")
_TOOL_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,4}")


def _mode(text: str) -> str:
    if not _MODE.fullmatch(text):
        raise is_.refuse('an octal mode in quotes, as in "0755"', shown(text))
    return text


def _tool(text: str) -> str:
    return is_.absolute_path(text) if text.startswith("/") else is_.file_name(text)


def _tool_version(text: str) -> str:
    if not _TOOL_VERSION.fullmatch(text):
        raise is_.refuse('numbers with dots, as in "12.9"', shown(text))
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as fault:
        raise is_.refuse("a regular expression", f"{shown(text)} ({fault})") from None
    return text


def _digest(text: str) -> str:
    return str(Digest.parse(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """One field of a kind. ``choices`` are all that a text may be; ``minimum`` is an integer's smallest."""

    shape: Shape
    required: bool = False
    check: Callable[[str], str] | None = None
    choices: tuple[str, ...] = ()
    minimum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRule:
    """One kind of invariant: its fields and what must be among them."""

    fields: Mapping[str, FieldRule]
    one_of: tuple[str, ...] = ()


KINDS: Mapping[str, KindRule] = {
    # a path on the target: there, of that type, with that mode, open to the user who installs
    "path": KindRule(
        fields={
            "path": FieldRule(shape="text", required=True, check=is_.absolute_path),
            "type": FieldRule(shape="text", choices=("file", "dir", "any")),
            "mode": FieldRule(shape="text", check=_mode),
            "readable": FieldRule(shape="boolean"),
            "writable": FieldRule(shape="boolean"),
        }
    ),
    # a program: a name looked up in PATH (and CUDA_HOME/bin), or an absolute path; min is compared with the
    # first dotted number that it prints when started with version-args
    "tool": KindRule(
        fields={
            "tool": FieldRule(shape="text", required=True, check=_tool),
            "min": FieldRule(shape="text", check=_tool_version),
            "version-args": FieldRule(shape="texts", check=is_.argument),
        }
    ),
    # a shared library that the host's loader must find
    "library": KindRule(fields={"soname": FieldRule(shape="text", required=True, check=is_.file_name)}),
    # a model folder: every shard of its safetensors index there with the right size, nothing incomplete
    "model": KindRule(
        fields={
            "path": FieldRule(shape="text", required=True, check=is_.absolute_path),
            "digests": FieldRule(shape="digests", check=_digest),
        }
    ),
    # the NVIDIA kernel driver
    "driver": KindRule(fields={"min": FieldRule(shape="text", required=True, check=is_.driver)}),
    # visible GPUs: how many, and what all of them are
    "gpu": KindRule(
        fields={
            "min-count": FieldRule(shape="integer", minimum=1),
            "arch": FieldRule(shape="text-or-texts", check=is_.gpu),
        },
        one_of=("min-count", "arch"),
    ),
    # free bytes on the volume that holds path (the prefix where it is not given), beyond what install needs
    "space": KindRule(
        fields={
            "bytes": FieldRule(shape="integer", required=True, minimum=1),
            "path": FieldRule(shape="text", check=is_.absolute_path),
        }
    ),
    # an environment variable that is set, and whose whole value matches a regular expression
    "env": KindRule(
        fields={
            "name": FieldRule(shape="text", required=True, check=is_.variable),
            "matches": FieldRule(shape="text", check=_pattern),
        }
    ),
}


def read_invariant(table: TableReader) -> tuple[str, dict[str, Any]]:
    """Read one ``[[invariant]]``: its kind and fields (absent ones left out); faults go to the reader's.

    An unknown or missing kind gives ``""``, and only keys that no kind has are further faults.
    """
    kind = table.text("kind", required=True, example='"path"')
    rule = KINDS.get(kind or "")
    if kind is None or rule is None:
        if kind is not None:
            expected = "one of " + ", ".join(KINDS)
            table.fault(
                "E-VALUE", "kind", expected=expected, found=shown(kind), hint=did_you_mean(kind, KINDS)
            )
        table.allow(name for known in KINDS.values() for name in known.fields)
        table.done()
        return "", {}
    values = {}
    for name, field in rule.fields.items():
        value = _read(table, name, field)
        if name in table and value is not None:
            values[name] = value
    if rule.one_of and not any(name in table for name in rule.one_of):
        table.fault("E-MISSING", rule.one_of[0], expected="one of " + ", ".join(rule.one_of), found="neither")
    table.done()
    return kind, values


def _read(table: TableReader, name: str, field: FieldRule) -> Any:
    match field.shape:
        case "text":
            return table.text(name, field.check, required=field.required, choices=field.choices)
        case "texts":
            return list(table.texts(name, field.check, required=field.required))
        case "text-or-texts":
            return list(table.text_or_texts(name, field.check, required=field.required))
        case "integer":
            return table.integer(name, minimum=field.minimum, required=field.required)
        case "boolean":
            return table.boolean(name)
        case "digests":
            return dict(table.pairs(name, is_.contained_path, field.check))
