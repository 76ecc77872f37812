"""The chunk codec: plain bytes <-> one stored blob (docs/format.md, "Chunk codec").

* A blob is one independent zstd frame, made by one thread, with its content size in the header and no
  checksum, or the plain bytes as they are where zstd would gain less than 5 %.
* ``long`` adds long-distance matching with a window of 32 MiB: for chunks that hold many small files.
* Equal bytes come out wherever the codec line is equal: the line names the libzstd that is really loaded.
* Decoding checks every bound that the header states *before* it allocates, and the digest after.

python-zstandard refuses to load when its libzstd is not the one it was built for, so its version is the
loaded one's; from Python 3.14 on the standard library's codec stands in where it is missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any, Protocol

from envbundle.errors import HostError, IntegrityError, UserInputError
from envbundle.spec.digest import Digest

from .frame import MAX_WINDOW, FrameError, read_frame
from .protocol import MAX_BLOB

if TYPE_CHECKING:
    from envbundle.spec.descriptor import Blob, Encoding

DEFAULT_LEVEL = 1
LEVELS = range(1, 20)
LONG_WINDOW_LOG = 25
#: The version of the rule by which files are cut into chunks; change it with the rule.
PACKING_RULE = 1


class _Binding(Protocol):
    version: str

    def compress(self, plain: bytes, level: int, long: bool) -> bytes: ...
    def decompress(self, stored: bytes, size: int) -> bytes: ...
    def decompress_into(self, stored: bytes, room: memoryview) -> bytes | memoryview: ...


def codec_line(level: int) -> str:
    """Return the line that a descriptor states: equal lines and equal plain chunks give equal blobs.

    ``level`` is zstd's, 1 to 19; raises ``UserInputError`` (E-LEVEL) for another.
    """
    _check_level(level)
    return (
        f"zstd-{_binding().version} level {level}"
        f" long-window 2^{LONG_WINDOW_LOG} raw-under 5% packing {PACKING_RULE}"
    )


def encode(plain: bytes, *, level: int, long: bool) -> tuple[bytes, Encoding]:
    """Return the bytes to store for ``plain`` (at most 64 MiB) and how they are encoded."""
    _check_level(level)
    if len(plain) > MAX_BLOB:
        raise ValueError(f"a chunk of {len(plain)} bytes: at most {MAX_BLOB}")
    if plain:
        stored = _binding().compress(plain, level, long)
        if len(stored) * 20 <= len(plain) * 19:
            return stored, "zstd"
    return bytes(plain), "raw"


def decode(stored: bytes, blob: Blob, plain: Digest) -> bytes:
    """Return the plain bytes of ``stored``, which ``Store.read`` has found to be ``blob.blob``.

    ``blob`` is what the descriptor says of it, ``plain`` the digest that must come out. Raises
    ``IntegrityError``: E-BLOB-BOUND where sizes or window pass the bounds, E-BLOB-DECODE where the frame is
    not the one frame it should be, E-PLAIN-HASH where other bytes come out. Thread-safe.
    """
    data = _opened(stored, blob, None)
    # Raw bytes have been hashed already: by the store, as the blob that they are.
    found = blob.blob if blob.encoding == "raw" else Digest.of(data)
    if found != plain:
        raise _fault("E-PLAIN-HASH", blob, str(plain), str(found))
    return bytes(data)


def decode_unhashed(stored: bytes, blob: Blob, room: bytearray) -> memoryview:
    """Return the plain bytes of ``stored``, in ``room`` where they had to be decompressed.

    For callers that hold every byte they use against another digest of the descriptor. ``room`` has at least
    ``blob.plain_size`` bytes; used again and again it costs no fresh pages, which for gigabytes is as much
    as the decoding. Raises as ``decode``, but for E-PLAIN-HASH.
    """
    return memoryview(_opened(stored, blob, room))


def _opened(stored: bytes, blob: Blob, room: bytearray | None) -> bytes | memoryview:
    if blob.plain_size > MAX_BLOB or blob.size > MAX_BLOB:
        raise _fault(
            "E-BLOB-BOUND", blob, f"at most {MAX_BLOB} bytes", f"{max(blob.plain_size, blob.size)} bytes"
        )
    data = stored if blob.encoding == "raw" else _decompress(stored, blob, room)
    if len(data) != blob.plain_size:
        raise _fault("E-BLOB-DECODE", blob, f"{blob.plain_size} plain bytes", f"{len(data)} bytes")
    return data


def _decompress(stored: bytes, blob: Blob, room: bytearray | None) -> bytes | memoryview:
    try:
        frame = read_frame(stored)
    except FrameError as fault:
        raise _fault("E-BLOB-DECODE", blob, "one zstd frame", str(fault)) from fault
    if frame.content_size != blob.plain_size:
        raise _fault(
            "E-BLOB-BOUND", blob, f"a frame of {blob.plain_size} bytes", f"{frame.content_size} bytes stated"
        )
    if frame.window_size > MAX_WINDOW:
        raise _fault(
            "E-BLOB-BOUND", blob, f"a window of at most {MAX_WINDOW} bytes", f"{frame.window_size} bytes"
        )
    if room is None:
        return _binding().decompress(stored, blob.plain_size)
    return _binding().decompress_into(stored, memoryview(room)[: blob.plain_size])


def _fault(code: str, blob: Blob, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        code, f"blob {blob.blob}", expected=expected, found=found, hint="do not use this bundle"
    )


def _check_level(level: int) -> None:
    if level not in LEVELS:
        raise UserInputError(
            "E-LEVEL",
            "level",
            expected=f"{LEVELS.start} to {LEVELS.stop - 1}",
            found=str(level),
            hint="1 is the default",
        )


@functools.cache
def _binding() -> _Binding:
    for name, binding in (("zstandard", _Zstandard), ("compression.zstd", _Stdlib)):
        with contextlib.suppress(ImportError):  # imported late: only packing and unpacking need it
            return binding(importlib.import_module(name))
    raise HostError(
        "E-NO-ZSTD", "zstd", expected="the package zstandard, or Python 3.14", hint="pip install zstandard"
    )


class _Zstandard:
    """The package ``zstandard``; contexts are kept per thread, as they cost more than a small chunk."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._local = threading.local()
        self.version = ".".join(map(str, module.ZSTD_VERSION))

    def compress(self, plain: bytes, level: int, long: bool) -> bytes:
        kept = self._local.__dict__.setdefault("compressors", {})
        if (level, long) not in kept:
            more = {"enable_ldm": True, "window_log": LONG_WINDOW_LOG} if long else {}
            parameters = self._module.ZstdCompressionParameters(
                compression_level=level, write_content_size=True, write_checksum=False, threads=0, **more
            )
            kept[level, long] = self._module.ZstdCompressor(compression_params=parameters)
        stored: bytes = kept[level, long].compress(plain)
        return stored

    def decompress(self, stored: bytes, size: int) -> bytes:
        try:
            plain: bytes = self._decompressor().decompress(stored, max_output_size=size)
        except self._module.ZstdError as fault:
            raise _damaged(fault) from fault
        return plain

    def decompress_into(self, stored: bytes, room: memoryview) -> memoryview:
        done = 0
        try:
            # With room for the whole frame libzstd decompresses straight into it.
            with self._decompressor().stream_reader(stored) as reader:
                while done < len(room) and (count := reader.readinto(room[done:])):
                    done += count
                if reader.read(1):
                    raise _damaged(EOFError("more bytes than the frame states"))
        except self._module.ZstdError as fault:
            raise _damaged(fault) from fault
        return room[:done]

    def _decompressor(self) -> Any:
        kept = self._local.__dict__
        if "decompressor" not in kept:
            kept["decompressor"] = self._module.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return kept["decompressor"]


