"""Lock -> bundle: every wheel and overlay becomes a layer in a store, and one descriptor names them all.

* The same lock, manifest and bytes give the same descriptor on any machine: layers stand in order of
  distribution names, whatever the order of work; threads change nothing (``envbundle.bundler.chunks``).
* A wheel that was made into a layer before, and whose blobs are all in the store, is not opened.
* Nothing can be seen in the store until ``envbundle.bundler.sign.commit_signed``: what a failed run leaves
  are blobs that no bundle names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from envbundle.errors import IntegrityError
from envbundle.progress import SILENT, Reporter
from envbundle.spec.descriptor import Blob, Descriptor
from envbundle.spec.digest import Digest
from envbundle.spec.layer import WheelRef
from envbundle.store.codec import codec_line

from .cache import LayerCache, layer_key
from .chunks import ChunkWriter
from .content import Ordered, content_of
from .draft import check_identity
from .overlay import check_files, draft_overlay

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from envbundle.host.folder import FileSource
    from envbundle.spec.descriptor import Origin
    from envbundle.spec.finding import Finding
    from envbundle.spec.lock import Lock, LockedOverlay, LockedPackage, LockedWheel
    from envbundle.spec.manifest import Manifest
    from envbundle.store import Store

    from .draft import LayerDraft, MadeLayer

TASK = "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """What a pack made. ``layers_reused`` of ``layers`` were not read again; ``chunks`` are plain chunks.

    ``plain_bytes`` and ``stored_bytes`` are those of everything that the descriptor names (equal blobs
    once); ``new_bytes`` of them were not in the store before. ``findings`` refuse nothing (W-MODE, W-CASE).
    """

    descriptor: Descriptor
    layers: int
    layers_reused: int
    chunks: int
    plain_bytes: int
    stored_bytes: int
    new_bytes: int
    findings: tuple[Finding, ...] = ()


def pack(
    lock: Lock,
    manifest: Manifest,
    *,
    lock_bytes: bytes,
    manifest_bytes: bytes,
    store: Store,
    find_wheel: Callable[[LockedWheel], AbstractContextManager[BinaryIO]],
    overlay_folder: Callable[[LockedOverlay], FileSource],
    cache: Path | None = None,
    level: int = 1,
    workers: int | None = None,
    reporter: Reporter = SILENT,
) -> PackResult:
    """Put everything that ``lock`` names into ``store`` and return the descriptor, not yet visible.

    ``lock_bytes`` and ``manifest_bytes`` are the documents as they stand on the disk; that they belong to
    each other is the caller's to check. ``find_wheel`` opens the bytes of one wheel (seekable); they are
    hashed here. ``overlay_folder`` gives the files of one overlay. ``cache`` is a folder that remembers
    layers (None: none is remembered); ``level`` is zstd's; ``workers`` the number of compressing threads
    (at most 3). The caller holds ``store.writing()`` around this and the commit.

    Raises ``IntegrityError`` (a wheel that is not the locked one, E-RECORD and other faults of wheels,
    E-OVERLAY-LOCK), ``VerdictError`` (E-OVERLAY-CHANGED, E-OVERLAP, E-RESERVED-PATH), ``HostError``.
    """
    codec = codec_line(level)
    memory = LayerCache(cache, reporter) if cache is not None else None
    reporter.start(TASK, total=sum(package.wheel.size for package in lock.packages))
    with ChunkWriter(store, level=level, workers=workers) as writer:
        work = _Work(store=store, writer=writer, codec=codec, memory=memory, reporter=reporter)
        packages = sorted(lock.packages, key=lambda package: package.name)
        overlays = sorted(lock.overlays, key=lambda overlay: overlay.distribution)
        for overlay in overlays:
            # Before minutes are spent on wheels; the bytes are compared again as they are packed.
            check_files(overlay, overlay_folder(overlay))
        for package in packages:
            work.wheel(package, find_wheel)
        bases = dict(zip((package.name for package in packages), work.finish(), strict=True))
        for overlay in overlays:
            work.overlay(overlay, _base(overlay, bases), overlay_folder(overlay))
        layers = work.finish()
        documents = [writer.put(lock_bytes), writer.put(manifest_bytes)]
        new_bytes = writer.new_bytes
    origins: list[Origin] = [package.origin for package in packages]
    origins += ["installed-tree"] * len(overlays)
    content, findings = content_of(
        lock,
        manifest,
        lock_digest=documents[0].plain,
        ordered=Ordered(layers=layers, origins=tuple(origins)),
    )
    blobs: dict[Digest, Blob] = {}
    for plain, blob in (
        *((plain, blob) for made in layers for plain, blob in made.blobs.items()),
        *((document.plain, document.blob) for document in documents),
    ):
        blobs.setdefault(plain, blob)
    descriptor = Descriptor(content=content, codec=codec, manifest=documents[1].plain, blobs=blobs)
    reporter.finish(TASK)
    return PackResult(
        descriptor=descriptor,
        layers=len(layers),
        layers_reused=work.reused,
        chunks=len({digest for made in layers for digest, _ in made.layer.chunks}),
        plain_bytes=sum(blob.plain_size for blob in blobs.values()),
        stored_bytes=sum({blob.blob: blob.size for blob in blobs.values()}.values()),
        new_bytes=new_bytes,
        findings=findings,
    )


class _Work:
    """Layers in the order asked for; a layer's chunks are still written while the next one is read."""

    def __init__(
        self, *, store: Store, writer: ChunkWriter, codec: str, memory: LayerCache | None, reporter: Reporter
    ) -> None:
        self._store, self._writer, self._codec = store, writer, codec
        self._memory, self._reporter = memory, reporter
        self._slots: list[MadeLayer | tuple[Digest, LayerDraft]] = []
        self.reused = 0

    def wheel(
        self, package: LockedPackage, find_wheel: Callable[[LockedWheel], AbstractContextManager[BinaryIO]]
    ) -> None:
        wheel = WheelRef(
            filename=package.wheel.filename, sha256=package.wheel.sha256, size=package.wheel.size
        )
        key = layer_key(self._codec, {"wheel": wheel.to_dict()})
        made = self._reuse(key)
        if made is not None:
            check_identity(package, made.layer.distribution, made.layer.version)
            self._reporter.advance(TASK, wheel.size)
            return
        # Imported where a wheel is read: a pack that reuses all layers would spend most of its time on it.
        from .image import draft_wheel  # noqa: PLC0415

        with find_wheel(package.wheel) as stream:
            draft = draft_wheel(
                package, stream, self._writer.layer(), advance=lambda n: self._reporter.advance(TASK, n)
            )
        self._begin(key, draft)

    def overlay(self, locked: LockedOverlay, base: MadeLayer, source: FileSource) -> None:
        key = layer_key(self._codec, {"overlay": _overlay_source(locked), "base": str(Digest.of(base.data))})
        if self._reuse(key) is None:
            self._begin(key, draft_overlay(locked, base.layer, source, self._writer.layer()))

    def _reuse(self, key: Digest) -> MadeLayer | None:
        made = self._memory.find(key) if self._memory is not None else None
        if made is None or self._store.lacking((blob.blob, blob.size) for blob in made.blobs.values()):
            return None
        self._slots.append(made)
        self.reused += 1
        return made

    def _begin(self, key: Digest, draft: LayerDraft) -> None:
        self._slots.append((key, draft))
        for number, slot in enumerate(self._slots):
            if isinstance(slot, tuple) and slot[1].ready():
                self._slots[number] = self._finish(*slot)

    def _finish(self, key: Digest, draft: LayerDraft) -> MadeLayer:
        made = draft.finish()
        if self._memory is not None:
            self._memory.keep(key, made)
        return made

    def finish(self) -> tuple[MadeLayer, ...]:
        """Return all layers so far, in the order asked for."""
        layers = tuple(self._finish(*slot) if isinstance(slot, tuple) else slot for slot in self._slots)
        self._slots = list(layers)
        return layers


def _base(overlay: LockedOverlay, bases: dict[str, MadeLayer]) -> MadeLayer:
    base = bases.get(overlay.distribution)
    if base is None:
        raise IntegrityError(
            "E-OVERLAY-LOCK",
            f"overlay of {overlay.distribution}",
            expected="a locked distribution of that name",
            found="none",
            hint="lock again: the lock does not fit itself",
        )
    return base


def _overlay_source(locked: LockedOverlay) -> dict[str, Any]:
    """Return everything of a locked overlay that its layer depends on: not where its folder is."""
    return {
        "base_wheel": str(locked.base_wheel),
        "files": [
            [
                file.path,
                str(file.sha256),
                file.size,
                file.mode,
                None if file.replaces is None else str(file.replaces),
            ]
            for file in locked.files
        ],
        "removes": [[path, str(digest)] for path, digest in locked.removes],
    }
