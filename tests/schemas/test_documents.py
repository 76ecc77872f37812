"""Schemas of stored documents: what our values write they take, and what ``from_dict`` refuses they refuse."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit
from jsonschema import Draft7Validator

from envbundle import schemas
from envbundle.errors import EnvbundleError
from envbundle.spec.coverage import Counts, Entry
from envbundle.spec.descriptor import Blob, Content, Descriptor, Exemption, LayerRef
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import BaseFile, Layer, LayerEntry, Segment, WheelRef
from envbundle.spec.lock import (
    Contested,
    DistributionEvidence,
    FileEvidence,
    Lock,
    LockedOverlay,
    LockedPackage,
    LockedWheel,
    OverlayFile,
)
from envbundle.spec.lock_text import parse_lock, render_lock
from envbundle.spec.receipt import CheckResult, InstalledFile, Receipt
from envbundle.spec.target import Arch, Target
from envbundle.spec.toml_text import read_toml

from .validators import faults, mutations

if TYPE_CHECKING:
    from collections.abc import Callable


def digest(text: str) -> Digest:
    return Digest.of(text.encode())


TARGET = Target(
    name="sm_103",
    gpus=(Arch("sm_103"),),
    python="3.12",
    platform="x86_64-manylinux_2_39",
    glibc="2.39",
    driver="580",
    offline=False,
)
EXEMPTION = Exemption(distribution="a", path="a/x.so", gpu="sm_103", verdict="none")
FINDING = Finding(
    code="E-FATBIN", severity="error", subject="x.so", expected="a", found="b", hint="c", offset=7
)
LAYER = Layer(
    kind="overlay",
    distribution="a",
    version="1.0",
    chunks=((digest("chunk"), 10),),
    wheel=WheelRef(filename="a-1.0-py3-none-any.whl", sha256=digest("wheel"), size=3),
    entries=(
        LayerEntry(path="purelib/a/link", type="symlink", link="x.py"),
        LayerEntry(
            path="purelib/a/x.py",
            size=10,
            sha256=digest("x"),
            segments=(Segment(chunk=digest("chunk"), offset=0, length=10),),
        ),
        LayerEntry(path="scripts/a", type="entry-point", mode=0o755, reference="a.cli:main", gui=True),
        LayerEntry(path="scripts/b", mode=0o755, role="script", size=3, sha256=digest("#!x"), inline=b"#!x"),
    ),
    replaces=(BaseFile(path="purelib/a/x.py", sha256=digest("old")),),
    removes=(BaseFile(path="purelib/a/y.py", sha256=digest("gone")),),
)
CONTENT = Content(
    name="demo",
    version="1.0",
    target=TARGET,
    serial=3,
    layers=(
        LayerRef(
            list=digest("list"),
            list_size=9,
            kind="distribution",
            distribution="a",
            version="1.0",
            origin="published",
            files=1,
            bytes=10,
        ),
    ),
    lock=digest("lock"),
    provides={"bin/a": 0, "bin/b": None},
    layout={"mode": "relocatable"},
    environment={"A": "b"},
    checks=({"import": ["a"]},),
    invariants=({"kind": "driver", "min": "580"},),
    exemptions=(EXEMPTION,),
    requires={"glibc": "2.34"},
)
DESCRIPTOR = Descriptor(
    content=CONTENT,
    codec="zstd-1.5.7 level 1",
    manifest=digest("manifest"),
    blobs={
        digest(name): Blob(blob=digest(f"stored {name}"), size=5, plain_size=9, encoding="zstd")
        for name in ("list", "lock", "manifest")
    },
)
RECEIPT = Receipt(
    bundle_id=digest("bundle"),
    content_id=digest("content"),
    name="demo",
    version="1.0",
    target=TARGET,
    prefix="/opt/env",
    generation="1-0123456789ab",
    installed_at="2026-12-01T00:00:00Z",
    tool="0.1.0",
    trust="verified",
    device=5,
    principal="me",
    fingerprint="SHA256:x",
    serial=3,
    interpreter={"path": "/usr/bin/python3.12"},
    host={"gpus": ["sm_103"]},
    exemptions=(EXEMPTION,),
    checks=(CheckResult(name="import a", ok=True, seconds=1, isolation="namespace", output=""),),
    findings=(FINDING,),
    reused_bytes=1,
    written_bytes=2,
    files=(
        InstalledFile(
            path="bin/a", size=3, sha256=digest("a"), packed=digest("b"), source=0, fixer="shebang"
        ),
        InstalledFile(path="lib64", type="symlink", link="lib"),
    ),
)
COUNTS = (("sm_103", Counts(native=1, jit=1, missing=1)),)
LOCK = Lock(
    target=TARGET,
    manifest=digest("manifest"),
    tool="0.1.0",
    rules="1",
    solver="uv 0.13.9",
    packages=tuple(
        LockedPackage(
            name=name,
            version="1.0",
            wheel=LockedWheel(
                filename=f"{name}-1.0-py3-none-any.whl",
                sha256=digest(name),
                size=3,
                path=f"{name}-1.0-py3-none-any.whl",
            ),
        )
        for name in ("a", "b")
    ),
    overlays=(
        LockedOverlay(
            distribution="a",
            path="overlays/a",
            mode="merge",
            base_version="1.0",
            base_wheel=digest("a"),
            files=(
                OverlayFile(path="a/x.py", sha256=digest("x"), size=1, mode=0o755, replaces=digest("old")),
            ),
            removes=(("a/y.py", digest("gone")),),
        ),
    ),
    coverage=(
        DistributionEvidence(
            distribution="a",
            counts=COUNTS,
            files=(
                FileEvidence(
                    path="a/x.so",
                    counts=COUNTS,
                    entries=(
                        Entry(kind="ptx", arch="compute_90", isa="8.4", section=".nv_fatbin", modules=2),
                    ),
                ),
            ),
        ),
    ),
    contested=(Contested(path="bin/x", claims=(("a", digest("1")), ("b", digest("2"))), winner="a"),),
    exemptions=(EXEMPTION,),
    requires={"glibc": "2.34"},
)


def lock_document() -> dict[str, Any]:
    return read_toml(render_lock(LOCK), filename="pylock.sm_103.toml")


def read_lock_tool(value: Any) -> object:
    return parse_lock(tomlkit.dumps({**lock_document(), "tool": {"envbundle": value}}))


def read_descriptor(value: Any) -> object:
    """The content id is recomputed, so that structure alone is judged."""
    if isinstance(value.get("content_id"), str):
        try:
            value = {**value, "content_id": str(Content.from_dict(value["content"]).content_id)}
        except (EnvbundleError, KeyError):
            raise EnvbundleError("E-FORMAT", "content") from None
    return Descriptor.from_dict(value)


DOCUMENTS: dict[str, tuple[dict[str, Any], Callable[[Any], object]]] = {
    "finding": (FINDING.to_dict(), Finding.from_dict),
    "target": (TARGET.to_dict(), Target.from_dict),
    "layer": (LAYER.to_dict(), Layer.from_dict),
    "descriptor": (DESCRIPTOR.to_dict(), read_descriptor),
    "receipt": (RECEIPT.to_dict(), Receipt.from_dict),
    "lock-tool": (lock_document()["tool"]["envbundle"], read_lock_tool),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_we_write_is_what_is_published(name: str) -> None:
    value, read = DOCUMENTS[name]
    read(value)
    assert faults(name, json.loads(json.dumps(value))) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_and_reader_judge_every_change_of_structure_alike(name: str) -> None:
    value, read = DOCUMENTS[name]
    differing, judged = [], 0
    for what, changed in mutations(value):
        if _meaning(name, what):
            continue
        try:
            read(changed)
            refused = False
        except EnvbundleError:
            refused = True
        judged += 1
        if bool(faults(name, changed)) != refused:
            differing.append(f"{what}: the reader {'refuses' if refused else 'takes'} it")
    assert differing == []
    assert judged > 10


def _meaning(name: str, what: str) -> bool:
    """Whether the change is no matter of structure, or one where the reader may be more lenient than the schema."""
    gone = what.endswith("is gone")
    if name == "layer":  # sums and references
        return what.startswith("('chunks', 0)") or (gone and ("'segments'" in what or "'inline'" in what))
    if name == "descriptor":  # a blob that is needed; numbers inside objects of any content
        needed = gone and what.startswith("('blobs', ") and what.count(",") == 1
        return (
            needed
            or bool(re.match(r"\('content', '(layout|checks|invariants)', .* is a float", what))
            or (bool(re.match(r"\('content', '(layout|checks|invariants)'", what)) and "stranger" in what)
        )
    if "findings" in what or name == "finding":  # whoever writes one writes all six, a reader needs three
        return gone and any(field in what for field in ("expected", "found", "hint"))
    return what.startswith("('host',) is a float")


VALUES = {
    "layer: path that climbs": ("layer", ("entries", 1, "path"), "purelib/../x"),
    "layer: absolute path": ("layer", ("entries", 1, "path"), "/etc/passwd"),
    "layer: no scheme": ("layer", ("entries", 1, "path"), "lib/x"),
    "layer: mode": ("layer", ("entries", 1, "mode"), 0o4755),
    "layer: digest": ("layer", ("entries", 1, "sha256"), "md5:0"),
    "layer: script name": ("layer", ("entries", 2, "path"), "scripts/../../x"),
    "layer: reference": ("layer", ("entries", 2, "reference"), "os:system;x"),
    "descriptor: format": ("descriptor", ("format",), "envbundle.descriptor.v2"),
    "descriptor: name": ("descriptor", ("content", "name"), "../../x"),
    "descriptor: gpu": ("descriptor", ("content", "target", "gpus"), ["h100"]),
    "descriptor: size": ("descriptor", ("content", "layers", 0, "bytes"), -1),
    "descriptor: encoding": ("descriptor", ("blobs", str(digest("lock")), "encoding"), "gzip"),
    "receipt: trust": ("receipt", ("trust",), "maybe"),
    "receipt: path": ("receipt", ("files", 0, "path"), "a//b"),
    "finding: severity": ("finding", ("severity",), "fatal"),
    "lock: format": ("lock-tool", ("lock-format",), 2),
    "lock: counts": ("lock-tool", ("coverage", 0, "counts", "sm_103"), "3 of 4"),
    "lock: entry": ("lock-tool", ("coverage", 0, "files", 0, "entries"), ["sm_90"]),
    "lock: overlay path": ("lock-tool", ("overlays", 0, "path"), "../x"),
    "lock: mode": ("lock-tool", ("overlays", 0, "files", 0, "mode"), "777"),
}


@pytest.mark.parametrize(("name", "path", "bad"), VALUES.values(), ids=VALUES)
def test_a_bad_value_is_refused_by_both(name: str, path: tuple[str | int, ...], bad: object) -> None:
    value, read = DOCUMENTS[name]
    changed = json.loads(json.dumps(value))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = bad
    assert faults(name, changed)
    with pytest.raises(EnvbundleError):
        read(changed)


@pytest.mark.parametrize("name", schemas.names())
def test_a_schema_is_draft_07_with_an_id_that_names_no_host(name: str) -> None:
    schema = schemas.load(name)
    Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["$id"] == f"urn:envbundle:{name.replace('/', '-')}.v1"
    assert schema["title"]
    assert json.loads(schemas.text(name)) == schema


def test_an_unknown_schema_is_a_wrong_call() -> None:
    with pytest.raises(KeyError):
        schemas.load("../codes")


def test_inline_bytes_are_base64() -> None:
    assert LAYER.to_dict()["entries"][3]["inline"] == base64.b64encode(b"#!x").decode()
