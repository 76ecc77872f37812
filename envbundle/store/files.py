"""Hashing a layer's files out of its chunks, each chunk decoded once, in bounded memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbundle.spec.digest import Digest
from envbundle.spec.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from envbundle.spec.layer import Layer, Segment


@dataclass(slots=True)
class _Content:
    """Files with the same segments: they are hashed once. ``next`` is the first segment not yet hashed."""

    segments: tuple[Segment, ...]
    paths: list[tuple[str, Digest]] = field(default_factory=list)
    state: hashlib._Hash = field(default_factory=hashlib.sha256)
    next: int = 0

    def feed(self, chunk: Digest, data: memoryview) -> None:
        """Hash the run of segments that begins at ``next`` and lies in ``chunk``."""
        while self.next < len(self.segments) and self.segments[self.next].chunk == chunk:
            segment = self.segments[self.next]
            self.state.update(data[segment.offset : segment.offset + segment.length])
            self.next += 1

    @property
    def wanted(self) -> Digest | None:
        """The chunk that the next segment lies in."""
        return self.segments[self.next].chunk if self.next < len(self.segments) else None


def check_files(
    layer: Layer, chunks: Callable[[Iterable[Digest]], Iterator[tuple[Digest, bytes]]]
) -> Iterator[Finding]:
    """Yield a finding (E-FILE-HASH) for each file of ``layer`` whose segments are not its ``sha256``.

    ``chunks`` yields (plain digest, bytes) of the chunks asked for, in their order, and leaves out what it
    cannot read: files of such a chunk get no finding here. A chunk is asked for once, and again only where a
    file comes back to it (a file with repeated pieces).
    """
    contents: dict[tuple[Segment, ...], _Content] = {}
    for entry in layer.entries:
        if entry.type == "file" and entry.inline is None and entry.sha256 is not None:
            contents.setdefault(entry.segments, _Content(entry.segments)).paths.append(
                (entry.path, entry.sha256)
            )
    order = [digest for digest, _ in layer.chunks]
    while True:
        waiting: dict[Digest, list[_Content]] = {}
        for content in contents.values():
            for digest in dict.fromkeys(s.chunk for s in content.segments[content.next :]):
                waiting.setdefault(digest, []).append(content)
        asked = [digest for digest in order if digest in waiting]
        moved = False
        for digest, data in chunks(asked):
            view = memoryview(data)
            for content in waiting[digest]:
                if content.wanted == digest:
                    content.feed(digest, view)
                    moved = True
        if not moved:
            break
    for content in contents.values():
        if content.wanted is None:
            found = Digest(content.state.hexdigest())
            for path, expected in content.paths:
                if found != expected:
                    yield Finding(
                        code="E-FILE-HASH",
                        severity="error",
                        subject=f"{layer.distribution}: {path}",
                        expected=str(expected),
                        found=str(found),
                        hint="the bundle contradicts itself: pack it again",
                    )
