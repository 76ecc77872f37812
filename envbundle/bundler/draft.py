"""A layer being made: entries are collected in path order while their chunks are still being written.

* ``LayerDraft.finish`` waits for the chunks; until then any number of later layers may be begun.
* Roles: which files an installer may change, by their path alone (docs/format.md, "Roles"). Those of at most
  64 KiB keep their bytes in the list, so that a reused layer needs no chunk for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding
from envbundle.spec.layer import (
    INLINE_LIMIT,
    BaseFile,
    Layer,
    LayerEntry,
    LayerKind,
    Role,
    WheelRef,
    sort_entries,
)

from .packing import PackedFile, Packer, exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.descriptor import Blob
    from envbundle.spec.lock import LockedPackage

    from .chunks import LayerChunks

#: The version of the rules by which wheels and overlays become entries (roles, what is left out, inlining).
#: Change it with any of them: it keeps layers made by older rules out of new bundles.
LAYER_RULE = 1

_ROLES: tuple[tuple[re.Pattern[str], Role], ...] = (
    (re.compile(r"scripts/.+"), "script"),
    (re.compile(r"(pure|plat)lib/[^/]+\.dist-info/RECORD"), "record"),
    (re.compile(r"(pure|plat)lib/[^/]+\.dist-info/direct_url\.json"), "direct-url"),
    (re.compile(r"data/share/jupyter/kernels/[^/]+/kernel\.json"), "kernelspec"),
)
_EXECUTED_TOOLS = frozenset({"ptxas", "nvcc", "cuobjdump", "nvdisasm", "fatbinary", "nvlink", "cicc"})
_LEFT_OUT = re.compile(
    r"""
      (.*/)? __pycache__/ [^/]+ \.pyc
    | (pure|plat)lib/ [^/]+ \.dist-info/ (INSTALLER | REQUESTED | RECORD\.jws | RECORD\.p7s)
    """,
    re.VERBOSE,
)


def role_of(path: str) -> Role:
    """Return the role of a file from its scheme path."""
    return next((role for pattern, role in _ROLES if pattern.fullmatch(path)), "file")


def is_left_out(path: str) -> bool:
    """Return whether a scheme path is made anew by every installation and so never part of a layer."""
    return _LEFT_OUT.fullmatch(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLayer:
    """A finished layer, the canonical bytes of its list, and the blobs of list and chunks by plain digest."""

    layer: Layer
    data: bytes
    blobs: dict[Digest, Blob]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True, kw_only=True)
class LayerDraft:
    """What is known of a layer so far. Files come through ``add`` in order of their scheme paths' bytes."""

    kind: LayerKind
    distribution: str
    version: str
    chunks: LayerChunks
    wheel: WheelRef | None = None
    replaces: tuple[BaseFile, ...] = ()
    removes: tuple[BaseFile, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    _entries: list[LayerEntry] = field(default_factory=list)
    _files: list[tuple[LayerEntry, PackedFile]] = field(default_factory=list)
    _packer: Packer = field(init=False)

    def __post_init__(self) -> None:
        self._packer = Packer(self.chunks)

    def add(
        self, path: str, *, mode: int, size: int, claimed: Digest | None, blocks: Iterable[bytes]
    ) -> LayerEntry:
        """Take one file of ``size`` bytes and return its entry, with its true digest and without segments.

        ``mode`` is 0o644 or 0o755. The caller compares the digest with ``claimed``.
        """
        role = role_of(path)
        head = _Head(blocks)
        if role != "file" and size <= INLINE_LIMIT:
            data = b"".join(exactly(path, size, head))
            entry = LayerEntry(
                path=path, role=role, mode=mode, size=len(data), sha256=Digest.of(data), inline=data
            )
            self._entries.append(entry)
        else:
            packed = self._packer.add(path, size, claimed, head)
            entry = LayerEntry(path=path, role=role, mode=mode, size=size, sha256=packed.sha256)
            self._files.append((entry, packed))
        if mode == 0o644 and path.rpartition("/")[2] in _EXECUTED_TOOLS and head.start == b"\x7fELF":
            self.findings.append(_not_executable(path, self.distribution, self.version))
        return entry

    def add_bare(self, entry: LayerEntry) -> None:
        """Take an entry that has no bytes (an entry point)."""
        self._entries.append(entry)

    def close(self) -> None:
        """Say that no file will follow."""
        self._packer.close()

    def ready(self) -> bool:
        """Whether ``finish`` would not wait."""
        return self.chunks.ready()

    def finish(self) -> MadeLayer:
        """Wait for the chunks, store the list, and return the layer."""
        files = [
            LayerEntry(
                path=entry.path,
                role=entry.role,
                mode=entry.mode,
                size=entry.size,
                sha256=entry.sha256,
                segments=self._packer.segments(packed),
            )
            for entry, packed in self._files
        ]
        layer = Layer(
            kind=self.kind,
            distribution=self.distribution,
            version=self.version,
            entries=sort_entries([*self._entries, *files]),
            chunks=self._packer.chunks(),
            wheel=self.wheel,
            replaces=self.replaces,
            removes=self.removes,
        )
        layer.check(f"layer of {self.distribution}")
        data = layer.to_bytes()
        stored = (*self.chunks.stored(), self.chunks.put_list(data))
        blobs: dict[Digest, Blob] = {}
        for chunk in stored:
            blobs.setdefault(chunk.plain, chunk.blob)
        return MadeLayer(layer=layer, data=data, blobs=blobs, findings=tuple(self.findings))


class _Head:
    """Passes blocks on and keeps the first four bytes: enough to know an ELF file."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.start = b""

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            if len(self.start) < 4:
                self.start += block[: 4 - len(self.start)]
            yield block


def _not_executable(path: str, distribution: str, version: str) -> Finding:
    return Finding(
        code="W-MODE",
        severity="warning",
        subject=f"{distribution} {version}: {path}",
        expected="a program that may be executed",
        found="mode 0644",
        hint="whoever starts it gets a permission error: have the wheel rebuilt with the mode",
    )


def check_identity(package: LockedPackage, name: str, version: str) -> None:
    """Raise ``IntegrityError`` (E-WHEEL-NAME) unless a wheel's name and version are the locked ones."""
    if (name, version) == (package.name, package.version):
        return
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  slow to import, rarely needed

    try:
        same = name == package.name and Version(version) == Version(package.version)
    except InvalidVersion:
        same = version == package.version
    if not same:
        raise IntegrityError(
            "E-WHEEL-NAME",
            package.wheel.filename,
            expected=f"{package.name} {package.version}, as locked",
            found=f"{name} {version}",
            hint="lock again: the lock does not fit its own wheel",
        )
