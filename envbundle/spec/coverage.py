"""What GPU code a file holds and what that means for an architecture (the words of docs/design.md).

A *device module* is one fatbin container: one translation unit's GPU code. ``Entry`` rows sum up what
modules offer; ``Counts`` says how many modules serve one architecture and how; the verdict follows from
the counts alone. The rules of what runs where live in ``envbundle.inspection``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from .fields import Fields

Verdict = Literal["native", "jit", "partial", "none", "no-gpu-code", "unknown"]
EntryKind = Literal["sass", "ptx", "nvvm"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """One kind of image and the number of modules that hold it.

    ``arch`` is ``sm_90a`` for SASS and ``compute_90`` for PTX and NVVM; ``isa`` is the PTX ISA version of
    PTX ("9.0"), else None; ``section`` says where it was found: an ELF section's name, ``(cubin)``,
    ``(fatbin)``, ``(ptx)``, or ``(scan)`` where no section could be told.
    """

    kind: EntryKind
    arch: str
    isa: str | None
    section: str
    modules: int

    @classmethod
    def from_dict(cls, value: Any, where: str = "entry") -> Entry:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        entry = cls(
            kind=cast("EntryKind", fields.choice("kind", ("sass", "ptx", "nvvm"))),
            arch=fields.text("arch"),
            isa=fields.opt_text("isa"),
            section=fields.text("section"),
            modules=fields.integer("modules"),
        )
        fields.done()
        return entry

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as `inspect --json` prints it."""
        return {
            "kind": self.kind,
            "arch": self.arch,
            "isa": self.isa,
            "section": self.section,
            "modules": self.modules,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many modules of a file or distribution serve one architecture. Empty modules are not in it."""

    native: int = 0
    jit: int = 0
    missing: int = 0
    unknown: bool = False

    def __add__(self, other: Counts) -> Counts:
        """Sum up, as a distribution sums its files; one unknown makes the sum unknown."""
        return Counts(
            native=self.native + other.native,
            jit=self.jit + other.jit,
            missing=self.missing + other.missing,
            unknown=self.unknown or other.unknown,
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict that these counts give; ``unknown`` where damage could change the answer."""
        if self.unknown:
            return "unknown"
        if self.native + self.jit + self.missing == 0:
            return "no-gpu-code"
        if self.missing:
            return "partial" if self.native + self.jit else "none"
        return "jit" if self.jit else "native"

    @classmethod
    def from_dict(cls, value: Any, where: str = "counts") -> Counts:
        """Read the JSON form; the stored verdict must agree with the counts."""
        fields = Fields(value, where)
        verdict = fields.text("verdict")
        counts = cls(
            native=fields.integer("native"),
            jit=fields.integer("jit"),
            missing=fields.integer("missing"),
            unknown=verdict == "unknown",
        )
        fields.done()
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"verdict", "native", "jit", "missing"}``."""
        return {"verdict": self.verdict, "native": self.native, "jit": self.jit, "missing": self.missing}
