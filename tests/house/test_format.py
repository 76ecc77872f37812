"""docs/format.md: fresh, and each example on the page is a document that the program reads."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import format_examples as made
import make_format
import pytest
from jsonschema import Draft7Validator, ValidationError
from referencing import Registry, Resource

from envbundle import schemas
from envbundle.spec.canonical import canonical
from envbundle.spec.descriptor import Descriptor
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import Layer
from envbundle.spec.lock_text import parse_lock
from envbundle.spec.manifest_text import parse_manifest
from envbundle.spec.receipt import Receipt
from envbundle.store.codec import codec_line, decode, encode
from envbundle.store.read import parse_layer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = make_format.PAGE.read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language on the page, in order."""
    return re.findall(rf"^```{language}\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)


def documents() -> dict[str, Any]:
    """The page's JSON objects by their format line."""
    found = (json.loads(block) for block in blocks("json"))
    return {value["format"] + value.get("kind", ""): value for value in found if "format" in value}


def toml_with(table: str) -> str:
    return next(block + "\n" for block in blocks("toml") if re.search(rf"^\[{table}\]$", block, re.MULTILINE))


def test_the_page_is_fresh() -> None:
    assert make_format.page() == PAGE, "run make docs"


def test_every_source_is_in_the_frame() -> None:
    frame = (make_format.SOURCES / "frame.md").read_text("utf-8")
    sections = {path.name for path in make_format.SOURCES.glob("*.md")} - {"frame.md"}
    assert {name for name in sections if f"{{{{section {name}}}}}" not in frame} == set()


def test_the_manifest_is_read_without_a_fault() -> None:
    text = toml_with("bundle")
    manifest = parse_manifest(text, filename="envbundle.toml")
    assert manifest.serial == 7
    assert [spec.target.name for spec in manifest.targets] == ["sm_103", "hopper-blackwell"]
    assert set(tomllib.loads(text)) >= {
        "bundle",
        "resolve",
        "target",
        "overlay",
        "package",
        "layout",
        "invariant",
    }


def test_the_lock_is_the_descriptors() -> None:
    text = toml_with("tool.envbundle")
    assert parse_lock(text) == made.lock()
    bundle = Descriptor.from_dict(documents()["envbundle.descriptor.v1"])
    assert bundle.content.lock == Digest.of(text.encode())
    assert bundle.manifest == Digest.of(toml_with("bundle").encode())


def test_layers_are_named_by_their_canonical_bytes() -> None:
    bundle = Descriptor.from_dict(documents()["envbundle.descriptor.v1"])
    for kind, position in (("distribution", 0), ("overlay", 2)):
        value = documents()[f"envbundle.layer.v1{kind}"]
        layer = Layer.from_dict(value)
        assert layer.to_dict() == value
        assert Digest.of(canonical(value)) == bundle.content.layers[position].list
        assert f"`{Digest.of(canonical(value))}`" in PAGE


def test_the_descriptor_has_the_ids_that_the_page_says() -> None:
    value = documents()["envbundle.descriptor.v1"]
    bundle = Descriptor.from_bytes(canonical(value))
    assert bundle.to_dict() == value
    assert f"content id is `{bundle.content_id}`" in PAGE
    assert f"bundle id is `{bundle.bundle_id}`" in PAGE
    assert f"tag `{bundle.tag}`" in PAGE
    assert bundle.codec == codec_line(made.LEVEL)


def test_every_blob_is_mapped_and_can_be_decoded() -> None:
    bundle = Descriptor.from_dict(documents()["envbundle.descriptor.v1"])
    texts = [toml_with("bundle").encode(), toml_with("tool.envbundle").encode()]
    packs = [made.chunk("demo_app"), made.chunk("demo_kernels"), made.PATCHED.encode()]
    plains = [*(layer.to_bytes() for layer in made.layers()), *texts, *packs]
    assert {Digest.of(plain) for plain in plains} == set(bundle.blobs)
    for plain in plains:
        blob = bundle.blobs[Digest.of(plain)]
        stored, encoding = encode(plain, level=made.LEVEL, long=plain in packs)
        assert (Digest.of(stored), encoding) == (blob.blob, blob.encoding)
        assert decode(stored, blob, Digest.of(plain)) == plain


def test_the_receipt_round_trips() -> None:
    value = documents()["envbundle.receipt.v1"]
    assert Receipt.from_bytes(canonical(value)).to_dict() == value
    assert value["bundle_id"] == str(Descriptor.from_dict(documents()["envbundle.descriptor.v1"]).bundle_id)


def test_the_findings_round_trip() -> None:
    value = next(value for value in map(json.loads, blocks("json")) if isinstance(value, list))
    found = [Finding.from_dict(item) for item in value]
    assert [item.to_dict() for item in found] == value
    assert any(item.offset is not None for item in found)


@pytest.mark.parametrize("verb", ["inspect", "lock", "pack", "copy", "verify", "install"])
def test_each_answer_stands_on_the_page(verb: str) -> None:
    match = re.search(rf"^`{verb}`:\n\n```json\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    value = json.loads(match[1])
    for finding in value["findings"]:
        Finding.from_dict(finding)


def test_the_canonical_sample_is_as_the_page_says() -> None:
    assert len(canonical({"b": [1, True], "a": "ä\n"})) == 25
    assert canonical({"b": [1, True], "a": "ä\n"}).decode() in PAGE


@pytest.mark.parametrize("verb", ["inspect", "lock", "pack", "copy", "verify", "install"])
def test_each_answer_follows_its_published_schema(verb: str) -> None:
    resources = [(name, Resource.from_contents(schema)) for name, schema in schemas.registry().items()]
    check = Draft7Validator(schemas.load(f"answers/{verb}"), registry=Registry().with_resources(resources))
    match = re.search(rf"^`{verb}`:\n\n```json\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    check.validate(json.loads(match[1]))
    with pytest.raises(ValidationError):
        check.validate({"something": "else"})


def test_the_descriptor_counts_as_its_reader_counts() -> None:
    """A store's reader holds each layer list against what the descriptor says of it."""
    bundle = Descriptor.from_dict(documents()["envbundle.descriptor.v1"])
    for layer, ref in zip(made.layers(), bundle.content.layers, strict=True):
        assert parse_layer(layer.to_bytes(), bundle, ref) == layer
