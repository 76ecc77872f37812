"""The descriptor: the signed JSON document that names everything of one bundle (docs/format.md).

* ``Content`` says what is installed and how; its canonical digest is the *content id*: the same for the
  same lock and bytes on any machine and codec.
* ``Descriptor`` adds where the bytes stand in a store (``blobs``), the codec line and the manifest's
  digest; the digest of its bytes is the *bundle id*, and it is what signatures cover.
* No clock, user, host name or path of the packing machine is in either.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from envbundle.errors import FormatError

from .canonical import canonical
from .digest import Digest
from .fields import Fields, known_format, read_text
from .names import RelPath, check_bundle_name, check_version, normalise_name
from .target import Target

if TYPE_CHECKING:
    from .layer import LayerKind

FORMAT = "envbundle.descriptor.v1"
CONTENT_FORMAT = "envbundle.content.v1"
MEDIA_DESCRIPTOR = "application/vnd.envbundle.descriptor.v1+json"
MEDIA_LAYER_LIST = "application/vnd.envbundle.layer.v1+json"
MEDIA_CHUNK = "application/vnd.envbundle.chunk.v1"
MEDIA_LOCK = "application/vnd.envbundle.lock.v1+toml"
MEDIA_MANIFEST = "application/vnd.envbundle.manifest.v1+toml"
MEDIA_SIGNATURE = "application/vnd.envbundle.signature.v1.sshsig"
ARTIFACT_BUNDLE = "application/vnd.envbundle.bundle.v1"
MAX_DESCRIPTOR = 64 * 1024 * 1024

Origin = Literal["published", "built", "installed-tree"]
Encoding = Literal["zstd", "raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Where plain bytes stand in a store: ``blob`` (its sha256), stored ``size``, plain size, encoding."""

    blob: Digest
    size: int
    plain_size: int
    encoding: Encoding

    @classmethod
    def from_dict(cls, value: Any, where: str = "blob") -> Blob:
        """Read the JSON form."""
        fields = Fields(value, where)
        blob = cls(
            blob=fields.digest("blob"),
            size=fields.integer("size"),
            plain_size=fields.integer("plain_size"),
            encoding=cast("Encoding", fields.choice("encoding", ("zstd", "raw"))),
        )
        fields.done()
        return blob

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "blob": str(self.blob),
            "size": self.size,
            "plain_size": self.plain_size,
            "encoding": self.encoding,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRef:
    """One layer of the content. ``list`` is the plain digest of its canonical list of ``list_size`` bytes."""

    list: Digest
    list_size: int
    kind: LayerKind
    distribution: str
    version: str
    origin: Origin
    files: int
    bytes: int

    @classmethod
    def from_dict(cls, value: Any, where: str = "layer") -> LayerRef:
        """Read the JSON form."""
        fields = Fields(value, where)
        ref = cls(
            list=fields.digest("list"),
            list_size=fields.integer("list_size"),
            kind=cast("LayerKind", fields.choice("kind", ("distribution", "overlay"))),
            distribution=fields.parsed("distribution", normalise_name),
            version=fields.parsed("version", check_version),
            origin=cast("Origin", fields.choice("origin", ("published", "built", "installed-tree"))),
            files=fields.integer("files"),
            bytes=fields.integer("bytes"),
        )
        fields.done()
        return ref

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "list": str(self.list),
            "list_size": self.list_size,
            "kind": self.kind,
            "distribution": self.distribution,
            "version": self.version,
            "origin": self.origin,
            "files": self.files,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """A gap that a person accepted: ``path`` of a distribution that does not serve ``gpu``."""

    distribution: str
    path: str
    gpu: str
    verdict: str

    @classmethod
    def from_dict(cls, value: Any, where: str = "exemption") -> Exemption:
        """Read the JSON form."""
        fields = Fields(value, where)
        item = cls(**{key: fields.text(key) for key in ("distribution", "path", "gpu", "verdict")})
        fields.done()
        return item

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "distribution": self.distribution,
            "path": self.path,
            "gpu": self.gpu,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is installed and how; see the module for its digest.

    ``provides`` maps an installed path (relative to the prefix) that several layers claim to the index of
    the layer that provides it, or to None where an overlay removes it. ``layout``, ``checks`` and
    ``invariants`` are the JSON forms of the manifest's values; ``requires`` holds host requirements found in
    bytes (``glibc``, ``driver``, ``ptx-isa``), text by text.
    """

    name: str
    version: str
    target: Target
    layers: tuple[LayerRef, ...]
    lock: Digest
    serial: int | None = None
    provides: dict[str, int | None] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    checks: tuple[dict[str, Any], ...] = ()
    invariants: tuple[dict[str, Any], ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    requires: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: Any, where: str = "content") -> Content:
        """Read the JSON form; raises ``FormatError`` with the path of the fault."""
        fields = Fields(value, where)
        known_format(fields, CONTENT_FORMAT)
        content = cls(
            name=fields.parsed("name", check_bundle_name),
            version=fields.parsed("version", check_version),
            target=Target.from_dict(fields.raw("target"), fields.path("target")),
            layers=fields.items("layers", LayerRef.from_dict),
            lock=fields.digest("lock"),
            serial=fields.opt_integer("serial"),
            provides=fields.mapping("provides", _read_provider),
            layout=_object(fields, "layout"),
            environment=fields.mapping("environment", read_text),
            checks=fields.items("checks", _read_object),
            invariants=fields.items("invariants", _read_object),
            exemptions=fields.items("exemptions", Exemption.from_dict),
            requires=fields.mapping("requires", read_text),
        )
        fields.done()
        for path, provider in content.provides.items():
            RelPath(path)
            if provider is not None and provider >= len(content.layers):
                raise FormatError("E-FORMAT", f"{where}.provides[{path!r}]", expected="the index of a layer")
        return content

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "format": CONTENT_FORMAT,
            "name": self.name,
            "version": self.version,
            "target": self.target.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
            "lock": str(self.lock),
            "provides": dict(self.provides),
            "layout": dict(self.layout),
            "environment": dict(self.environment),
            "checks": list(self.checks),
            "invariants": list(self.invariants),
            "exemptions": [item.to_dict() for item in self.exemptions],
            "requires": dict(self.requires),
        }
        if self.serial is not None:
            value["serial"] = self.serial
        return value

    @property
    def content_id(self) -> Digest:
        """The digest of the canonical content document."""
        return Digest.of(canonical(self.to_dict()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A whole bundle. ``blobs`` maps the plain digests of layer lists, chunks, lock and manifest."""

    content: Content
    codec: str
    manifest: Digest
    blobs: dict[Digest, Blob]

    @classmethod
    def from_bytes(cls, data: bytes) -> Descriptor:
        """Read a descriptor's bytes; they must be its canonical form, so that one value has one id."""
        if len(data) > MAX_DESCRIPTOR:
            raise FormatError(
                "E-FORMAT", "descriptor", expected=f"at most {MAX_DESCRIPTOR} bytes", found=str(len(data))
            )
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as fault:
            raise FormatError("E-FORMAT", "descriptor", expected="JSON", found=str(fault)[:200]) from fault
        descriptor = cls.from_dict(value)
        try:
            same = descriptor.to_bytes() == data
        except UnicodeEncodeError:  # a lone surrogate, which no UTF-8 can hold
            same = False
        if not same:
            raise FormatError(
                "E-FORMAT", "descriptor", expected="canonical JSON, as docs/format.md defines it"
            )
        return descriptor

    @classmethod
    def from_dict(cls, value: Any, where: str = "descriptor") -> Descriptor:
        """Read the JSON form; the content id must be the content's, and what it names be mapped."""
        fields = Fields(value, where)
        known_format(fields, FORMAT)
        descriptor = cls(
            content=Content.from_dict(fields.raw("content"), fields.path("content")),
            codec=fields.text("codec"),
            manifest=fields.digest("manifest"),
            blobs={Digest.parse(k): v for k, v in fields.mapping("blobs", Blob.from_dict).items()},
        )
        stated = fields.digest("content_id")
        fields.done()
        if stated != descriptor.content_id:
            raise FormatError(
                "E-FORMAT", f"{where}.content_id", expected=str(descriptor.content_id), found=str(stated)
            )
        needed = {layer.list for layer in descriptor.content.layers} | {
            descriptor.content.lock,
            descriptor.manifest,
        }
        for digest in sorted(needed - set(descriptor.blobs)):
            raise FormatError("E-FORMAT", f"{where}.blobs", expected=f"a blob for {digest}", found="none")
        return descriptor

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": FORMAT,
            "content": self.content.to_dict(),
            "content_id": str(self.content_id),
            "codec": self.codec,
            "manifest": str(self.manifest),
            "blobs": {str(plain): blob.to_dict() for plain, blob in self.blobs.items()},
        }

    def to_bytes(self) -> bytes:
        """Return the canonical bytes that are signed and whose digest is the bundle id."""
        return canonical(self.to_dict())

    @property
    def content_id(self) -> Digest:
        """The content's digest."""
        return self.content.content_id

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self.content.name

    @property
    def bundle_id(self) -> Digest:
        """The digest of the descriptor's bytes."""
        return Digest.of(self.to_bytes())

    @property
    def tag(self) -> str:
        """The bundle's tag in an OCI index: ``<name>-<version>-<target>``, within OCI's tag alphabet."""
        return bundle_tag(self.content.name, self.content.version, self.content.target.name)


def bundle_tag(name: str, version: str, target: str) -> str:
    """Return the tag of a bundle; characters outside OCI's tag alphabet become ``_``."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{name}-{version}-{target}")[:128]


def _read_provider(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError("E-FORMAT", where, expected="a layer's index or null")
    return value


def _read_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError("E-FORMAT", where, expected="an object")
    try:
        canonical(value)
    except (TypeError, UnicodeEncodeError) as fault:
        raise FormatError("E-FORMAT", where, expected="canonical JSON", found=str(fault)) from fault
    return value


def _object(fields: Fields, key: str) -> dict[str, Any]:
    return _read_object(fields.raw(key), fields.path(key))
