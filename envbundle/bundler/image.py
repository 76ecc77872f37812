"""A wheel -> a layer: members in the order of their installed paths, each inflated once, in bounded memory.

* The wheel must be the locked one, byte for byte, and the distribution that the lock names (E-HASH,
  E-SIZE, E-WHEEL-NAME); the rest of what a wheel must be is ``envbundle.inspection.wheel``'s to check.
* Every member's bytes are compared with the wheel's own RECORD as they go by (E-RECORD-HASH).
* What every installation writes anew is left out, console and GUI scripts become ``entry-point`` entries
  (entry points specification), everything else is kept as it is (docs/format.md, "Layer list").
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO

from envbundle.errors import IntegrityError
from envbundle.inspection.wheel import WheelContents, WheelMember, iter_members, read_wheel
from envbundle.inspection.zipdir import MemberStream, read_pieces
from envbundle.spec.layer import LayerEntry, WheelRef

from .draft import LayerDraft, check_identity, is_left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envbundle.spec.lock import LockedPackage, LockedWheel

    from .chunks import LayerChunks

_BLOCK = 1024 * 1024


def draft_wheel(
    package: LockedPackage,
    stream: BinaryIO,
    chunks: LayerChunks,
    *,
    advance: Callable[[int], None] | None = None,
) -> LayerDraft:
    """Return the layer of one locked wheel, closed, its chunks on their way.

    ``stream`` is seekable and holds the wheel; ``advance`` hears of bytes of the wheel that are done. Raises
    ``IntegrityError`` with the codes of the module's rules and of ``envbundle.inspection.wheel``.
    """
    check_bytes(package.wheel, stream)
    contents = read_wheel(stream, package.wheel.filename)
    check_identity(package, contents.name, contents.version)
    draft = LayerDraft(
        kind="distribution",
        distribution=contents.name,
        version=contents.version,
        chunks=chunks,
        wheel=WheelRef(filename=package.wheel.filename, sha256=package.wheel.sha256, size=package.wheel.size),
    )
    scripts = {entry.path: entry for entry in entry_points(contents)}
    for entry in scripts.values():
        draft.add_bare(entry)
    for member in sorted(contents.members, key=lambda member: member.path.encode("utf-8")):
        if not is_left_out(member.path) and member.path not in scripts:
            _add_member(draft, stream, contents, member)
        if advance is not None:
            advance(member.entry.stored_size)
    draft.close()
    return draft


def _add_member(draft: LayerDraft, stream: BinaryIO, contents: WheelContents, member: WheelMember) -> None:
    claimed = member.digest
    entry = draft.add(
        member.path,
        mode=member.mode,
        size=member.size,
        claimed=claimed,
        blocks=_blocks(stream, contents, member),
    )
    if claimed is not None and entry.sha256 != claimed:
        raise IntegrityError(
            "E-RECORD-HASH",
            f"{contents.filename}: {ascii(member.name)[1:-1]}",
            expected=str(claimed),
            found=str(entry.sha256),
            hint="the wheel contradicts its own RECORD: fetch it again, from whom you trust",
        )


def _blocks(stream: BinaryIO, contents: WheelContents, member: WheelMember) -> Iterator[bytes]:
    if member.promise is not None and member.digest is None:
        # RECORD promises sha384 or sha512: the reader compares those.
        for _, pieces in iter_members(stream, contents, [member]):
            yield from pieces
        return
    # A sha256 is made anyway when the file is packed, so it is not made twice.
    yield from read_pieces(MemberStream(stream, member.entry, contents.filename, rewinds=False))


def entry_points(contents: WheelContents) -> tuple[LayerEntry, ...]:
    """Return the entries of a wheel's console and GUI scripts; a name in both groups is a GUI script."""
    found: dict[str, LayerEntry] = {}
    for group, gui in (("console_scripts", False), ("gui_scripts", True)):
        for point in contents.entry_points:
            if point.group == group:
                path = f"scripts/{point.name}"
                reference = f"{point.module}:{point.attribute}" if point.attribute else point.module
                found[path] = LayerEntry(
                    path=path, type="entry-point", mode=0o755, reference=reference, gui=gui
                )
    return tuple(found.values())


def check_bytes(wheel: LockedWheel, stream: BinaryIO) -> None:
    """Raise ``IntegrityError`` (E-SIZE, E-HASH) unless ``stream`` holds the locked wheel; rewinds it."""
    size = stream.seek(0, 2)
    if size != wheel.size:
        raise _not_locked("E-SIZE", wheel, f"{wheel.size} bytes", f"{size} bytes")
    stream.seek(0)
    sha256 = hashlib.sha256()
    while block := stream.read(_BLOCK):
        sha256.update(block)
    if sha256.hexdigest() != wheel.sha256.hex:
        raise _not_locked("E-HASH", wheel, str(wheel.sha256), f"sha256:{sha256.hexdigest()}")
    stream.seek(0)


def _not_locked(code: str, wheel: LockedWheel, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        code,
        wheel.filename,
        expected=f"{expected}, as locked",
        found=found,
        hint="get the wheel again, or lock again",
    )
