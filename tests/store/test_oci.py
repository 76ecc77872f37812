from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.errors import FormatError
from envbundle.spec.digest import Digest
from envbundle.store.oci import ImageIndex, ImageManifest, Item, TagEntry, plainly_written

DIGESTS = st.binary(max_size=4).map(Digest.of)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TAGS = st.text("abcXYZ019._-", min_size=1, max_size=20)
ITEMS = st.builds(
    Item,
    media=TEXTS,
    digest=DIGESTS,
    size=st.integers(0, 1 << 50),
    artifact=TEXTS,
    annotations=st.dictionaries(TEXTS, TEXTS, max_size=2),
)
ENTRIES = st.builds(
    TagEntry,
    tag=TAGS,
    manifest=DIGESTS,
    size=st.integers(0, 1 << 50),
    artifact=TEXTS,
    annotations=st.dictionaries(TEXTS.filter(lambda t: not t.startswith("org")), TEXTS, max_size=2),
)


@given(entries=st.lists(ENTRIES, max_size=5, unique_by=lambda e: e.tag))
def test_an_index_is_read_as_it_was_written(entries: list[TagEntry]) -> None:
    data = ImageIndex(entries=tuple(entries)).to_bytes()
    read = ImageIndex.from_bytes(data)
    assert list(read.entries) == sorted(entries, key=lambda entry: entry.tag)
    assert read.to_bytes() == data
    assert read.unknown == ()
    assert ImageIndex(entries=tuple(reversed(entries))).to_bytes() == data


@given(artifact=TEXTS, config=ITEMS, layers=st.lists(ITEMS, max_size=4))
def test_a_manifest_is_read_as_it_was_written(artifact: str, config: Item, layers: list[Item]) -> None:
    manifest = ImageManifest(artifact=artifact, config=config, layers=tuple(layers))
    assert ImageManifest.from_bytes(manifest.to_bytes()) == manifest


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_document_or_a_format_error(data: bytes) -> None:
    for read in (ImageIndex.from_bytes, ImageManifest.from_bytes):
        with pytest.raises(FormatError):
            read(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(st.sampled_from(["schemaVersion", "manifests", "layers", "config"]), JSON))
def test_any_object_is_a_document_or_a_format_error(value: dict[str, Any]) -> None:
    data = json.dumps({"schemaVersion": 2, **value}).encode()
    for read in (ImageIndex.from_bytes, ImageManifest.from_bytes):
        with contextlib.suppress(FormatError):
            assert read(data).unknown is not None


HEX = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("extra", "unknown"),
    [
        ({}, ()),
        ({"platform": {"architecture": "amd64", "os": "linux"}}, ()),
        ({"platform": {"architecture": "amd65", "os": "linux"}}, ("index.json.manifests[0].'platform'",)),
        ({"urls": []}, ("index.json.manifests[0].'urls'",)),
        ({"\x1b[2J": 1}, ("index.json.manifests[0].'\\x1b[2J'",)),
    ],
    ids=["plain", "skopeo's platform", "no platform", "unknown", "control characters"],
)
def test_fields_of_others_are_named(extra: dict[str, Any], unknown: tuple[str, ...]) -> None:
    item = {"mediaType": "x", "digest": HEX, "size": 1, **extra}
    index = ImageIndex.from_bytes(json.dumps({"schemaVersion": 2, "manifests": [item]}).encode())
    assert index.unknown == unknown


@pytest.mark.parametrize("tag", ["a b", "\x1b[31m", "t\u00e4g", "x" * 300])
def test_a_tag_is_printable(tag: str) -> None:
    item = {
        "mediaType": "x",
        "digest": HEX,
        "size": 1,
        "annotations": {"org.opencontainers.image.ref.name": tag},
    }
    with pytest.raises(FormatError) as caught:
        ImageIndex.from_bytes(json.dumps({"schemaVersion": 2, "manifests": [item]}).encode())
    assert str(caught.value).isascii()
    assert "\x1b" not in str(caught.value)


def test_two_entries_with_one_tag_are_no_answer() -> None:
    entry = TagEntry(tag="t", manifest=Digest(HEX[7:]), size=1)
    with pytest.raises(FormatError) as caught:
        ImageIndex(entries=(entry, entry)).find("t")
    assert caught.value.code == "E-STORE-INDEX"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1,"b":"x"}', True),
        (b'{"b": "x", "a": 1}\n', True),
        (b'{\n  "a": [\n    1\n  ]\n}', True),
        ('{"a":"\u00fc"}'.encode(), True),
        (b'{"a":"\\u00fc"}', True),
        (b'{"a":\t1}', False),
        (b'{"a":1 }', False),
        (b'{"a":"\\u0061"}', False),
        (b'{"a":1}\n\n', False),
        (b'{"a":1}\t', False),
        (b'{"a":1.0e1}', False),
    ],
)
def test_what_a_program_writes(data: bytes, expected: bool) -> None:
    assert plainly_written(data, json.loads(data)) is expected
