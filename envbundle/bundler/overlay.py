"""An overlay folder and its base layer, as locked -> an overlay layer.

* The folder must hold exactly the files that the lock names, with the bytes it names: whoever edits a patch
  locks again, so that what was judged is what is packed (E-OVERLAY-CHANGED).
* What the lock says of the base (replaced and removed files, with digests) must be so in the base layer
  (E-OVERLAY-LOCK): the installer then knows what it covers without looking.
* Modes come from the lock, never from the disk, so the packing machine's umask does not matter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError, VerdictError
from envbundle.spec.finding import Finding
from envbundle.spec.layer import BaseFile, Layer, LayerEntry
from envbundle.spec.names import RelPath

from .draft import LayerDraft, is_left_out

if TYPE_CHECKING:
    from envbundle.host.folder import FileSource
    from envbundle.spec.digest import Digest
    from envbundle.spec.lock import LockedOverlay, OverlayFile

    from .chunks import LayerChunks


def draft_overlay(locked: LockedOverlay, base: Layer, source: FileSource, chunks: LayerChunks) -> LayerDraft:
    """Return the layer of one overlay, closed, its chunks on their way.

    Raises ``VerdictError`` (E-OVERLAY-CHANGED) with every file that differs from the lock, and
    ``IntegrityError`` (E-OVERLAY-LOCK) where the lock does not fit the base layer.
    """
    prefix = check_listing(locked, source)
    files, replaces, removes = lay_over(locked, base)
    draft = LayerDraft(
        kind="overlay",
        distribution=base.distribution,
        version=base.version,
        chunks=chunks,
        replaces=replaces,
        removes=removes,
    )
    changed: list[Finding] = []
    for path, file in files:
        blocks = source.blocks(file.path.removeprefix(prefix))
        entry = draft.add(path, mode=file.mode, size=file.size, claimed=file.sha256, blocks=blocks)
        if entry.sha256 != file.sha256:
            changed.append(_changed(locked, file.path, str(file.sha256), str(entry.sha256)))
    _refuse(changed)
    draft.close()
    return draft


def check_files(locked: LockedOverlay, source: FileSource) -> None:
    """Raise ``VerdictError`` (E-OVERLAY-CHANGED) unless the folder holds the locked files, byte for byte."""
    prefix = check_listing(locked, source)
    changed = []
    for file in locked.files:
        sha256 = hashlib.sha256()
        for block in source.blocks(file.path.removeprefix(prefix)):
            sha256.update(block)
        if sha256.hexdigest() != file.sha256.hex:
            changed.append(_changed(locked, file.path, str(file.sha256), f"sha256:{sha256.hexdigest()}"))
    _refuse(changed)


def check_listing(locked: LockedOverlay, source: FileSource) -> str:
    """Raise ``VerdictError`` (E-OVERLAY-CHANGED) unless the folder holds the locked names and sizes.

    Returns what stands before the folder's paths in site-packages: ``""`` or ``"P/"``.
    """
    listed = {file.path: file.size for file in source.files() if not _ignored(file.path)}
    prefix = _prefix(locked, set(listed))
    held = {prefix + path: size for path, size in listed.items()}
    wanted = {file.path: file.size for file in locked.files}
    changed = [
        _changed(locked, path, _size_text(wanted.get(path)), _size_text(held.get(path)))
        for path in sorted({*wanted, *held})
        if wanted.get(path) != held.get(path)
    ]
    _refuse(changed)
    return prefix


def _ignored(path: str) -> bool:
    """Whether locking passes a file of the folder over: what Python writes there."""
    return "__pycache__" in path.split("/")


def _prefix(locked: LockedOverlay, listed: set[str]) -> str:
    """Return the package that the folder stands for, as ``"P/"``; ``""`` where that is site-packages.

    The lock holds site-packages paths alone; whichever reading finds more of them in the folder is meant.
    """
    names = [file.path for file in locked.files]
    tops = {name.partition("/")[0] for name in names}
    inside = f"{tops.pop()}/" if len(tops) == 1 else ""
    as_package = sum(name.removeprefix(inside) in listed for name in names)
    return inside if as_package > sum(name in listed for name in names) else ""


def lay_over(
    locked: LockedOverlay, base: Layer
) -> tuple[list[tuple[str, OverlayFile]], tuple[BaseFile, ...], tuple[BaseFile, ...]]:
    """Return the overlay's files by scheme path, what they replace, what is removed; all sorted by path.

    A file that replaces one of the base goes where that stands; a new one goes to the base's root scheme.
    Raises ``IntegrityError`` (E-OVERLAY-LOCK).
    """
    if base.wheel is None or base.wheel.sha256 != locked.base_wheel:
        raise _unfit(locked, "the base wheel", str(locked.base_wheel), str(base.wheel and base.wheel.sha256))
    root = _root_scheme(base)
    there: dict[str, LayerEntry] = {}
    for scheme in ("purelib", "platlib") if root == "platlib" else ("platlib", "purelib"):
        there.update({entry.relative: entry for entry in base.entries if entry.scheme == scheme})
    files: list[tuple[str, OverlayFile]] = []
    replaces: list[BaseFile] = []
    for file in locked.files:
        old = there.get(RelPath(file.path))
        if (old.sha256 if old else None) != file.replaces:
            raise _unfit(
                locked, file.path, _digest_text(file.replaces), _digest_text(old.sha256 if old else None)
            )
        path = old.path if old else f"{root}/{file.path}"
        files.append((path, file))
        if file.replaces is not None:
            replaces.append(BaseFile(path=path, sha256=file.replaces))
    removes: list[BaseFile] = []
    for removed, digest in locked.removes:
        old = there.get(RelPath(removed))
        if old is None and is_left_out(f"{root}/{removed}"):
            continue
        if old is None or old.sha256 != digest:
            raise _unfit(locked, removed, str(digest), _digest_text(old.sha256 if old else None))
        removes.append(BaseFile(path=old.path, sha256=digest))
    files.sort(key=lambda item: item[0].encode("utf-8"))
    return files, _sorted(replaces), _sorted(removes)


def _root_scheme(base: Layer) -> str:
    """Return where the wheel's root went: its metadata always lies there."""
    for entry in base.entries:
        if entry.relative.endswith(".dist-info/METADATA") and entry.relative.count("/") == 1:
            return entry.scheme
    return "purelib"


def _sorted(items: list[BaseFile]) -> tuple[BaseFile, ...]:
    return tuple(sorted(items, key=lambda item: item.path.encode("utf-8")))


def _size_text(size: int | None) -> str:
    return "no file" if size is None else f"{size} bytes"


def _digest_text(digest: Digest | None) -> str:
    return "no file" if digest is None else str(digest)


def _changed(locked: LockedOverlay, path: str, expected: str, found: str) -> Finding:
    return Finding(
        code="E-OVERLAY-CHANGED",
        severity="error",
        subject=f"{locked.path}/{path}",
        expected=f"{expected}, as locked",
        found=found,
        hint="the overlay was edited after it was locked: lock again, then pack",
    )


def _refuse(changed: list[Finding]) -> None:
    if changed:
        raise VerdictError.of(changed)


def _unfit(locked: LockedOverlay, path: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        "E-OVERLAY-LOCK",
        f"overlay of {locked.distribution}: {path}",
        expected=f"{expected} in the base, as locked",
        found=found,
        hint="the lock does not fit its own wheel: lock again",
    )
