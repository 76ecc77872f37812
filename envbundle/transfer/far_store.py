"""``FarStore``: a store in a folder of another machine, through one or more channels to far ends there.

* What may run at once goes to the channel with the fewest requests under way; locks and the index go
  through the first one alone. More channels are opened when there is work for them; one that does not come
  up is done without.
* Every blob is hashed on this side when it is read, and on the far side before it gets its name.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, FormatError, TransferError
from envbundle.progress import SILENT, Reporter
from envbundle.spec.digest import Digest
from envbundle.store.blob import check_blob, check_extra_name, wrong_size
from envbundle.store.oci import INDEX_FILE, LAYOUT_FILE, ImageIndex
from envbundle.store.protocol import MAX_BLOB

from .far_end import FrameError, check_crc, state_crc
from .index import parse_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from envbundle.store.oci import TagEntry

    from .channel import Channel


class FarStore:
    """The store in the folder ``path`` (``~`` is the home folder) of the machine that ``connect`` leads to.

    ``connect(n)`` opens the n-th channel, counted from 0; at most ``streams`` are opened. Raises what
    ``connect`` raises, and as ``DirectoryStore``.
    """

    def __init__(
        self,
        connect: Callable[[int], Channel],
        path: str,
        *,
        create: bool = False,
        streams: int = 1,
        reporter: Reporter = SILENT,
    ) -> None:
        self._connect, self._path, self._streams, self._reporter = connect, path, streams, reporter
        self._first = connect(0)
        self.name = self._first.label
        self._channels = [self._first]
        self._opened = 1
        self._lock, self._index_lock = threading.Lock(), threading.RLock()
        self._opening: list[threading.Thread] = []
        if self._first.noise:
            reporter.note(f"{self.name}: the login shell there prints: {self._first.noise[:400]}")
        try:
            reply, _ = self._first.call("open", path=path, create=create)
        except BaseException:
            self._first.close()
            raise
        self.root = str(reply.get("root", path))
        self._made = bool(reply.get("made"))

    def _call(self, op: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            channel = min(self._channels, key=lambda one: one.busy)
            more = channel.busy > 0 and self._opened < self._streams
            if more:
                self._opened += 1
                thread = threading.Thread(target=self._open_another, args=(self._opened - 1,), daemon=True)
                self._opening.append(thread)
                thread.start()
        return channel.call(op, body, **fields)

    def _open_another(self, number: int) -> None:
        try:
            channel = self._connect(number)
            try:
                channel.call("open", path=self.root, create=False)
            except BaseException:
                channel.close()
                raise
        except EnvbundleError as fault:
            with self._lock:
                self._streams = min(self._streams, len(self._channels))
            self._reporter.note(f"{self.name}: going on with {len(self._channels)} streams: {fault.found}")
            return
        with self._lock:
            self._channels.append(channel)

    @property
    def channels(self) -> int:
        """How many channels are open."""
        return len(self._channels)

    def has(self, digest: Digest, size: int) -> bool:
        """See ``Store.has``."""
        return not self.lacking([(digest, size)])

    def lacking(self, blobs: Iterable[tuple[Digest, int]]) -> frozenset[Digest]:
        """See ``Store.lacking``."""
        asked = list(blobs)
        reply, _ = self._call("lacking", blobs=[(digest.hex, size) for digest, size in asked])
        positions = reply.get("lacking")
        if not isinstance(positions, list) or not set(positions) <= set(range(len(asked))):
            raise self._confused("lacking")
        return frozenset(asked[position][0] for position in positions)

    def read(self, digest: Digest, size: int) -> bytes:
        """See ``Store.read``."""
        if size > MAX_BLOB:
            raise wrong_size(digest, self.name, MAX_BLOB, str(size))
        return check_blob(self._call("read", digest=digest.hex, size=size)[1], digest, size, self.name)

    def rehash(self, digest: Digest) -> Digest:
        """See ``Store.rehash``."""
        return self._digest(self._call("rehash", digest=digest.hex)[0])

    def put(self, data: bytes) -> Digest:
        """See ``Store.put``."""
        digest = Digest.of(data)
        self.put_checked(digest, data)
        return digest

    def put_checked(self, digest: Digest, data: bytes) -> None:
        """Keep ``data``, which was found to have ``digest`` already; the far side hashes it in any case."""
        self._call("put", data, digest=digest.hex)

    def blobs(self) -> Iterator[tuple[Digest, int]]:
        """See ``Store.blobs``."""
        reply, body = self._call("blobs")
        rows = [
            line.partition(" ") for line in self._sound(reply, body).decode("ascii", "replace").splitlines()
        ]
        try:
            found = [(Digest(digest), int(size)) for digest, _, size in rows]
        except (EnvbundleError, ValueError) as fault:
            raise self._confused("blobs") from fault
        yield from found

    def remove(self, digest: Digest) -> None:
        """See ``Store.remove``."""
        self._call("remove", digest=digest.hex)

    def tags(self) -> tuple[TagEntry, ...]:
        """See ``Store.tags``."""
        return tuple(sorted(self.read_index().entries, key=lambda entry: entry.tag))

    def read_index(self) -> ImageIndex:
        """See ``Store.read_index``."""
        return parse_layout(dict(self.documents()))

    def documents(self) -> tuple[tuple[str, bytes], ...]:
        """See ``Store.documents``."""
        return self._documents(*self._call("documents"))

    def _documents(self, reply: dict[str, Any], body: bytes) -> tuple[tuple[str, bytes], ...]:
        first = reply.get("first")
        data = self._sound(reply, body)
        if not isinstance(first, int) or not 0 <= first <= len(data):
            raise self._confused("documents")
        return ((LAYOUT_FILE, data[:first]), (INDEX_FILE, data[first:]))

    def write_index(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        """See ``Store.write_index``; the index is locked there while ``change`` runs here."""
        with self._index_lock:
            try:
                held = self._documents(*self._first.call("index_begin"))
                data = change(parse_layout(dict(held))).to_bytes()
                index = ImageIndex.from_bytes(data)
                for channel in self._channels[1:]:
                    channel.call("flush")
                self._first.call("index_commit", data, **state_crc({}, data))
            except BaseException:
                with contextlib.suppress(EnvbundleError):
                    self._first.call("index_abort")
                raise
            return index

    def extras(self) -> tuple[str, ...]:
        """See ``Store.extras``."""
        return self._names("extras")

    def leftovers(self) -> tuple[str, ...]:
        """See ``Store.leftovers``."""
        return self._names("leftovers")

    def _names(self, key: str) -> tuple[str, ...]:
        names = self._call("extras")[0].get(key)
        if not isinstance(names, list):
            raise self._confused("extras")
        return tuple(str(name) for name in names)

    def rehash_extra(self, name: str) -> Digest:
        """See ``Store.rehash_extra``."""
        return self._digest(self._call("rehash_extra", name=name)[0])

    def put_extra(self, name: str, data: bytes) -> None:
        """See ``Store.put_extra``."""
        self._call("put_extra", data, name=check_extra_name(name), **state_crc({}, data))

    def sweep(self, names: Iterable[str]) -> None:
        """See ``Store.sweep``."""
        self._call("sweep", names=list(names))

    @contextlib.contextmanager
    def _holding(self, *, alone: bool) -> Iterator[None]:
        held = self._first.call("hold", alone=alone)[0].get("held")
        try:
            yield
        finally:
            with contextlib.suppress(TransferError):  # a connection that ended has let go by itself
                self._first.call("release", held=held)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See ``Store.alone``."""
        with self._index_lock, self._holding(alone=True):
            try:
                self._first.call("index_begin")
                yield
            finally:
                with contextlib.suppress(TransferError):
                    self._first.call("index_abort")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """See ``Store.writing``."""
        with self._holding(alone=False):
            yield

    def free(self) -> int | None:
        """See ``Store.free``."""
        found = self._call("free")[0].get("bytes")
        return found if isinstance(found, int) else None

    def unmake(self) -> None:
        """Remove what opening made, if the store holds nothing."""
        if self._made:
            with contextlib.suppress(EnvbundleError):
                self._first.call("unmake")

    def close(self) -> None:
        """End all channels."""
        for thread in self._opening:
            thread.join(30.0)
        for channel in reversed(self._channels):
            channel.close()

    def _digest(self, reply: dict[str, Any]) -> Digest:
        try:
            return Digest(str(reply.get("digest")))
        except EnvbundleError as fault:
            raise self._confused("digest") from fault

    def _sound(self, reply: dict[str, Any], body: bytes) -> bytes:
        try:
            return check_crc(reply, body)
        except FrameError as fault:
            raise self._confused(str(fault)) from fault

    def _confused(self, what: str) -> FormatError:
        return FormatError("E-FAR-PROTOCOL", self.name, expected=f"an answer to {what}", found="another form")
