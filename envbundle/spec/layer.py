"""Layers: one distribution or overlay as an ordered list of entries (docs/format.md, "Layer list").

* Entry paths are ``<scheme>/<relative>`` with the schemes of the wheel format (purelib, platlib, scripts,
  headers, data), sorted by their UTF-8 bytes; every path is contained (``RelPath``).
* ``segments`` say where a file's bytes stand in *plain* chunks: (chunk digest, offset, length), in order.
* Files that fixers may change, and are at most 64 KiB, carry their original bytes inline instead.
* A layer list is canonical JSON and depends on nothing but the wheel's or overlay's bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from envbundle.errors import FormatError, IntegrityError

from .canonical import canonical
from .digest import Digest
from .fields import Fields, known_format, read_digest, read_integer
from .names import RelPath, check_script_name, check_version, normalise_name

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = "envbundle.layer.v1"
SCHEMES: tuple[str, ...] = ("purelib", "platlib", "scripts", "headers", "data")
INLINE_LIMIT = 64 * 1024

EntryType = Literal["file", "symlink", "entry-point"]
Role = Literal["file", "script", "record", "direct-url", "kernelspec"]
LayerKind = Literal["distribution", "overlay"]
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"  # becomes a line of Python: names and dots, nothing else
_REFERENCE = re.compile(f"{_DOTTED}(:{_DOTTED})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """``length`` bytes at ``offset`` of the plain chunk ``chunk``."""

    chunk: Digest
    offset: int
    length: int

    @classmethod
    def read(cls, value: Any, where: str) -> Segment:
        """Read the JSON form ``[chunk, offset, length]``."""
        if not isinstance(value, list) or len(value) != 3:
            raise FormatError("E-FORMAT", where, expected="[chunk digest, offset, length]")
        return cls(
            chunk=read_digest(value[0], f"{where}[0]"),
            offset=read_integer(value[1], f"{where}[1]"),
            length=read_integer(value[2], f"{where}[2]"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEntry:
    """One path of a layer.

    A ``file`` has mode (0o644 or 0o755), size, sha256 and either segments or ``inline`` (its bytes). A
    ``symlink`` has ``link``, relative and inside the environment. An ``entry-point`` (path
    ``scripts/<name>``) has ``reference`` (``module:attr``), ``gui`` and no bytes: the installer writes it.
    """

    path: str
    type: EntryType = "file"
    role: Role = "file"
    mode: int = 0o644
    size: int = 0
    sha256: Digest | None = None
    segments: tuple[Segment, ...] = ()
    inline: bytes | None = None
    link: str = ""
    reference: str = ""
    gui: bool = False

    @property
    def scheme(self) -> str:
        """The first component of the path."""
        return self.path.partition("/")[0]

    @property
    def relative(self) -> str:
        """The path inside the scheme."""
        return self.path.partition("/")[2]

    @classmethod
    def from_dict(cls, value: Any, where: str = "entry") -> LayerEntry:
        """Read the JSON form; raises ``FormatError`` or, for a path that escapes, ``IntegrityError``."""
        fields = Fields(value, where)
        path = RelPath(fields.text("path"))
        scheme, _, relative = path.partition("/")
        if scheme not in SCHEMES or not relative:
            raise FormatError(
                "E-FORMAT", fields.path("path"), expected="a scheme and a path", found=repr(path[:80])
            )
        kind = cast("EntryType", fields.choice("type", ("file", "symlink", "entry-point"), "file"))
        if kind == "symlink":
            link = fields.text("link")
            check_link(path, link)
            entry = cls(path=path, type=kind, link=link)
        elif kind == "entry-point":
            check_script_name(relative)
            reference = fields.text("reference")
            if scheme != "scripts" or not _REFERENCE.fullmatch(reference):
                raise FormatError(
                    "E-FORMAT", fields.path("reference"), expected="module:attr", found=repr(reference[:80])
                )
            entry = cls(
                path=path,
                type=kind,
                mode=0o755,
                reference=reference,
                gui=fields.boolean("gui", default=False),
            )
        else:
            entry = cls._file(fields, path)
        fields.done()
        return entry

    @classmethod
    def _file(cls, fields: Fields, path: str) -> LayerEntry:
        mode = fields.integer("mode")
        if mode not in (0o644, 0o755):
            raise FormatError(
                "E-FORMAT", fields.path("mode"), expected="420 or 493 (0644 or 0755)", found=str(mode)
            )
        size = fields.integer("size")
        sha256 = fields.digest("sha256")
        inline: bytes | None = None
        text = fields.opt_text("inline")
        segments = fields.items("segments", Segment.read, ())
        if text is not None:
            try:
                inline = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as fault:
                raise FormatError("E-FORMAT", fields.path("inline"), expected="base64") from fault
            if segments or len(inline) != size or size > INLINE_LIMIT or Digest.of(inline) != sha256:
                raise FormatError(
                    "E-FORMAT", fields.path("inline"), expected="the file's own bytes and no segments"
                )
        elif sum(s.length for s in segments) != size:
            raise FormatError("E-FORMAT", fields.path("segments"), expected=f"{size} bytes in all")
        return cls(
            path=path,
            role=cast(
                "Role",
                fields.choice("role", ("file", "script", "record", "direct-url", "kernelspec"), "file"),
            ),
            mode=mode,
            size=size,
            sha256=sha256,
            segments=segments,
            inline=inline,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; defaults are left out."""
        if self.type == "symlink":
            return {"path": self.path, "type": "symlink", "link": self.link}
        if self.type == "entry-point":
            value = {"path": self.path, "type": "entry-point", "reference": self.reference}
            return {**value, "gui": True} if self.gui else value
        entry: dict[str, Any] = {
            "path": self.path,
            "mode": self.mode,
            "size": self.size,
            "sha256": str(self.sha256),
        }
        if self.role != "file":
            entry["role"] = self.role
        if self.inline is not None:
            entry["inline"] = base64.b64encode(self.inline).decode("ascii")
        elif self.segments:
            entry["segments"] = [[str(s.chunk), s.offset, s.length] for s in self.segments]
        return entry


