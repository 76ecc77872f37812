"""The head and the extent of one zstd frame, read before a decoder allocates anything.

* Exactly one frame, no skippable frame, nothing after its end, no dictionary.
* The frame states its content size; the caller compares it with what the descriptor promised.
* Window and block sizes are bounded, whatever the decoder would take.

Source: RFC 8878, sections 3.1.1 (frame), 3.1.1.1 (header), 3.1.1.2 (blocks).
"""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 32 * 1024 * 1024
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_BYTES = (0, 2, 4, 8)
_BLOCK_LIMIT = 128 * 1024


class FrameError(ValueError):
    """The bytes are no frame as this module demands; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """``content_size`` and ``window_size`` in bytes, as the frame's header states them."""

    content_size: int
    window_size: int


def read_frame(data: bytes) -> Frame:
    """Return what the header of the only frame in ``data`` states; raises ``FrameError``."""
    if data[:4] != MAGIC:
        raise FrameError("no zstd magic number")
    if len(data) < 6:
        raise FrameError("a header that is cut off")
    flags = data[4]
    single, checksum = bool(flags & 0x20), bool(flags & 0x04)
    if flags & 0x08:
        raise FrameError("a reserved bit that is set")
    if flags & 0x03:
        raise FrameError("a dictionary")
    content_bytes = _CONTENT_BYTES[flags >> 6] or (1 if single else 0)
    if not content_bytes:
        raise FrameError("no content size in the header")
    position = 5
    window = 0
    if not single:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window = (1 << (10 + exponent)) + ((1 << (10 + exponent)) >> 3) * mantissa
        position += 1
    raw = data[position : position + content_bytes]
    if len(raw) != content_bytes:
        raise FrameError("a header that is cut off")
    content = int.from_bytes(raw, "little") + (256 if content_bytes == 2 else 0)
    _walk_blocks(data, position + content_bytes, checksum=checksum)
    return Frame(content_size=content, window_size=content if single else window)


def _walk_blocks(data: bytes, position: int, *, checksum: bool) -> None:
    end = len(data)
    last = False
    while not last:
        if position + 3 > end:
            raise FrameError("a block that is cut off")
        head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == 3 or size > _BLOCK_LIMIT:
            raise FrameError("a block that no encoder writes")
        position += 3 + (1 if kind == 1 else size)
    position += 4 if checksum else 0
    if position > end:
        raise FrameError("a block that is cut off")
    if position < end:
        raise FrameError(f"{end - position} bytes after the frame")
