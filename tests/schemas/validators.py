"""Validating against the published schemas, and the mutations that parser and schema must judge alike."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from envbundle import schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

_REGISTRY: Registry[Any] = Registry().with_resources(
    [(urn, DRAFT7.create_resource(schema)) for urn, schema in schemas.registry().items()]
)


@cache
def validator(name: str) -> Draft7Validator:
    return Draft7Validator(schemas.load(name), registry=_REGISTRY)


def faults(name: str, value: Any) -> list[str]:
    """Every fault of ``value`` by the schema ``name``, as path and message; none where it is valid."""
    return [f"{fault.json_path}: {fault.message[:200]}" for fault in validator(name).iter_errors(value)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every member and item."""
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutations(value: Any) -> Iterator[tuple[str, Any]]:
    """Every structural change of one place: gone, of a type that no document has, joined by a stranger."""
    for path in places(value):
        changed = copy.deepcopy(value)
        at(changed, path[:-1])[path[-1]] = 1.5
        yield f"{path} is a float", changed
        if isinstance(path[-1], str):
            changed = copy.deepcopy(value)
            del at(changed, path[:-1])[path[-1]]
            yield f"{path} is gone", changed
        if isinstance(at(value, path), dict):
            changed = copy.deepcopy(value)
            at(changed, path)["zz_stranger"] = 1.5
            yield f"{path} has a stranger", changed
    yield "the whole has a stranger", {**value, "zz_stranger": 1.5}
