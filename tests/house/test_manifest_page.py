"""docs/manifest.md: fresh, and no key of the schema is left out."""

from __future__ import annotations

import re
from typing import Any

import make_manifest

from envbundle import schemas

PAGE = make_manifest.PAGE.read_text("utf-8")


def keys_of(value: Any) -> set[str]:
    """Every property name anywhere in a schema."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    named = set(value["properties"]) if isinstance(value.get("properties"), dict) else set()
    return named.union(*map(keys_of, value.values()))


def test_the_page_is_fresh() -> None:
    assert make_manifest.page() == PAGE, "run make docs"


def test_every_key_has_its_row_or_title() -> None:
    written = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    titles = set(re.findall(r"^##+ `\[+([\w.-]+)\]+`$", PAGE, re.MULTILINE))
    tables = {title.split(".")[0] for title in titles}
    assert keys_of(schemas.load("manifest")) - written - tables == set()


def test_every_key_says_what_it_means() -> None:
    silent = [line for line in PAGE.splitlines() if re.fullmatch(r"\| `[^`]+` \|.*\|  \|", line)]
    assert silent in ([], ["| `name` | string | required |  |"])
