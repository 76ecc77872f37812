"""Every member of a wheel in one reading: its digest, and what its binary holds and needs.

Inflating is what reading a wheel costs, so the hash is taken of the bytes that the scan reads anyway.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, BinaryIO

from envbundle.spec.digest import Digest

from .member import MemberStream
from .scan import worth_scanning
from .wheel import compare_hash, scan_member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envbundle.spec.coverage import FileScan

    from .wheel import WheelContents, WheelMember

_HEAD = 4096


def read_members(
    stream: BinaryIO, contents: WheelContents
) -> Iterator[tuple[WheelMember, Digest, FileScan | None]]:
    """Yield each member with its sha256 and, as ``scan_wheel`` gives it, its scan; inflated once for both.

    Raises ``IntegrityError`` (E-RECORD-HASH, E-SIZE, E-WHEEL-ZIP).
    """
    for member in contents.members:
        state, promise = hashlib.sha256(), member.promise
        other = None if promise is None or promise.algorithm == "sha256" else hashlib.new(promise.algorithm)

        def watch(data: bytes, state: Any = state, other: Any = other) -> None:
            state.update(data)
            if other is not None:
                other.update(data)

        opened = MemberStream(stream, member.entry, contents.filename, watch=watch)
        scan = None
        if member.size and worth_scanning(member.name, opened.read(_HEAD)):
            scan = scan_member(opened, member)
        opened.drain()
        if promise is not None:
            compare_hash(contents, member, promise, (other or state).hexdigest())
        known = scan is not None and (scan.kind != "other" or scan.has_gpu_code)
        yield member, Digest(state.hexdigest()), scan if known else None
