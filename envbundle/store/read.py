"""Reading a bundle's plain content: the descriptor says where it stands, and what must come out."""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from envbundle.errors import FormatError, IntegrityError
from envbundle.spec.layer import Layer

from .codec import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from envbundle.spec.descriptor import Blob, Descriptor, LayerRef
    from envbundle.spec.digest import Digest

    from .protocol import Store


def read_plain(store: Store, descriptor: Descriptor, plain: Digest) -> bytes:
    """Return the bytes whose digest is ``plain``; every hash and bound on the way is checked.

    Raises ``IntegrityError``: E-BLOB-UNNAMED if the descriptor maps no blob to it, and those of
    ``Store.read`` and ``codec.decode``.
    """
    blob = blob_of(descriptor, plain)
    return decode(store.read(blob.blob, blob.size), blob, plain)


def blob_of(descriptor: Descriptor, plain: Digest) -> Blob:
    """Return the blob that holds the bytes whose digest is ``plain``; raises E-BLOB-UNNAMED."""
    blob = descriptor.blobs.get(plain)
    if blob is None:
        raise IntegrityError(
            "E-BLOB-UNNAMED", str(plain), expected="a blob named by the descriptor", found="none"
        )
    return blob


def read_ahead(
    store: Store, descriptor: Descriptor, plains: Iterable[Digest], *, workers: int
) -> Iterator[tuple[Digest, bytes]]:
    """Yield (plain digest, bytes) in the given order while ``workers`` threads read and decode what follows.

    In memory are at most ``workers`` + 1 plain chunks, and ``workers`` stored ones. A fault is raised where
    the turn of its chunk comes. Raises as ``read_plain``.
    """
    if workers < 2:
        for plain in plains:
            yield plain, read_plain(store, descriptor, plain)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="envbundle-read") as pool:
        waiting: deque[tuple[Digest, Future[bytes]]] = deque()
        try:
            for plain in plains:
                waiting.append((plain, pool.submit(read_plain, store, descriptor, plain)))
                if len(waiting) > workers:
                    yield _next(waiting)
            while waiting:
                yield _next(waiting)
        finally:
            for _, future in waiting:
                future.cancel()


def _next(waiting: deque[tuple[Digest, Future[bytes]]]) -> tuple[Digest, bytes]:
    """Take the first of ``waiting``; here, so that no local variable keeps its bytes alive."""
    plain, future = waiting.popleft()
    return plain, future.result()


def read_layer(store: Store, descriptor: Descriptor, ref: LayerRef) -> Layer:
    """Return the layer that ``ref`` names, read strictly and found equal to what ``ref`` says of it.

    Raises ``IntegrityError``; E-LAYER-MISMATCH where list and reference disagree, or the list needs a chunk
    that the descriptor does not name.
    """
    return parse_layer(read_plain(store, descriptor, ref.list), descriptor, ref)


def parse_layer(data: bytes, descriptor: Descriptor, ref: LayerRef) -> Layer:
    """Return the layer in ``data``, the plain bytes of ``ref.list``; see ``read_layer``."""
    where = f"layer {ref.distribution}"
    if len(data) != ref.list_size:
        raise _mismatch(f"{where}: size of its list", str(ref.list_size), str(len(data)))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise FormatError("E-FORMAT", where, expected="JSON", found=str(fault)[:200]) from fault
    layer = Layer.from_dict(value, where)
    try:
        same = layer.to_bytes() == data
    except ValueError:  # text that no UTF-8 can hold
        same = False
    if not same:
        raise FormatError("E-FORMAT", where, expected="canonical JSON, as docs/format.md defines it")
    stated = (ref.kind, ref.distribution, ref.version, ref.files, ref.bytes)
    held = (layer.kind, layer.distribution, layer.version, len(layer.entries), layer.file_bytes)
    if stated != held:
        raise _mismatch(where, str(stated), str(held))
    for digest, size in layer.chunks:
        blob = descriptor.blobs.get(digest)
        held_size = -1 if blob is None else blob.plain_size
        if held_size != size:
            found = "no blob" if blob is None else f"one of {held_size}"
            raise _mismatch(f"{where}: chunk {digest}", f"a blob of {size} plain bytes", found)
    return layer


def _mismatch(subject: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        "E-LAYER-MISMATCH",
        subject,
        expected=expected,
        found=found,
        hint="do not use this bundle: pack it again",
    )
