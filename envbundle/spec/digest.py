"""``Digest``: the sha256 of some bytes, written ``sha256:<64 lower-case hex digits>`` as OCI does."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from envbundle.errors import FormatError

_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A sha256. ``hex`` holds exactly 64 lower-case hexadecimal digits; anything else is refused."""

    hex: str

    def __post_init__(self) -> None:
        if not _HEX.fullmatch(self.hex):
            raise FormatError(
                "E-FORMAT", "digest", expected="64 lower-case hexadecimal digits", found=repr(self.hex[:80])
            )

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read ``sha256:<hex>``; raises ``FormatError`` for any other algorithm or form."""
        algorithm, _, value = text.partition(":")
        if algorithm != "sha256":
            raise FormatError("E-FORMAT", "digest", expected="sha256:<hex>", found=repr(text[:80]))
        return cls(value)

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Digest:
        """Return the digest of ``data``."""
        return cls(hashlib.sha256(data).hexdigest())

    def __str__(self) -> str:
        return f"sha256:{self.hex}"

    @property
    def short(self) -> str:
        """The first 12 hex digits, for people and for generation names; never for a decision."""
        return self.hex[:12]
