"""The two OCI documents of a store as values: the image index and the image manifest.

* Read leniently where others may write (skopeo, oras, a registry): unknown fields are kept out of the value
  and named in ``unknown``, so that ``verify`` can demand that every byte is understood.
* Written by us in exactly one way, canonical JSON, so that equal values are equal bytes.
* Sizes of documents are bounded before anything is parsed; repeated keys are refused.

Source: OCI Image Format Specification 1.1, "Image Index", "Image Manifest", "Image Layout".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from envbundle.errors import FormatError
from envbundle.spec.canonical import canonical
from envbundle.spec.fields import Fields, read_text

if TYPE_CHECKING:
    from envbundle.spec.digest import Digest

MEDIA_INDEX = "application/vnd.oci.image.index.v1+json"
MEDIA_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
TITLE = "org.opencontainers.image.title"
LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
MAX_INDEX = 4 * 1024 * 1024
MAX_MANIFEST = 16 * 1024 * 1024
LAYOUT = {"imageLayoutVersion": "1.0.0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An OCI content descriptor: ``size`` bytes with ``digest``, of media type ``media``."""

    media: str
    digest: Digest
    size: int
    artifact: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, value: Any, where: str = "item") -> Item:
        """Read the JSON form; raises ``FormatError``. A ``platform`` means nothing here."""
        fields = Fields(value, where)
        known = {"mediaType", "digest", "size", "artifactType", "annotations"}
        if fields.raw("platform", None) in _PLATFORMS:
            known.add("platform")
        return cls(
            media=fields.text("mediaType"),
            digest=fields.digest("digest"),
            size=fields.integer("size"),
            artifact=fields.text("artifactType", ""),
            annotations=fields.mapping("annotations", read_text, {}),
            unknown=tuple(sorted(fields.path(ascii(key)[:80]) for key in set(value) - known)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {"mediaType": self.media, "digest": str(self.digest), "size": self.size}
        if self.artifact:
            value["artifactType"] = self.artifact
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TagEntry:
    """One entry of a store's index: ``tag`` ('' where it has none) names a manifest of ``size`` bytes."""

    tag: str
    manifest: Digest
    size: int
    media: str = MEDIA_MANIFEST
    artifact: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, item: Item) -> TagEntry:
        """Return the entry that an index item states."""
        extra = {key: text for key, text in item.annotations.items() if key != REF_NAME}
        return cls(
            tag=item.annotations.get(REF_NAME, ""),
            manifest=item.digest,
            size=item.size,
            media=item.media,
            artifact=item.artifact,
            annotations=extra,
            unknown=item.unknown,
        )

    def item(self) -> Item:
        """Return the index item of this entry."""
        names = {REF_NAME: self.tag} if self.tag else {}
        return Item(
            media=self.media,
            digest=self.manifest,
            size=self.size,
            artifact=self.artifact,
            annotations={**self.annotations, **names},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageIndex:
    """``index.json`` of a layout."""

    entries: tuple[TagEntry, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def from_bytes(cls, data: bytes) -> ImageIndex:
        """Read ``index.json``; raises ``FormatError`` (E-STORE-INDEX)."""
        value = parse_document(data, "index.json", "E-STORE-INDEX", MAX_INDEX)
        try:
            fields = Fields(value, "index.json")
            _check_head(fields, MEDIA_INDEX, default=MEDIA_INDEX)
            items = fields.items("manifests", Item.from_dict)
        except FormatError as fault:
            raise FormatError(
                "E-STORE-INDEX", fault.subject, expected=fault.expected, found=fault.found, hint=_RECOPY
            ) from fault
        known = {"schemaVersion", "mediaType", "manifests"}
        own = tuple(sorted(fields.path(ascii(key)[:80]) for key in set(value) - known))
        entries = tuple(TagEntry.of(item) for item in items)
        for entry in entries:
            if entry.tag and not _TAG.fullmatch(entry.tag):
                raise FormatError(
                    "E-STORE-INDEX", "tag", expected="printable ASCII", found=ascii(entry.tag)[:200]
                )
        return cls(entries=entries, unknown=own + tuple(name for entry in entries for name in entry.unknown))

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, entries in the order of their tags."""
        entries = sorted(self.entries, key=lambda entry: (entry.tag, entry.manifest))
        value = {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [entry.item().to_dict() for entry in entries],
        }
        return canonical(value)

    def find(self, tag: str) -> TagEntry | None:
        """Return the entry tagged ``tag``; two of them are a ``FormatError``."""
        found = [entry for entry in self.entries if entry.tag == tag]
        if len(found) > 1:
            raise FormatError("E-STORE-INDEX", f"tag {tag!r}", expected="one entry", found=str(len(found)))
        return found[0] if found else None

    def with_entry(self, entry: TagEntry) -> ImageIndex:
        """Return the index with ``entry`` in the place of any other of the same tag."""
        others = (other for other in self.entries if other.tag != entry.tag)
        return ImageIndex(entries=(*others, replace(entry, unknown=())))

    def without(self, tag: str) -> ImageIndex:
        """Return the index without the entry tagged ``tag``."""
        return ImageIndex(entries=tuple(e for e in self.entries if e.tag != tag))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageManifest:
    """An OCI image manifest: ``config`` and ``layers``, of artifact type ``artifact``."""

    artifact: str
    config: Item
    layers: tuple[Item, ...]
    annotations: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "OCI manifest") -> ImageManifest:
        """Read a manifest's bytes; raises ``FormatError`` (E-MANIFEST)."""
        value = parse_document(data, where, "E-MANIFEST", MAX_MANIFEST)
        try:
            fields = Fields(value, where)
            _check_head(fields, MEDIA_MANIFEST, default="")
            manifest = cls(
                artifact=fields.text("artifactType", ""),
                config=Item.from_dict(fields.raw("config"), fields.path("config")),
                layers=fields.items("layers", Item.from_dict),
                annotations=fields.mapping("annotations", read_text, {}),
                unknown=tuple(sorted(fields.path(ascii(key)[:80]) for key in set(value) - _MANIFEST_FIELDS)),
            )
        except FormatError as fault:
            raise FormatError(
                "E-MANIFEST", fault.subject, expected=fault.expected, found=fault.found, hint=_RECOPY
            ) from fault
        return manifest

    def to_bytes(self) -> bytes:
        """Return the canonical bytes; the order of ``layers`` is the caller's."""
        value = {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "artifactType": self.artifact,
            "config": self.config.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
        }
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return canonical(value)

    def items(self) -> tuple[Item, ...]:
        """Return the config and all layers."""
        return (self.config, *self.layers)


_PLATFORMS = tuple(
    {"architecture": machine, "os": system}
    for machine in ("amd64", "arm64")
    for system in ("linux", "darwin")
)
_TAG = re.compile(r"[\x21-\x7e]{1,255}")
_MANIFEST_FIELDS = {"schemaVersion", "mediaType", "artifactType", "config", "layers", "annotations"}
_RECOPY = "copy the bundle again from where it came from"


def _check_head(fields: Fields, media: str, *, default: str) -> None:
    if fields.integer("schemaVersion") != 2:
        raise FormatError("E-FORMAT", fields.path("schemaVersion"), expected="2")
    found = fields.text("mediaType", default or media)
    if found != media:
        raise FormatError("E-FORMAT", fields.path("mediaType"), expected=media, found=repr(found[:100]))


def parse_document(data: bytes, where: str, code: str, limit: int) -> Any:
    """Return the JSON in ``data``; raises ``FormatError`` with ``code`` unless it is one clean document."""
    if len(data) > limit:
        raise FormatError(
            code, where, expected=f"at most {limit} bytes", found=f"{len(data)} bytes", hint=_RECOPY
        )
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        raise FormatError(code, where, expected="JSON", found=str(fault)[:200], hint=_RECOPY) from fault


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def plainly_written(data: bytes, value: Any) -> bool:
    """Whether ``data`` is ``value`` as programs write it: compact, spaced or indented, in its own key order.

    White space or escapes that no writer makes are damage that a parser would not see.
    """
    body = data[:-1] if data.endswith(b"\n") else data
    styles: tuple[dict[str, Any], ...] = (
        {"separators": (",", ":")},
        {},
        *({"indent": i} for i in (2, 4, "\t")),
    )
    for style in styles:
        for ascii_only in (False, True):
            if json.dumps(value, ensure_ascii=ascii_only, **style).encode("utf-8", "replace") == body:
                return True
    return False