class _Stdlib:
    """``compression.zstd`` of Python 3.14."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.version = str(module.zstd_version)

    def compress(self, plain: bytes, level: int, long: bool) -> bytes:
        names = self._module.CompressionParameter
        options = {names.compression_level: level, names.content_size_flag: 1, names.checksum_flag: 0}
        if long:
            options |= {names.enable_long_distance_matching: 1, names.window_log: LONG_WINDOW_LOG}
        context = self._module.ZstdCompressor(options=options)
        context.set_pledged_input_size(len(plain))
        stored: bytes = context.compress(plain, self._module.ZstdCompressor.FLUSH_FRAME)
        return stored

    def decompress(self, stored: bytes, size: int) -> bytes:
        names = self._module.DecompressionParameter
        context = self._module.ZstdDecompressor(options={names.window_log_max: LONG_WINDOW_LOG})
        try:
            plain: bytes = context.decompress(stored, max_length=size + 1)
        except (self._module.ZstdError, EOFError) as fault:
            raise _damaged(fault) from fault
        if not context.eof or context.unused_data:
            raise _damaged(EOFError("the frame does not end where it should"))
        return plain

    def decompress_into(self, stored: bytes, room: memoryview) -> bytes:
        return self.decompress(stored, len(room))  # it fills no buffer of others


def _damaged(fault: Exception) -> IntegrityError:
    return IntegrityError(
        "E-BLOB-DECODE",
        "zstd frame",
        expected="a sound frame",
        found=str(fault),
        hint="do not use this bundle",
    )
