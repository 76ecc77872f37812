"""A GPU compiler that a file is: what it is called, its release, and the targets that it knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from .fields import Fields

CompilerKind = Literal["ptxas", "nvcc", "nvrtc", "nvjitlink"]
COMPILER_KINDS: tuple[str, ...] = ("ptxas", "nvcc", "nvrtc", "nvjitlink")
_NUMBER = re.compile(r"[0-9]+")
# The oldest architecture that a major release still compiles for (release notes of CUDA 11, 12 and 13).
_OLDEST = {11: 35, 12: 50, 13: 75}
_LISTED_ABOVE = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A compiler as its file's bytes describe it.

    ``version`` is the release (``12.9.86``), '' where it could not be read; ``targets`` are numbers with
    their suffix (``103a``), as they stand in the file, rising.
    """

    kind: CompilerKind
    version: str
    targets: tuple[str, ...]

    @property
    def newest(self) -> int:
        """The highest architecture that it names."""
        return max((_number(target) for target in self.targets), default=0)

    def compiles(self, number: int) -> bool:
        """Whether it compiles for ``number`` (10 * major + minor).

        Newer architectures than sm_90 stand in it one by one; of the older ones it has all from the oldest
        that its release keeps.
        """
        if number > _LISTED_ABOVE:
            return any(_number(target) == number for target in self.targets)
        return self.oldest <= number <= self.newest

    @property
    def oldest(self) -> int:
        """The lowest architecture that its release still compiles for."""
        major = int(match[0]) if (match := _NUMBER.match(self.version)) else 0
        return _OLDEST.get(major, max(_OLDEST.values()) if major > max(_OLDEST) else 0)

    @classmethod
    def from_dict(cls, value: Any, where: str = "compiler") -> Compiler:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        compiler = cls(
            kind=cast("CompilerKind", fields.choice("kind", COMPILER_KINDS)),
            version=fields.text("version"),
            targets=fields.texts("targets"),
        )
        fields.done()
        return compiler

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"kind": self.kind, "version": self.version, "targets": list(self.targets)}


def _number(target: str) -> int:
    match = _NUMBER.match(target)
    return int(match[0]) if match else 0
