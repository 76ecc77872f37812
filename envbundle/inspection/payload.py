"""Stored payloads of fatbin entries, decompressed within bounds.

* Raw LZ4 blocks (CUDA <= 12.9) by the few lines below, zstd frames (CUDA 13) by ``compression.zstd`` or
  ``zstandard``. Output never exceeds the limit asked for, whatever a header claims.
* ``None`` is the answer where the bytes cannot be decompressed; a missing codec is ``CodecMissingError``.
"""

from __future__ import annotations

import io
import sys
from typing import Any

_MAX_WINDOW = 1 << 27
_LOOK_EVERY = 512


class CodecMissingError(Exception):
    """No zstd codec is installed, so a payload stays closed."""


def lz4_block(data: bytes, limit: int, stop: bytes = b"") -> bytes | None:
    """Decompress one raw LZ4 block up to ``limit`` bytes; None where it is not one.

    Decoding ends early, with what there is by then, soon after ``stop`` has appeared.
    """
    out = bytearray()
    at = length = seen = 0
    size = len(data)
    while at < size and length < limit:
        token = data[at]
        at += 1
        count = token >> 4
        if count:
            if count == 15:
                count, at = _long(data, at)
                if at > size:
                    return None
            if at + count > size:
                return None
            out += data[at : at + count]
            at += count
            length += count
        if stop and length - seen > _LOOK_EVERY:
            if out.find(stop, max(seen - len(stop), 0)) >= 0:
                break
            seen = length
        if at + 2 > size:  # the last sequence has literals only; padding may follow
            break
        back = data[at] | data[at + 1] << 8
        at += 2
        if not 0 < back <= length:
            return None
        count = (token & 15) + 4
        if count == 19:
            more, at = _long(data, at)
            if at > size:
                return None
            count = more + 4
        count = min(count, limit - length)
        begin = length - back
        if back >= count:
            out += out[begin : begin + count]
        else:
            out += (bytes(out[begin:]) * (count // back + 1))[:count]
        length += count
    return bytes(out[:limit])


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of 15 or more and the offset behind it, which is past the end where it is cut off."""
    count, size = 15, len(data)
    while at < size and data[at] == 255:
        count += 255
        at += 1
    if at >= size:
        return count, size + 1
    return count + data[at], at + 1


def zstd_frame(data: bytes, limit: int) -> bytes | None:
    """Decompress one zstd frame up to ``limit`` bytes; None where it is not one.

    Raises ``CodecMissingError`` where no codec is installed.
    """
    if sys.version_info >= (3, 14):
        return _stdlib_zstd(data, limit)
    try:
        import zstandard  # noqa: PLC0415 - 10 ms that most runs never need
    except ImportError as fault:
        raise CodecMissingError("zstandard") from fault
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    try:
        with decoder.stream_reader(io.BytesIO(data)) as reader:
            return bytes(reader.read(limit))
    except zstandard.ZstdError:
        return None


def _stdlib_zstd(data: bytes, limit: int) -> bytes | None:
    import importlib  # noqa: PLC0415

    codec: Any = importlib.import_module("compression.zstd")
    options = {codec.DecompressionParameter.window_log_max: 27}
    try:
        return bytes(codec.ZstdDecompressor(options=options).decompress(data, limit))
    except codec.ZstdError:
        return None
