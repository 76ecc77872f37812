"""Bytes from the store to the stage: each chunk is read, verified and decoded once per layer.

* A chunk's stored bytes have the digest and the bounds that the descriptor states before a byte of it is
  written; every file's sha256 is computed on what is handed to the kernel and compared with its entry. Its
  plain digest would say nothing more, so that pass is saved.
* Files are written in the order in which their bytes stand in chunks. Work is cut between files that share
  no chunk, and done by a few threads: hashing, decoding and writing release the interpreter's lock.
* Memory is bounded by a budget for chunks in flight, whatever the size of the bundle.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.errors import IntegrityError
from envbundle.store.codec import decode_unhashed
from envbundle.store.protocol import MAX_BLOB
from envbundle.store.read import blob_of, read_plain

from .rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from envbundle.host.tree import NewFile, Tree, Written
    from envbundle.spec.descriptor import Descriptor
    from envbundle.spec.digest import Digest
    from envbundle.spec.layer import Layer, LayerEntry, Segment
    from envbundle.store.protocol import Store

#: Bytes of stored and plain chunks that may be in memory at once.
BUDGET = 128 * 1024 * 1024
_OPEN_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file to be written: its installed path, its entry, and the mode it gets."""

    path: str
    entry: LayerEntry
    mode: int


class Materialiser:
    """Writes files of layers into a tree. ``done`` is called (by several threads) for each file written."""

    def __init__(
        self, store: Store, descriptor: Descriptor, tree: Tree, *, workers: int | None = None
    ) -> None:
        self._store, self._descriptor, self._tree = store, descriptor, tree
        self._workers = workers or min(4, os.cpu_count() or 1)
        self._rooms = Rooms(BUDGET)

    def write(
        self,
        layer: Layer,
        files: Sequence[Wanted],
        done: Callable[[Wanted, Written], None],
        *,
        check_unused: bool = False,
    ) -> None:
        """Write ``files``, entries of ``layer``; raises at the first fault, leaving half a stage.

        ``check_unused`` verifies the layer's other chunks too: a bundle is sound as a whole or refused.
        """
        self._write_all(list(_groups(layer, files)), done)
        if check_unused:
            used = {segment.chunk for wanted in files for segment in wanted.entry.segments}
            for digest, _ in layer.chunks:
                if digest not in used:
                    read_plain(self._store, self._descriptor, digest)

    def _write_all(
        self, groups: Sequence[Sequence[Sequence[Wanted]]], done: Callable[[Wanted, Written], None]
    ) -> None:
        if self._workers < 2 or len(groups) < 2:
            for group in groups:
                self._write_group(group, done)
            return
        with ThreadPoolExecutor(min(self._workers, len(groups)), "envbundle-write") as pool:
            futures = [pool.submit(self._write_group, group, done) for group in groups]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:
                for future in futures:
                    future.cancel()

    def _write_group(
        self, group: Sequence[Sequence[Wanted]], done: Callable[[Wanted, Written], None]
    ) -> None:
        with self._tree.again() as tree, _Chunk(self._store, self._descriptor, self._rooms) as chunk:
            for same in group:
                for start in range(0, len(same), _OPEN_AT_ONCE):
                    self._write_same(tree, chunk, same[start : start + _OPEN_AT_ONCE], done)

    def _write_same(
        self, tree: Tree, chunk: _Chunk, same: Sequence[Wanted], done: Callable[[Wanted, Written], None]
    ) -> None:
        """Write files that have the same bytes."""
        open_files: list[NewFile] = []
        try:
            for wanted in same:
                open_files.append(tree.new_file(wanted.path, wanted.mode))  # noqa: PERF401 - a fault half way
            for segment in same[0].entry.segments:
                data = chunk.part(segment)
                for file in open_files:
                    file.write(data)
            for wanted, file in zip(same, open_files, strict=True):
                written = file.finish()
                check_written(wanted.path, wanted.entry, written)
                done(wanted, written)
        except BaseException:
            for file in open_files:
                file.abandon()
            raise


def check_written(path: str, entry: LayerEntry, written: Written) -> None:
    """Raise ``IntegrityError`` (E-FILE-HASH) unless what was written is what the entry promises."""
    if entry.sha256 is None or written.size != entry.size or written.sha256 != entry.sha256.hex:
        raise IntegrityError(
            "E-FILE-HASH",
            ascii(path),
            expected=f"{entry.sha256} of {entry.size} bytes",
            found=f"sha256:{written.sha256} of {written.size} bytes",
            hint="the bundle contradicts itself: do not use it",
        )


def _groups(layer: Layer, files: Sequence[Wanted]) -> Iterator[list[list[Wanted]]]:
    """Yield runs of files (equal ones together) such that no two runs need the same chunk."""
    order = {digest: number for number, (digest, _) in enumerate(layer.chunks)}
    equal: dict[tuple[Segment, ...], list[Wanted]] = {}
    single: list[list[Wanted]] = []
    for wanted in files:
        if wanted.entry.segments:
            equal.setdefault(wanted.entry.segments, []).append(wanted)
        else:
            single.append([wanted])  # an empty file
    ordered = sorted(equal.items(), key=lambda item: (order[item[0][0].chunk], item[0][0].offset))
    reach: dict[Digest, int] = {}  # the last position at which a chunk is needed
    for position, (segments, _) in enumerate(ordered):
        for segment in segments:
            reach[segment.chunk] = position
    run: list[list[Wanted]] = []
    until = 0
    for position, (segments, same) in enumerate(ordered):
        if run and position > until:
            yield run
            run = []
        until = max([until, *(reach[segment.chunk] for segment in segments)])
        run.append(same)
    if run:
        yield run
    for start in range(0, len(single), 512):
        yield single[start : start + 512]


class _Chunk:
    """The one decoded chunk that a group of files is being cut from."""

    def __init__(self, store: Store, descriptor: Descriptor, rooms: Rooms) -> None:
        self._store, self._descriptor, self._rooms = store, descriptor, rooms
        self._digest: Digest | None = None
        self._data = memoryview(b"")
        self._room = bytearray()
        self._stored = 0

    def part(self, segment: Segment) -> memoryview:
        """Return the bytes of a segment, good until the next call; whoever writes them hashes them."""
        if segment.chunk != self._digest:
            self._drop()
            blob = blob_of(self._descriptor, segment.chunk)
            self._stored = blob.size
            self._room = self._rooms.take(
                0 if blob.encoding == "raw" else min(blob.plain_size, MAX_BLOB), self._stored
            )
            self._data = decode_unhashed(self._store.read(blob.blob, blob.size), blob, self._room)
            if blob.encoding != "raw":
                self._rooms.give(self._stored)
                self._stored = 0
            self._digest = segment.chunk
        return self._data[segment.offset : segment.offset + segment.length]

    def _drop(self) -> None:
        self._data = memoryview(b"")
        self._digest = None
        room, self._room = self._room, bytearray()
        stored, self._stored = self._stored, 0
        self._rooms.give(stored, room)

    def __enter__(self) -> _Chunk:  # noqa: PYI034 - typing.Self is Python 3.11's
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
