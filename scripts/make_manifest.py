"""Write docs/manifest.md, the reference of every key, from envbundle/schemas/manifest.schema.json.

The schema is proven to agree with the parser, so the page says what the parser takes. With ``--check``
nothing is written and the exit status is 1 where the page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from envbundle import schemas

PAGE = Path(__file__).resolve().parent.parent / "docs" / "manifest.md"
INTRO = """\
# Manifest: every key of `envbundle.toml`

<!-- Written by `make docs` from envbundle/schemas/manifest.schema.json: edit that. -->

Unknown keys are errors; each fault names file, line, column, the dotted key, what was found and what is
allowed. Paths are relative to the manifest's folder. `envbundle init` writes a commented file to start from,
with the schema beside it for editors (`#:schema`). What parts mean
together: [manifest-rules.md](manifest-rules.md). A complete example: [format.md](format.md#manifest).
"""
Schema = dict[str, Any]


class Reference:
    """The page being written from one schema."""

    def __init__(self, schema: Schema) -> None:
        """Start from the whole schema, whose definitions the parts refer to."""
        self._schema = schema
        self._lines = [INTRO]

    def page(self) -> str:
        """Return the whole page: one section for each top-level table."""
        for name, part in self._schema["properties"].items():
            self._section(name, part)
        return "\n".join(self._lines).rstrip() + "\n"

    def _section(self, name: str, part: Schema) -> None:
        value = self._resolve(part)
        if value.get("type") == "array":
            self._table(f"[[{name}]]", self._resolve(value["items"]), value.get("description", ""))
        elif "properties" in value:
            self._table(f"[{name}]", value, "")
        elif name in ("target", "package"):
            row = self._resolve(value["additionalProperties"])
            self._table(f"[{name}.NAME]", row, value.get("description", ""))
        else:
            self._lines += [f"## `[{name}]`", "", value.get("description", ""), ""]

    def _table(self, title: str, value: Schema, text: str) -> None:
        self._lines += [f"## `{title}`", "", text or value.get("description", ""), ""]
        self._rows(value)
        for key, item in value.get("properties", {}).items():
            inner = self._resolve(item)
            row = self._resolve(inner.get("items", {})) if inner.get("type") == "array" else inner
            if "properties" in row:
                heading = f"{title.strip('[]')}.{key}"
                brackets = f"[[{heading}]]" if inner.get("type") == "array" else f"[{heading}]"
                self._lines += [f"### `{brackets}`", "", inner.get("description", ""), ""]
                self._rows(row)
        for case in value.get("allOf", []):
            then = case["then"]
            kind = case["if"]["properties"]["kind"]["const"]
            self._lines += [f'### `kind = "{kind}"`', "", then.get("description", ""), ""]
            self._rows(then)

    def _rows(self, value: Schema) -> None:
        required = set(value.get("required", ()))
        self._lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key, item in value.get("properties", {}).items():
            if item is True:  # said by the part that this one narrows
                continue
            part = self._resolve(item)
            default = (
                "required" if key in required else _written(part["default"]) if "default" in part else ""
            )
            meaning = part.get("description", "").replace("|", "\\|")
            if part.get("examples"):
                meaning = f"{meaning} As {_written(part['examples'][0])}".strip()
            self._lines.append(f"| `{key}` | {self._type(part)} | {default} | {meaning} |")
        self._lines.append("")

    def _type(self, part: Schema) -> str:
        if "enum" in part:
            return ", ".join(_written(value) for value in part["enum"])
        if "oneOf" in part and "type" not in part:
            return " or ".join(dict.fromkeys(self._type(self._resolve(case)) for case in part["oneOf"]))
        kind = part.get("type")
        if kind == "array":
            items = self._resolve(part.get("items", {}))
            return "tables" if items.get("type") == "object" else "list of strings"
        if kind == "object":
            return "table"
        return {"boolean": "true, false", None: "string"}.get(kind, str(kind))

    def _resolve(self, part: Schema) -> Schema:
        """Return a part with its references followed; what the part itself says wins."""
        merged: Schema = {}
        for reference in [part, *part.get("allOf", ())]:
            if isinstance(reference, dict) and "$ref" in reference:
                name = reference["$ref"].rpartition("/")[2]
                merged |= self._resolve(self._schema["definitions"][name])
        return merged | {key: value for key, value in part.items() if key != "$ref"}


def _written(value: object) -> str:
    text = (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
    return f"`{text}`"


def page() -> str:
    """Return the page."""
    return Reference(schemas.load("manifest")).page()


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` say that it is stale."""
    text = page()
    if "--check" in argv:
        fresh = PAGE.is_file() and PAGE.read_text("utf-8") == text
        if not fresh:
            print("docs/manifest.md is stale: run make docs")
        return 0 if fresh else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
