"""Writing a manifest as TOML that people read on: one statement a line, long lists one item a line.

``parse_manifest(render_manifest(manifest)) == manifest`` for every manifest that could be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .manifest_document import document
from .toml_positions import dotted
from .toml_writer import key_of, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .manifest import Manifest
    from .toml_positions import KeyPath

_WIDTH = 100


def render_manifest(
    manifest: Manifest, *, header: Sequence[str] = (), comments: Mapping[str, str] | None = None
) -> str:
    """Return the manifest's TOML.

    ``header`` holds lines for the top, each written behind ``#`` (a ``:schema`` line included); ``comments``
    are written above the first table of a section, by its dotted name (``"source"``, ``"target.sm_90"``).
    """
    out = [f"#{line}" if line.startswith(":") else f"# {line}".rstrip() for line in header]
    writer = _Writer(dict(comments or {}))
    value = document(manifest)
    for section, content in value.items():
        writer.section((section,), content)
    return "\n".join([*out, *([""] if out else []), *writer.lines[1:]]) + "\n"


class _Writer:
    def __init__(self, comments: dict[str, str]) -> None:
        self.lines: list[str] = []
        self._comments = comments

    def section(self, path: KeyPath, content: Any) -> None:
        if isinstance(content, list):
            for table in content:
                self._table(path, table, array=True)
        else:
            self._table(path, content, array=False)

    def _table(self, path: KeyPath, table: dict[str, Any], *, array: bool) -> None:
        inner = {key: value for key, value in table.items() if _is_section(value)}
        plain = {key: value for key, value in table.items() if key not in inner}
        if plain or array or not inner:
            self.lines.append("")
            self._comment(path)
            self.lines.append(f"[[{dotted(path)}]]" if array else f"[{dotted(path)}]")
            self.lines.extend(f"{key_of(key)} = {_value(key, value)}" for key, value in plain.items())
        for key, value in inner.items():
            self.section((*path, key), value)

    def _comment(self, path: KeyPath) -> None:
        text = self._comments.pop(dotted(path), "")
        self.lines.extend(f"# {line}".rstrip() for line in text.splitlines())


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _value(key: str, value: Any) -> str:
    line = value_of(value)
    if isinstance(value, list) and len(value) > 1 and len(key) + len(line) > _WIDTH:
        return "[\n" + "".join(f"    {value_of(item)},\n" for item in value) + "]"
    return line