def check_link(path: str, link: str) -> None:
    """Refuse a symlink at ``path`` (scheme path) that is absolute or leaves its scheme (E-PATH)."""
    depth = path.count("/") - 1
    parts = link.split("/")
    if not link or link.startswith("/") or any(ord(c) < 32 for c in link) or "\\" in link:
        raise IntegrityError(
            "E-PATH", ascii(path), expected="a relative link inside its scheme", found=ascii(link)[:200]
        )
    for part in parts:
        depth += -1 if part == ".." else 0 if part in (".", "") else 1
        if depth < 0:
            raise IntegrityError(
                "E-PATH", ascii(path), expected="a link that stays inside", found=ascii(link)[:200]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelRef:
    """The wheel a layer was made from."""

    filename: str
    sha256: Digest
    size: int

    @classmethod
    def from_dict(cls, value: Any, where: str = "wheel") -> WheelRef:
        """Read the JSON form."""
        fields = Fields(value, where)
        ref = cls(
            filename=RelPath(fields.text("filename")),
            sha256=fields.digest("sha256"),
            size=fields.integer("size"),
        )
        fields.done()
        return ref

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"filename": self.filename, "sha256": str(self.sha256), "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFile:
    """A file of the base distribution that an overlay replaces or removes, with the digest it must have."""

    path: str
    sha256: Digest

    @classmethod
    def from_dict(cls, value: Any, where: str = "base file") -> BaseFile:
        """Read the JSON form."""
        fields = Fields(value, where)
        base = cls(path=RelPath(fields.text("path")), sha256=fields.digest("sha256"))
        fields.done()
        return base

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"path": self.path, "sha256": str(self.sha256)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer list.

    ``distribution`` is the normalised name, ``version`` the distribution's own (for an overlay: its
    base's). ``chunks`` are the plain chunks in packing order with their sizes in bytes. ``replaces`` and
    ``removes`` are for overlays and use scheme paths of the base layer.
    """

    kind: LayerKind
    distribution: str
    version: str
    entries: tuple[LayerEntry, ...]
    chunks: tuple[tuple[Digest, int], ...] = ()
    wheel: WheelRef | None = None
    replaces: tuple[BaseFile, ...] = ()
    removes: tuple[BaseFile, ...] = ()

    @classmethod
    def from_dict(cls, value: Any, where: str = "layer") -> Layer:
        """Read the JSON form and check order, uniqueness and that segments lie inside their chunks."""
        fields = Fields(value, where)
        known_format(fields, FORMAT)
        wheel = fields.raw("wheel", None)
        layer = cls(
            kind=cast("LayerKind", fields.choice("kind", ("distribution", "overlay"))),
            distribution=fields.parsed("distribution", normalise_name),
            version=fields.parsed("version", check_version),
            entries=fields.items("entries", LayerEntry.from_dict),
            chunks=fields.items("chunks", _read_chunk),
            wheel=None if wheel is None else WheelRef.from_dict(wheel, fields.path("wheel")),
            replaces=fields.items("replaces", BaseFile.from_dict, ()),
            removes=fields.items("removes", BaseFile.from_dict, ()),
        )
        fields.done()
        layer.check(where)
        return layer

    def check(self, where: str = "layer") -> None:
        """Raise ``FormatError`` where entries are unsorted, repeated, or reach outside their chunks."""
        paths = [entry.path.encode("utf-8") for entry in self.entries]
        if any(paths[i] >= paths[i + 1] for i in range(len(paths) - 1)):
            raise FormatError("E-FORMAT", f"{where}.entries", expected="paths in strictly ascending order")
        sizes = dict(self.chunks)
        for entry in self.entries:
            for segment in entry.segments:
                if segment.offset + segment.length > sizes.get(segment.chunk, -1):
                    raise FormatError(
                        "E-FORMAT", f"{where}: {entry.path}", expected="segments inside listed chunks"
                    )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "kind": self.kind,
            "distribution": self.distribution,
            "version": self.version,
            "chunks": [[str(digest), size] for digest, size in self.chunks],
            "entries": [entry.to_dict() for entry in self.entries],
        }
        if self.wheel is not None:
            value["wheel"] = self.wheel.to_dict()
        if self.replaces:
            value["replaces"] = [item.to_dict() for item in self.replaces]
        if self.removes:
            value["removes"] = [item.to_dict() for item in self.removes]
        return value

    def to_bytes(self) -> bytes:
        """Return the canonical bytes whose digest names the layer."""
        return canonical(self.to_dict())

    @property
    def file_bytes(self) -> int:
        """The sum of the sizes of all files."""
        return sum(entry.size for entry in self.entries)


def sort_entries(entries: Iterable[LayerEntry]) -> tuple[LayerEntry, ...]:
    """Return entries in the order that a layer list demands."""
    return tuple(sorted(entries, key=lambda entry: entry.path.encode("utf-8")))


def _read_chunk(value: Any, where: str) -> tuple[Digest, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise FormatError("E-FORMAT", where, expected="[digest, size]")
    return read_digest(value[0], f"{where}[0]"), read_integer(value[1], f"{where}[1]")


def installed_path(scheme_path: str, *, python: str, distribution: str) -> str:
    """Return where a scheme path lands, relative to the prefix, in a POSIX virtual environment.

    ``python`` is ``3.N``. purelib and platlib are the same folder there, as in every venv on Linux.
    """
    scheme, _, relative = scheme_path.partition("/")
    if scheme in ("purelib", "platlib"):
        return f"lib/python{python}/site-packages/{relative}"
    if scheme == "scripts":
        return f"bin/{relative}"
    if scheme == "headers":
        return f"include/site/python{python}/{distribution}/{relative}"
    return relative
