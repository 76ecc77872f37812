"""Plain chunks into a store: compressed in a thread pool, in bounded memory, with the same outcome always.

* Each chunk is encoded alone by one thread; what is stored depends on its bytes, the level and whether
  small files are packed in it, never on which thread was first.
* The plain bytes in flight are bounded; ``ChunkWriter.add`` waits when they would be more.
* A chunk that was stored before in this run is not compressed again.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbundle.spec.descriptor import Blob
from envbundle.spec.digest import Digest
from envbundle.store.codec import encode

from .packing import BIG_PIECE_SIZE

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self  # a type checker has it; nothing imports it at run time

    from envbundle.store import Store

    from .packing import ChunkTicket

MAX_THREADS = 3
"""One inflating thread feeds two; each more keeps memory all the same: zstd contexts and freed buffers."""
IN_FLIGHT = 2 * BIG_PIECE_SIZE
"""Plain bytes on their way at most. Each costs as much again while it is encoded, beside a pack and a piece
that are being filled: 192 MiB where nothing compresses. One thread inflates: more would not be faster."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Plain bytes that are in the store: their digest, and the blob that holds them."""

    plain: Digest
    blob: Blob


class _Ticket:
    def __init__(self, future: Future[StoredChunk]) -> None:
        self._future = future

    def digest(self) -> Digest:
        return self._future.result().plain

    def stored(self) -> StoredChunk:
        return self._future.result()

    def done(self) -> bool:
        return self._future.done()


class ChunkWriter:
    """A context manager that stores chunks; leaving it by an exception drops what has not begun.

    ``level`` is zstd's. ``workers`` is the number of threads, at most 3 (None: by the CPUs it may use). The
    store's ``has`` and ``put`` are called from these threads.
    """

    def __init__(self, store: Store, *, level: int = 1, workers: int | None = None) -> None:
        """Prepare; threads start with the first chunk."""
        self._store, self._level = store, level
        threads = max(1, min(MAX_THREADS, usable_cpus() if workers is None else workers))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="envbundle-chunk")
        self._room = _Room(IN_FLIGHT)
        self._known: dict[tuple[Digest, bool], StoredChunk] = {}
        self._fresh: dict[Digest, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._room.stop(error)
        self._pool.shutdown(wait=True, cancel_futures=error is not None)

    @property
    def new_bytes(self) -> int:
        """The stored bytes that this run added to the store."""
        return sum(self._fresh.values())

    def layer(self) -> LayerChunks:
        """Return the sink for the chunks of one layer."""
        return LayerChunks(self)

    def put(self, plain: bytes) -> StoredChunk:
        """Store one document (layer list, lock, manifest) in the calling thread."""
        return self._write(plain, packed=False, digest=None)

    def submit(self, plain: bytes, *, packed: bool, digest: Digest | None) -> _Ticket:
        """Hand one chunk to the pool; waits for room, raises what another chunk's writing raised."""
        size = len(plain)
        self._room.take(size)
        return _Ticket(self._pool.submit(self._work, plain, packed=packed, digest=digest, size=size))

    def _work(self, plain: bytes, *, packed: bool, digest: Digest | None, size: int) -> StoredChunk:
        try:
            return self._write(plain, packed=packed, digest=digest)
        except BaseException as error:
            self._room.stop(error)
            raise
        finally:
            del plain
            self._room.give(size)

    def _write(self, plain: bytes, *, packed: bool, digest: Digest | None) -> StoredChunk:
        sha256 = Digest.of(plain) if digest is None else digest
        known = self._known.get((sha256, packed))
        if known is not None:
            return known
        data, encoding = encode(plain, level=self._level, long=packed)
        stored = Digest.of(data)
        blob = Blob(blob=stored, size=len(data), plain_size=len(plain), encoding=encoding)
        if not self._store.has(stored, len(data)):
            # Two threads may both come here with equal bytes: counted once, and storing twice is harmless.
            self._fresh[stored] = len(data)
            self._store.put(data)
        return self._known.setdefault((sha256, packed), StoredChunk(sha256, blob))


class LayerChunks:
    """The chunks of one layer, on their way to the store (a ``ChunkSink``)."""

    def __init__(self, writer: ChunkWriter) -> None:
        """Collect tickets of ``writer``."""
        self._writer = writer
        self._tickets: list[_Ticket] = []

    def add(self, plain: bytes, *, packed: bool, digest: Digest | None = None) -> ChunkTicket:
        """Take one chunk."""
        ticket = self._writer.submit(plain, packed=packed, digest=digest)
        self._tickets.append(ticket)
        return ticket

    def put_list(self, data: bytes) -> StoredChunk:
        """Store the layer's own list."""
        return self._writer.put(data)

    def stored(self) -> tuple[StoredChunk, ...]:
        """Wait for all chunks and return them in packing order; raises what writing one of them raised."""
        return tuple(ticket.stored() for ticket in self._tickets)

    def ready(self) -> bool:
        """Whether ``stored`` would not wait."""
        return all(ticket.done() for ticket in self._tickets)


class _Room:
    """Counts the bytes in flight; a chunk larger than the whole room passes when it is empty."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def take(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or not self._used or self._used + size <= self._limit
            )
            if self._error is not None:
                raise self._error
            self._used += size

    def give(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def stop(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()


def usable_cpus() -> int:
    """Return the number of CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
