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


class CodecMissingError(Exception):
    """No zstd codec is installed, so a payload stays closed."""


def lz4_block(data: bytes, limit: int, stop: bytes = b"") -> bytes | None:
    """Decompress one raw LZ4 block up to ``limit`` bytes; None where it is not one.

    Decoding ends early, with what there is by then, as soon as ``stop`` has appeared.
    """
    out = bytearray()
    at, size, seen = 0, len(data), 0
    while at < size and len(out) < limit:
        token = data[at]
        at += 1
        count = token >> 4
        if count == 15:
            while at < size and data[at] == 255:
                count, at = count + 255, at + 1
            if at >= size:
                return None
            count, at = count + data[at], at + 1
        if at + count > size:
            return None
        out += data[at : at + count]
        at += count
        if stop and len(out) - seen > 512:
            if out.find(stop, max(seen - len(stop), 0)) >= 0:
                break
            seen = len(out)
        if at + 2 > size:  # the last sequence has literals only; padding may follow
            break
        back = data[at] | data[at + 1] << 8
        at += 2
        if not 0 < back <= len(out):
            return None
        count = (token & 15) + 4
        if count == 19:
            while at < size and data[at] == 255:
                count, at = count + 255, at + 1
            if at >= size:
                return None
            count, at = count + data[at], at + 1
        count = min(count, limit - len(out))
        begin = len(out) - back
        if back >= count:
            out += out[begin : begin + count]
        else:
            pattern = bytes(out[begin:])
            out += (pattern * (count // back + 1))[:count]
    return bytes(out[:limit])


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
