"""The far end of ``ssh://``: one file of the standard library alone, sent and run there (Python >= 3.8).

* Started by ``python3 -I -c`` with the constant ``BOOT``: it reads a length, this file, and a marker from
  standard input. The marker is printed on a line of its own; what a talking login shell printed before it
  is noise. Paths come in frames, never on a command line, so no shell ever reads one.
* A frame is a prefix (magic, kind, number, two lengths, CRC-32), a JSON head and a body. The CRC covers
  prefix and head; bodies are blobs, covered by their sha256, or state their own CRC in the head.
* One request, one answer, in order. Blobs get their final name by a rename, after our own hash; all are on
  the disk before the index is replaced, under the same locks that a local run takes.
* It ends when its input ends. Nothing of it stays behind.

The near side imports this module for the framing, so that both ends run the same code.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import struct
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    Reply = tuple[dict[str, Any], bytes]

# Nothing but what every Python from 3.8 on has, and no import that costs its start much.
# ruff: noqa: PTH100, PTH103, PTH104, PTH105, PTH108, PTH110, PTH111, PTH112, PTH113, PTH118, PTH120
# ruff: noqa: PTH106, PTH123, PTH208, UP031

BOOT = (
    "import sys;i=sys.stdin.buffer;"
    'sys.version_info<(3,8)and sys.exit("Python 3.8 or newer is needed, this is "+sys.version[:6]);'
    'exec(compile(i.read(int(i.readline())),"far_end","exec"),{"__name__":"__far__"})'
)
PROTOCOL = 1
REQUEST, ANSWER, FAULT = 1, 2, 3
PREFIX = struct.Struct(">2sBBIIII")
MAGIC = b"eB"
MAX_HEAD = 32 * 1024 * 1024
MAX_BODY = 64 * 1024 * 1024
MAX_DOCUMENT = 4 * 1024 * 1024
INCOMING = ".incoming"
LOCKS = ("index.lock", "writers.lock")
DOCUMENTS = ("oci-layout", "index.json")
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
EMPTY_INDEX = b'{"manifests":[],"mediaType":"application/vnd.oci.image.index.v1+json","schemaVersion":2}'
HEX = re.compile(r"[0-9a-f]{64}\Z")
EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
STEP = 1024 * 1024


class FrameError(Exception):
    """The bytes are no frame: the connection was damaged, or something else speaks there."""


class Fault(Exception):  # noqa: N818  it travels as a finding
    """A refusal with the fields of a finding; ``kind`` is ``host`` or ``integrity``."""

    def __init__(self, kind: str, code: str, subject: str, expected: str = "", found: str = "") -> None:
        super().__init__(code)
        self.fields = {
            "kind": kind,
            "code": code,
            "subject": subject,
            "expected": expected,
            "found": found,
        }


class Prefix(NamedTuple):
    """What stands before a frame's head; lengths in bytes."""

    kind: int
    number: int
    head: int
    body: int
    crc: int


def pack_frame(kind: int, number: int, head: dict[str, Any], body_size: int = 0) -> bytes:
    """Return prefix and head of a frame that ``body_size`` bytes follow."""
    data = json.dumps(head, separators=(",", ":")).encode("ascii")
    start = PREFIX.pack(MAGIC, kind, 0, number, len(data), body_size, 0)
    return (
        PREFIX.pack(MAGIC, kind, 0, number, len(data), body_size, zlib.crc32(data, zlib.crc32(start))) + data
    )


def parse_prefix(data: bytes) -> Prefix:
    """Return what the first bytes of a frame say; raises ``FrameError``."""
    if len(data) != PREFIX.size:
        raise FrameError("cut")
    magic, kind, zero, number, head, body, crc = PREFIX.unpack(data)
    if magic != MAGIC or zero or kind not in (REQUEST, ANSWER, FAULT) or head > MAX_HEAD or body > MAX_BODY:
        raise FrameError("not a frame: " + ascii(data)[:80])
    return Prefix(kind, number, head, body, crc)


