"""What holds for every manifest: text and value round trip, digests see what matters and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbundle.errors import UserInputError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import findings_of
from envbundle.spec.manifest_document import files_named, manifest_digest, relevant
from envbundle.spec.manifest_render import render_manifest
from envbundle.spec.manifest_text import parse_manifest

from .manifests import manifests, texts

if TYPE_CHECKING:
    from envbundle.spec.manifest import Manifest

few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def digest_of(manifest: Manifest, target: str) -> Digest:
    files = {name: Digest.of(name.encode()) for name in files_named(manifest, target)}
    return manifest_digest(manifest, target, files)


@few
@given(manifests())
def test_what_is_written_is_read_as_it_was(manifest: Manifest) -> None:
    assert parse_manifest(render_manifest(manifest)) == manifest


@few
@given(manifests(), st.lists(texts, max_size=3))
def test_comments_and_blank_lines_change_neither_value_nor_digest(
    manifest: Manifest, remarks: list[str]
) -> None:
    text = render_manifest(manifest)
    lines = text.split("\n")
    noisy = render_manifest(manifest, header=remarks, comments={"bundle": "\n".join(remarks)})
    noisy = noisy.replace("\n[", "\n\n# a remark\n[") + "\n" * len(lines)
    again = parse_manifest(noisy.replace("\n", "\r\n"))
    assert again == manifest
    for spec in manifest.targets:
        assert digest_of(again, spec.target.name) == digest_of(manifest, spec.target.name)


@few
@given(manifests())
def test_another_target_changes_no_digest(manifest: Manifest) -> None:
    for spec in manifest.targets:
        alone = replace(manifest, targets=(spec,))
        assert digest_of(alone, spec.target.name) == digest_of(manifest, spec.target.name)
        json.dumps(relevant(manifest, spec.target.name))


@few
@given(manifests(), st.data())
def test_every_other_change_changes_the_digest(manifest: Manifest, data: st.DataObject) -> None:
    other = data.draw(manifests())
    first, second = manifest.targets[0], other.targets[0]
    renamed = replace(second, target=replace(second.target, name=first.target.name))
    other = replace(other, targets=(renamed,))
    here = replace(manifest, targets=(first,))
    assert (digest_of(here, first.target.name) == digest_of(other, first.target.name)) == (here == other)


def test_a_file_s_content_changes_the_digest_and_a_missing_one_is_a_wrong_call() -> None:
    text = (
        '[bundle]\nname="d"\nversion="1"\npython="3.12"\n[resolve]\nrequirement-files=["r.txt"]\n'
        'constraints=["c.txt", "a<2"]\n[target.t]\ngpu="none"\nplatform="x86_64-manylinux_2_39"\n'
    )
    manifest = parse_manifest(text)
    assert files_named(manifest, "t") == ("c.txt", "r.txt")
    one = {"c.txt": Digest.of(b"1"), "r.txt": Digest.of(b"2")}
    assert manifest_digest(manifest, "t", one) == manifest_digest(manifest, "t", dict(reversed(one.items())))
    assert manifest_digest(manifest, "t", one) != manifest_digest(
        manifest, "t", one | {"r.txt": Digest.of(b"3")}
    )
    with pytest.raises(RuntimeError, match=r"r\.txt"):
        manifest_digest(manifest, "t", {"c.txt": Digest.of(b"1")})


values = st.recursive(
    st.integers() | st.booleans() | texts | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "bundle",
        "resolve",
        "target",
        "overlay",
        "package",
        "layout",
        "invariant",
        "environment",
        "check",
        "group",
        "source",
        "name",
        "version",
        "requirements",
        "index",
        "from",
        "gpu",
        "platform",
        "build",
        "kind",
    ]
)
documents = st.dictionaries(keys, st.dictionaries(keys, values, max_size=4) | values, max_size=6)


def to_toml(value: object) -> str:
    """Write any JSON-like value inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {to_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value)


@few
@given(documents)
def test_whatever_stands_there_gives_findings_with_places_and_no_traceback(
    document: dict[str, object],
) -> None:
    text = "".join(f"{json.dumps(key)} = {to_toml(value)}\n" for key, value in document.items())
    try:
        parse_manifest(text, filename="m.toml")
    except UserInputError as fault:
        found = findings_of(fault)
        places = [tuple(map(int, f.subject.split(":")[1:3])) for f in found]
        assert places == sorted(places)
        assert all(1 <= line <= text.count("\n") + 1 for line, _ in places)
        assert all(f.code.startswith("E-") and f.expected for f in found)
