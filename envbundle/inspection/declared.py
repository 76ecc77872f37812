"""GPU architectures that a wheel's labels claim: never evidence, always worth comparing with what is found.

Read from variant metadata (``variant.json`` in the dist-info folder, properties such as
``nvidia :: sm_arch :: 90_real``) and from what METADATA quotes of ``TORCH_CUDA_ARCH_LIST`` or
``CMAKE_CUDA_ARCHITECTURES``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, BinaryIO

from envbundle.errors import IntegrityError

from .wheel import read_member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .wheel import WheelContents

_LISTS = re.compile(
    r"(?:TORCH_CUDA_ARCH_LIST|CMAKE_CUDA_ARCHITECTURES)\s*=\s*[\"']?([0-9a-zA-Z.;,+ _-]{1,300})"
)
_DOTTED = re.compile(r"\b([1-9][0-9]?)\.([0-9])([af]?)(?:\+PTX)?(?![.0-9])")
_PLAIN = re.compile(r"(?<![.0-9])([1-9][0-9]{1,2})([af]?)(?:-(?:real|virtual))?(?![.0-9])")
_PROPERTY = re.compile(r"(?:sm_)?([1-9][0-9]{1,2})([af]?)(?:_(?:real|virtual))?")
_LIMIT = 1 << 22


def declared_archs(stream: BinaryIO, contents: WheelContents) -> tuple[str, ...]:
    """Return the architectures that the labels name, as ``sm_90a``, rising; mostly there are none."""
    found: set[tuple[int, str]] = set()
    for name in ("variant.json", "METADATA"):
        member = contents.by_name.get(f"{contents.dist_info}/{name}")
        if member is None or member.size > _LIMIT:
            continue
        try:
            text = read_member(stream, contents, member.name, limit=_LIMIT).decode("utf-8", "replace")
        except IntegrityError:
            continue  # the whole wheel was read before: it is only this member's form that is at fault
        found.update(_variant(text) if name == "variant.json" else _quoted(text))
    return tuple(f"sm_{number}{suffix}" for number, suffix in sorted(found))


def _quoted(text: str) -> Iterator[tuple[int, str]]:
    for match in _LISTS.finditer(text):
        line = match[1]
        dotted = list(_DOTTED.finditer(line))
        for one in dotted:
            yield 10 * int(one[1]) + int(one[2]), one[3]
        if not dotted:
            for one in _PLAIN.finditer(line):
                yield int(one[1]), one[2]


def _variant(text: str) -> Iterator[tuple[int, str]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    variants = document.get("variants") if isinstance(document, dict) else None
    for one in variants.values() if isinstance(variants, dict) else ():
        yield from _properties(one)


def _properties(variant: Any) -> Iterator[tuple[int, str]]:
    vendor = variant.get("nvidia") if isinstance(variant, dict) else None
    archs = vendor.get("sm_arch") if isinstance(vendor, dict) else None
    for value in archs if isinstance(archs, list) else ():
        match = _PROPERTY.fullmatch(str(value))
        if match is not None:
            yield int(match[1]), match[2]