def parse_head(prefix: Prefix, data: bytes) -> dict[str, Any]:
    """Return the JSON head of a frame; raises ``FrameError``."""
    start = PREFIX.pack(MAGIC, prefix.kind, 0, prefix.number, prefix.head, prefix.body, 0)
    if len(data) != prefix.head or zlib.crc32(data, zlib.crc32(start)) != prefix.crc:
        raise FrameError("a damaged head")
    try:
        head = json.loads(data)
    except ValueError as fault:
        raise FrameError("a head that is no JSON") from fault
    if not isinstance(head, dict):
        raise FrameError("a head that is no object")
    return head


def read_frame(read: Callable[[int], bytes]) -> tuple[Prefix, dict[str, Any], bytes] | None:
    """Return the next frame, or None at the stream's end; ``read(n)`` is short only there."""
    first = read(PREFIX.size)
    if not first:
        return None
    prefix = parse_prefix(first)
    head = parse_head(prefix, read(prefix.head))
    body = read(prefix.body) if prefix.body else b""
    if len(body) != prefix.body:
        raise FrameError("cut")
    return prefix, head, body


def state_crc(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return ``head`` with the CRC of a body that is no blob."""
    return dict(head, crc=zlib.crc32(body))


def check_crc(head: dict[str, Any], body: bytes) -> bytes:
    """Return a body that is no blob; raises ``FrameError`` where it is damaged."""
    if head.get("crc") != zlib.crc32(body):
        raise FrameError("a damaged body")
    return body


class FarStore:
    """The store in a folder of this machine, as the near side asks for it."""

    def __init__(self) -> None:
        self.root = ""
        self.made = ""
        self.unsynced: set[str] = set()
        self.held: dict[int, int] = {}
        self.index_lock = -1

    def op_open(self, head: dict[str, Any], _: bytes) -> Reply:
        """Choose the folder; with ``create`` make a store of one that is missing or empty."""
        self.root = os.path.abspath(os.path.expanduser(head["path"]))
        if head["create"]:
            self._create()
        elif not os.path.isdir(self.root):
            raise Fault("host", "E-NOT-FOUND", self.root, "a store", "no folder")
        elif not any(os.path.exists(self._path(name)) for name in (*DOCUMENTS, "blobs")):
            raise self._no_store()
        return {"root": self.root, "made": self.made}, b""

    def _create(self) -> None:
        there = os.path.exists(self.root)
        os.makedirs(self.root, exist_ok=True)
        names = set(os.listdir(self.root))
        self.made = "" if names else "content" if there else "folder"
        if DOCUMENTS[0] not in names and names - {"blobs", INCOMING, DOCUMENTS[1]}:
            raise self._no_store()
        os.makedirs(self._path("blobs", "sha256"), exist_ok=True)
        os.makedirs(self._path(INCOMING), exist_ok=True)
        lock = self._lock(LOCKS[0], fcntl.LOCK_EX)
        try:
            for name, data in ((DOCUMENTS[1], EMPTY_INDEX), (DOCUMENTS[0], LAYOUT)):
                if not os.path.exists(self._path(name)):
                    self._replace(self._path(name), data, sync=False)
        finally:
            os.close(lock)

    def _no_store(self) -> Fault:
        found = "a folder with something else in it"
        return Fault("host", "E-NOT-A-STORE", self.root, "an OCI image layout", found)

    def _path(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def _blob(self, digest: str) -> str:
        if not HEX.match(digest):
            raise Fault("integrity", "E-PATH", ascii(digest)[:100], "64 hex digits")
        return self._path("blobs", "sha256", digest)

    def _size(self, digest: str) -> int:
        try:
            status = os.lstat(self._blob(digest))
        except (FileNotFoundError, NotADirectoryError):
            return -1
        return status.st_size if stat.S_ISREG(status.st_mode) else -1

    def op_lacking(self, head: dict[str, Any], _: bytes) -> Reply:
        """Return the positions of those (digest, size) that are not there."""
        blobs = enumerate(head["blobs"])
        return {"lacking": [n for n, (digest, size) in blobs if self._size(digest) != size]}, b""

    def op_read(self, head: dict[str, Any], _: bytes) -> Reply:
        """Return a blob of the stated size; who asked hashes it."""
        with self._open(head["digest"]) as stream:
            found = os.fstat(stream.fileno()).st_size
            if found != head["size"] or found > MAX_BODY:
                raise Fault(
                    "integrity", "E-BLOB-SIZE", head["digest"], "%d bytes" % head["size"], "%d bytes" % found
                )
            data = stream.read(found)
        if len(data) != found:
            raise Fault(
                "integrity", "E-BLOB-SIZE", head["digest"], "%d bytes" % found, "%d bytes" % len(data)
            )
        return {}, data

    def _open(self, digest: str) -> BinaryIO:
        path = self._blob(digest)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as fault:
            if fault.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
                raise Fault("integrity", "E-BLOB-MISSING", digest, "a blob in " + self.root, "none") from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Fault("integrity", "E-BLOB-MISSING", digest, "a blob in " + self.root, "no file")
        return os.fdopen(fd, "rb", buffering=0)

    def op_rehash(self, head: dict[str, Any], _: bytes) -> Reply:
        """Return the sha256 of what stands under a digest."""
        with self._open(head["digest"]) as stream:
            return {"digest": _hash(stream)}, b""

    def op_put(self, head: dict[str, Any], body: bytes) -> Reply:
        """Keep a blob whose sha256 was found right, by a rename."""
        digest = head["digest"]
        found = hashlib.sha256(body).hexdigest()
        if found != digest:
            raise Fault("integrity", "E-BLOB-HASH", "blob on the way to " + self.root, digest, found)
        final = self._blob(digest)
        if self._size(digest) != len(body):
            stage = self._path(INCOMING, digest + "." + secrets.token_hex(6))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                fd = os.open(stage, flags, 0o644)
            except FileNotFoundError:
                os.makedirs(self._path(INCOMING), exist_ok=True)
                os.makedirs(os.path.dirname(final), exist_ok=True)
                fd = os.open(stage, flags, 0o644)
            try:
                try:
                    _write_all(fd, body)
                    _begin_to_flush(fd)
                finally:
                    os.close(fd)
                os.rename(stage, final)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(stage)
                raise
            self.unsynced.add(digest)
        return {}, b""

    def op_flush(self, _: dict[str, Any], __: bytes) -> Reply:
        """Bring the blobs that were put to the disk."""
        waiting, self.unsynced = sorted(self.unsynced), set()
        for digest in waiting:
            with contextlib.suppress(FileNotFoundError):
                _sync(self._blob(digest))
        if waiting:
            _sync(self._path("blobs", "sha256"))
        return {}, b""

    def op_blobs(self, _: dict[str, Any], __: bytes) -> Reply:
        """Return all blobs, in the body: lines of digest and size."""
        rows = (
            "%s %d\n" % (name, status.st_size)
            for name, status in self._scan("blobs", "sha256")
            if HEX.match(name) and stat.S_ISREG(status.st_mode)
        )
        body = "".join(rows).encode("ascii")
        return state_crc({}, body), body

    def op_remove(self, head: dict[str, Any], _: bytes) -> Reply:
        """Drop a blob."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._blob(head["digest"]))
        return {}, b""

    def op_documents(self, _: dict[str, Any], __: bytes) -> Reply:
        """Return ``oci-layout`` and ``index.json``."""
        datas = []
        for name in DOCUMENTS:
            if not os.path.isfile(self._path(name)):
                raise Fault(
                    "format", "E-STORE-LAYOUT", self._path(name), "a file of every OCI image layout", "none"
                )
            with open(self._path(name), "rb") as stream:
                datas.append(stream.read(MAX_DOCUMENT + 1))
        body = b"".join(datas)
        return state_crc({"first": len(datas[0])}, body), body

    def op_index_begin(self, _: dict[str, Any], __: bytes) -> Reply:
        """Take the index's lock and return the documents."""
        if self.index_lock < 0:
            self.index_lock = self._lock(LOCKS[0], fcntl.LOCK_EX)
        return self.op_documents({}, b"")

    def op_index_commit(self, head: dict[str, Any], body: bytes) -> Reply:
        """Replace the index, after all blobs are on the disk, and let go of its lock."""
        if self.index_lock < 0:
            raise Fault("host", "E-STORE-BUSY", self.root, "the index's lock", "none")
        check_crc(head, body)
        self.op_flush({}, b"")
        self._replace(self._path(DOCUMENTS[1]), body)
        return self.op_index_abort({}, b"")

    def op_index_abort(self, _: dict[str, Any], __: bytes) -> Reply:
        """Let go of the index's lock."""
        if self.index_lock >= 0:
            os.close(self.index_lock)
            self.index_lock = -1
        return {}, b""

    def op_hold(self, head: dict[str, Any], _: bytes) -> Reply:
        """Take the writers' lock, shared, or alone where nobody has it; ``release`` lets go."""
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if head["alone"] else fcntl.LOCK_SH
        try:
            fd = self._lock(LOCKS[1], how)
        except BlockingIOError:
            raise Fault("host", "E-STORE-BUSY", self.root, "nobody writing") from None
        self.held[fd] = fd
        return {"held": fd}, b""

    def op_release(self, head: dict[str, Any], _: bytes) -> Reply:
        """Let go of what ``hold`` took."""
        fd = self.held.pop(head["held"], -1)
        if fd >= 0:
            os.close(fd)
        return {}, b""

    def _lock(self, name: str, how: int) -> int:
        os.makedirs(self._path(INCOMING), exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path(INCOMING, name), flags, 0o644)
        try:
            fcntl.flock(fd, how)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def op_burst(self, head: dict[str, Any], _: bytes) -> Reply:
        """Return random bytes, so that somebody may see how fast they come."""
        body = os.urandom(min(int(head["size"]), 16 * STEP))
        return state_crc({}, body), body

    def op_free(self, _: dict[str, Any], __: bytes) -> Reply:
        """Return the bytes and the files that can still be written there."""
        volume = os.statvfs(self.root)
        return {"bytes": volume.f_bavail * volume.f_frsize}, b""

    def op_extras(self, _: dict[str, Any], __: bytes) -> Reply:
        """Return the names that are no part of the layout, and those that an interrupted run left."""
        extras = [n for n, _ in self._scan() if n not in (*DOCUMENTS, INCOMING, "blobs")]
        extras += ["blobs/" + n for n, _ in self._scan("blobs") if n != "sha256"]
        extras += [
            "blobs/sha256/" + n
            for n, status in self._scan("blobs", "sha256")
            if not (HEX.match(n) and stat.S_ISREG(status.st_mode))
        ]
        left = [INCOMING + "/" + n for n, _ in self._scan(INCOMING) if n not in LOCKS]
        return {"extras": extras, "leftovers": left}, b""

    def op_rehash_extra(self, head: dict[str, Any], _: bytes) -> Reply:
        """Return the sha256 of a file beside the layout."""
        path = self._extra(head["name"])
        if not os.path.isfile(path):
            raise Fault("host", "E-NOT-FOUND", path, "a file", "none")
        with open(path, "rb", buffering=0) as stream:
            return {"digest": _hash(stream)}, b""

    def op_put_extra(self, head: dict[str, Any], body: bytes) -> Reply:
        """Write a file beside the layout."""
        self._replace(self._extra(head["name"]), check_crc(head, body))
        return {}, b""

    def _extra(self, name: str) -> str:
        if not EXTRA.match(name) or name in (*DOCUMENTS, "blobs"):
            raise Fault("integrity", "E-PATH", ascii(name)[:200], "one plain file name beside the layout")
        return self._path(name)

    def op_sweep(self, head: dict[str, Any], _: bytes) -> Reply:
        """Drop leftovers."""
        there = {INCOMING + "/" + n for n, _ in self._scan(INCOMING) if n not in LOCKS}
        for name in there & set(head["names"]):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(name))
        return {}, b""

    def op_unmake(self, _: dict[str, Any], __: bytes) -> Reply:
        """Remove what ``open`` made, if the store holds nothing."""
        with contextlib.suppress(OSError):
            with open(self._path(DOCUMENTS[1]), "rb") as stream:
                empty = stream.read(MAX_DOCUMENT) == EMPTY_INDEX
            extras = self.op_extras({}, b"")[0]
            nothing = not (self._scan("blobs", "sha256") or extras["extras"] or extras["leftovers"])
            if self.made and empty and nothing:
                for name in DOCUMENTS:
                    os.unlink(self._path(name))
                for name in ("blobs", INCOMING):
                    shutil.rmtree(self._path(name))
                if self.made == "folder":
                    os.rmdir(self.root)
        return {}, b""

    def _scan(self, *names: str) -> list[tuple[str, os.stat_result]]:
        try:
            with os.scandir(self._path(*names)) as entries:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda item: item[0])

    def _replace(self, path: str, data: bytes, sync: bool = True) -> None:
        folder, name = os.path.split(path)
        stage = os.path.join(folder, "." + name + "." + secrets.token_hex(6) + ".tmp")
        try:
            fd = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                _write_all(fd, data)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(stage, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(stage)
            raise
        if sync:
            _sync(folder)


def _hash(stream: BinaryIO) -> str:
    state = hashlib.sha256()
    while True:
        data = stream.read(STEP)
        if not data:
            return state.hexdigest()
        state.update(data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _begin_to_flush(fd: int) -> None:
    """Let the disk begin now with what the index will wait for; on Linux this advice starts the writing."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        with contextlib.suppress(OSError):
            advise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def answer(store: Any, head: dict[str, Any], body: bytes) -> tuple[int, dict[str, Any], bytes]:
    """Return kind, head and body of the answer to one request."""
    try:
        method = getattr(store, "op_" + str(head.get("op")), None)
        if method is None:
            asked = Fault("host", "E-FAR-PROTOCOL", ascii(head.get("op"))[:100], "a known request")
            return FAULT, asked.fields, b""
        reply, data = method(head, body)
    except Fault as fault:
        return FAULT, fault.fields, b""
    except OSError as fault:
        subject = fault.filename if isinstance(fault.filename, str) else getattr(store, "root", "")
        fields = {"kind": "os", "errno": fault.errno or 0, "subject": subject, "found": fault.strerror or ""}
        return FAULT, fields, b""
    except (FrameError, KeyError, TypeError, ValueError) as fault:
        return FAULT, Fault("host", "E-FAR-PROTOCOL", "request", "its fields", ascii(fault)[:200]).fields, b""
    return ANSWER, reply, data


def serve(read: Callable[[int], bytes], write: Callable[[bytes], Any], store: Any) -> None:
    """Answer requests until the input ends."""
    while True:
        frame = read_frame(read)
        if frame is None:
            return
        prefix, head, body = frame
        kind, reply, data = answer(store, head, body)
        del frame, body
        write(pack_frame(kind, prefix.number, reply, len(data)))
        if data:
            write(data)
        del data


def main() -> None:
    """Speak over standard input and output; whatever else would print goes to standard error."""
    source = sys.stdin.buffer
    marker = source.readline()
    out = os.dup(1)
    os.dup2(2, 1)
    _write_all(out, b"\n" + marker)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        ready = {
            "protocol": PROTOCOL,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "home": os.path.expanduser("~"),
        }
        _write_all(out, pack_frame(ANSWER, 0, ready))
        serve(source.read, lambda data: _write_all(out, data), FarStore())


if __name__ == "__far__":
    main()
