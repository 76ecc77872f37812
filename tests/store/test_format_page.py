"""docs/format.d/store.md: its examples are read by the program, and belong together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from envbundle.spec.digest import Digest
from envbundle.store.bundle import ROLES, check_image
from envbundle.store.codec import codec_line
from envbundle.store.oci import LAYOUT, MAX_INDEX, MAX_MANIFEST, ImageIndex, ImageManifest
from envbundle.store.protocol import MAX_BLOB

PAGE = (Path(__file__).parents[2] / "docs" / "format.d" / "store.md").read_text("utf-8")


def examples() -> list[Any]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def test_the_examples_are_an_index_and_its_manifest() -> None:
    index_value, manifest_value = examples()
    index = ImageIndex.from_bytes(json.dumps(index_value).encode())
    image = ImageManifest.from_bytes(json.dumps(manifest_value).encode())
    (entry,) = index.entries
    check_image(image, entry.tag)
    assert (entry.manifest, entry.size) == (Digest.of(image.to_bytes()), len(image.to_bytes()))
    assert index.unknown == image.unknown == ()
    assert json.loads(index.to_bytes()) == index_value
    assert json.loads(image.to_bytes()) == manifest_value


def test_the_media_types_stand_in_the_order_of_the_program() -> None:
    rows = re.findall(r"^\| `(application/vnd\.envbundle\.[^`]+)` \|", PAGE, re.MULTILINE)
    assert tuple(rows) == ROLES


def test_the_constants_are_the_program_s() -> None:
    assert f"{MAX_BLOB:,} bytes (64 MiB)" in PAGE
    assert (MAX_INDEX, MAX_MANIFEST) == (4 << 20, 16 << 20)
    assert json.dumps(LAYOUT, separators=(",", ":")) in PAGE
    written = re.search(r"^    zstd-[0-9.]+ (.*)$", PAGE, re.MULTILINE)
    assert written is not None
    assert written[1] == codec_line(1).partition(" ")[2]
