"""``kind = "model"``: every shard of a safetensors model is in its folder, complete.

A safetensors file says how long it is: 8 bytes little-endian length of a JSON header, then the header, whose
``data_offsets`` end where the file does. Unfinished downloads (``*.incomplete``, ``*.part``) are faults.
"""

# ruff: noqa: PTH208 - names of a folder, as text
from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from envbundle.installer.facts import HostFacts

_INDEX = "model.safetensors.index.json"
_HEADER_LIMIT = 100 * 1024 * 1024


def check(fields: Mapping[str, Any], facts: HostFacts, environment: Mapping[str, str]) -> list[Finding]:  # noqa: ARG001
    """See ``Invariant``."""
    folder = Path(str(fields.get("path", "")))
    try:
        return list(_faults(folder, dict(fields.get("digests") or {})))
    except OSError as fault:
        return [_fault(folder, "a folder that can be read", fault.strerror or str(fault))]


def _faults(folder: Path, digests: dict[str, Any]) -> Iterator[Finding]:
    if not folder.is_dir():
        yield _fault(folder, "a model's folder", "nothing" if not folder.exists() else "no folder")
        return
    for name in sorted(os.listdir(folder)):
        if name.endswith((".incomplete", ".part", ".tmp")):
            yield _fault(folder / name, "a finished download", "an unfinished one")
    for shard in _shards(folder):
        path = folder / shard
        if not path.is_file():
            yield _fault(path, "a shard that the index names", "nothing")
            continue
        expected, size = _expected_size(path), path.stat().st_size
        if expected != size:
            yield _fault(path, f"{expected} bytes" if expected else "a safetensors header", f"{size} bytes")
    for name, digest in sorted(digests.items()):
        path = folder / name
        found = f"sha256:{_hash(path)}" if path.is_file() else "nothing"
        if found != digest:
            yield _fault(path, str(digest), found)


def _shards(folder: Path) -> list[str]:
    index = folder / _INDEX
    if not index.is_file():
        return sorted(path.name for path in folder.glob("*.safetensors"))
    try:
        weights = json.loads(index.read_text("utf-8"))["weight_map"]
        return sorted({str(name) for name in weights.values() if "/" not in str(name)})
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise OSError(0, f"{_INDEX} is damaged: {fault}") from fault


def _expected_size(path: Path) -> int | None:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _HEADER_LIMIT:
            return None
        try:
            header = json.loads(stream.read(length))
            ends = [int(row["data_offsets"][1]) for name, row in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return None
    return 8 + length + max(ends, default=0)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fault(path: Path, expected: str, found: str) -> Finding:
    return Finding(
        code="E-MODEL",
        severity="error",
        subject=str(path),
        expected=expected,
        found=found,
        hint="fetch the model again; envbundle never carries it",
    )
