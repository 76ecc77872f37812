"""What GPU code a file holds and what that means for an architecture (the words of docs/design.md).

A *device module* is one fatbin container: one translation unit's GPU code. ``Entry`` rows sum up what
modules offer; ``Counts`` says how many modules serve one architecture and how; the verdict follows from
the counts alone. ``FileScan`` is everything that one reading of a file found, compact enough to keep: it
answers for any architecture and driver later. The rules of what runs where live in
``envbundle.inspection``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from envbundle.errors import FormatError

from .compiler import Compiler
from .fields import Fields, read_text
from .finding import Finding
from .symbols import Symbols

Verdict = Literal["native", "jit", "partial", "none", "no-gpu-code", "unknown"]
EntryKind = Literal["sass", "ptx", "nvvm"]
Role = Literal["linked", "relocatable", "catalogue"]
State = Literal["kernels", "empty", "damaged", "unread"]
FileKind = Literal["elf", "archive", "fatbin", "cubin", "ptx", "other"]

ROLES: tuple[str, ...] = ("linked", "relocatable", "catalogue")
STATES: tuple[str, ...] = ("kernels", "empty", "damaged", "unread")
FILE_KINDS: tuple[str, ...] = ("elf", "archive", "fatbin", "cubin", "ptx", "other")

_IMAGE = re.compile(r"(sm|compute|lto)_([0-9]{1,10}[af]?)(?:@([0-9]{1,5}\.[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True, order=True)
class Image:
    """One image of a module: SASS ``sm_90a``, PTX ``compute_90@9.0`` (with its ISA), NVVM ``lto_90``.

    ``target`` is the number with its suffix (``90a``); ``isa`` is the PTX ISA version, '' for the others.
    """

    kind: EntryKind
    target: str
    isa: str = ""

    @classmethod
    def parse(cls, text: str) -> Image:
        """Read the text form; raises ``FormatError``."""
        match = _IMAGE.fullmatch(text)
        if match is None or (match[1] == "compute") != bool(match[3]):
            raise FormatError(
                "E-FORMAT", "image", expected="sm_90a, compute_90@9.0 or lto_90", found=repr(text[:40])
            )
        kind: dict[str, EntryKind] = {"sm": "sass", "compute": "ptx", "lto": "nvvm"}
        return cls(kind[match[1]], match[2], match[3] or "")

    def __str__(self) -> str:
        prefix = {"sass": "sm", "ptx": "compute", "nvvm": "lto"}[self.kind]
        return f"{prefix}_{self.target}" + (f"@{self.isa}" if self.isa else "")

    @property
    def number(self) -> int:
        """10 * major + minor of the architecture it was compiled for."""
        return int(self.target.rstrip("af"))

    @property
    def suffix(self) -> str:
        """'a' for architecture-specific, 'f' for family-specific code, else ''."""
        return self.target[-1] if self.target[-1] in "af" else ""

    @property
    def arch(self) -> str:
        """The architecture as entries and people name it: ``sm_90a`` for SASS, else ``compute_90a``."""
        return ("sm_" if self.kind == "sass" else "compute_") + self.target


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
    """How many modules of a file or distribution serve one architecture. Empty modules are not in it.

    ``spare_jit`` and ``spare_missing`` are alternatives of a catalogue (one kernel compiled once per
    architecture) that nobody needs here because another alternative serves: they are shown with ``jit``
    and ``missing`` and judge nothing. ``unknown`` says that damage could change the answer.
    """

    native: int = 0
    jit: int = 0
    missing: int = 0
    unknown: bool = False
    spare_jit: int = 0
    spare_missing: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Sum up, as a distribution sums its files; one unknown makes the sum unknown."""
        return Counts(
            native=self.native + other.native,
            jit=self.jit + other.jit,
            missing=self.missing + other.missing,
            unknown=self.unknown or other.unknown,
            spare_jit=self.spare_jit + other.spare_jit,
            spare_missing=self.spare_missing + other.spare_missing,
        )

    @classmethod
    def alternatives(cls, *, native: int, jit: int, missing: int, damaged: int = 0) -> Counts:
        """Count a catalogue: one verdict by union, so what serves worse than the best is spare.

        ``damaged`` are alternatives that could not be read: they matter only where no other is native.
        """
        if native:
            return cls(native=native, spare_jit=jit, spare_missing=missing + damaged)
        if jit:
            return cls(jit=jit, spare_missing=missing + damaged, unknown=damaged > 0)
        return cls(missing=missing + damaged, unknown=damaged > 0)

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
        spare_jit = fields.integer("spare_jit", 0)
        spare_missing = fields.integer("spare_missing", 0)
        counts = cls(
            native=fields.integer("native"),
            jit=fields.integer("jit") - spare_jit,
            missing=fields.integer("missing") - spare_missing,
            unknown=verdict == "unknown",
            spare_jit=spare_jit,
            spare_missing=spare_missing,
        )
        fields.done()
        if counts.verdict != verdict or counts.jit < 0 or counts.missing < 0:
            found = repr(verdict[:40])
            raise FormatError("E-FORMAT", where, expected=f"verdict {counts.verdict}", found=found)
        return counts

    def summary(self) -> dict[str, Any]:
        """Return ``{"verdict", "native", "jit", "missing"}``, as `inspect --json` prints it."""
        return {
            "verdict": self.verdict,
            "native": self.native,
            "jit": self.jit + self.spare_jit,
            "missing": self.missing + self.spare_missing,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return ``summary()``, with ``spare_jit`` and ``spare_missing`` where they are not 0."""
        spare = {"spare_jit": self.spare_jit, "spare_missing": self.spare_missing}
        return self.summary() | {key: value for key, value in spare.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ModuleGroup:
    """Modules of one file that are alike: same section, same images, same state.

    ``role``: *linked* modules are each needed; *relocatable* ones are inputs of a link, judged together
    per ``part``; *catalogue* ones are alternatives. ``state``: ``empty`` has no kernel and judges nothing;
    ``damaged`` could not be read to its end; ``unread`` has an image of a kind that nobody knows.
    ``part`` numbers the members of an archive from 1; 0 is the file itself. ``kernels`` are the names in
    the module where the reader was asked for them; then each module is a group of its own.
    """

    section: str
    role: Role
    state: State
    images: tuple[Image, ...]
    count: int
    part: int = 0
    kernels: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, value: Any, where: str = "group") -> ModuleGroup:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        group = cls(
            section=fields.text("section"),
            role=cast("Role", fields.choice("role", ROLES)),
            state=cast("State", fields.choice("state", STATES)),
            images=fields.items("images", _read_image),
            count=fields.integer("count", minimum=1),
            part=fields.integer("part", 0),
            kernels=fields.texts("kernels", []),
        )
        fields.done()
        return group

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        value: dict[str, Any] = {
            "section": self.section,
            "role": self.role,
            "state": self.state,
            "images": [str(image) for image in self.images],
            "count": self.count,
        }
        if self.part:
            value["part"] = self.part
        if self.kernels:
            value["kernels"] = list(self.kernels)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one ELF file asks of the loader.

    ``machine`` is the ELF machine (``x86_64``, ``aarch64``, else ``em_N``); ``soname`` its own name or
    None; ``sonames`` the NEEDED ones in their order; ``versions`` maps a soname to the symbol versions
    wanted of it, ``weak_versions`` to those whose absence the loader tolerates; ``rpath`` and ``runpath``
    are split at the colons. ``interpreter`` is the path of the program interpreter of an executable.
    """

    machine: str = ""
    soname: str | None = None
    sonames: tuple[str, ...] = ()
    versions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    weak_versions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str | None = None

    @classmethod
    def from_dict(cls, value: Any, where: str = "needs") -> Needs:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        needs = cls(
            machine=fields.text("machine", ""),
            soname=fields.opt_text("soname"),
            sonames=fields.texts("sonames"),
            versions=tuple(fields.mapping("versions", _read_texts).items()),
            weak_versions=tuple(fields.mapping("weak_versions", _read_texts, {}).items()),
            rpath=fields.texts("rpath"),
            runpath=fields.texts("runpath", []),
            interpreter=fields.opt_text("interpreter"),
        )
        fields.done()
        return needs

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "machine": self.machine,
            "soname": self.soname,
            "sonames": list(self.sonames),
            "versions": {name: list(versions) for name, versions in self.versions},
            "weak_versions": {name: list(versions) for name, versions in self.weak_versions},
            "rpath": list(self.rpath),
            "runpath": list(self.runpath),
            "interpreter": self.interpreter,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """All that one reading of a file found; enough to judge it for any architecture without the file.

    ``path`` is as the caller named it; ``kind`` says what the bytes are, whatever the name says;
    ``findings`` are about damage, with offsets; ``lost`` says that damage hides an unknown part of the
    file, so that there may be modules that nobody saw. ``needs``, ``symbols`` and ``compiler`` are of ELF
    files: what they ask of the loader, their dynamic symbols, and the GPU compiler that a file is.
    """

    path: str
    size: int
    kind: FileKind
    groups: tuple[ModuleGroup, ...] = ()
    findings: tuple[Finding, ...] = ()
    lost: bool = False
    needs: Needs | None = None
    symbols: Symbols | None = None
    compiler: Compiler | None = None

    @property
    def has_gpu_code(self) -> bool:
        """Whether any module was found, or could be hidden by damage."""
        return bool(self.groups) or self.lost

    @property
    def relocatable_parts(self) -> dict[int, tuple[ModuleGroup, ...]]:
        """The relocatable groups of each part that has any."""
        parts: dict[int, list[ModuleGroup]] = {}
        for group in self.groups:
            if group.role == "relocatable":
                parts.setdefault(group.part, []).append(group)
        return {part: tuple(groups) for part, groups in parts.items()}

    def links_kernels(self, part: int) -> bool:
        """Whether the linked modules of ``part`` have kernels, so that relocatable ones add none."""
        return any(g.role == "linked" and g.part == part and g.state != "empty" for g in self.groups)

    @property
    def modules(self) -> tuple[int, int]:
        """(total, empty): all modules, and those of them that hold no kernel and judge nothing."""
        plain = [g for g in self.groups if g.role != "relocatable"]
        total = sum(g.count for g in plain)
        empty = sum(g.count for g in plain if g.state == "empty")
        for part, groups in self.relocatable_parts.items():
            if not self.links_kernels(part):
                total += 1
                empty += all(g.state == "empty" for g in groups)
        return total, empty

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What the file's modules hold, summed up; relocatable and empty modules included."""
        rows: dict[tuple[EntryKind, str, str | None, str], int] = {}
        for group in self.groups:
            for image in set(group.images):
                key = (image.kind, image.arch, image.isa or None, group.section)
                rows[key] = rows.get(key, 0) + group.count
        ordered = sorted(rows.items(), key=lambda row: (row[0][0], row[0][1], row[0][2] or "", row[0][3]))
        return tuple(
            Entry(kind=kind, arch=arch, isa=isa, section=section, modules=count)
            for (kind, arch, isa, section), count in ordered
        )

    @classmethod
    def from_dict(cls, value: Any, where: str = "file") -> FileScan:
        """Read the JSON form; raises ``FormatError``."""
        fields = Fields(value, where)
        needs, symbols = fields.raw("needs", None), fields.raw("symbols", None)
        compiler = fields.raw("compiler", None)
        scan = cls(
            path=fields.text("path"),
            size=fields.integer("size"),
            kind=cast("FileKind", fields.choice("kind", FILE_KINDS)),
            groups=fields.items("groups", ModuleGroup.from_dict),
            findings=fields.items("findings", Finding.from_dict),
            lost=fields.boolean("lost", default=False),
            needs=None if needs is None else Needs.from_dict(needs, fields.path("needs")),
            symbols=None if symbols is None else Symbols.from_dict(symbols, fields.path("symbols")),
            compiler=None if compiler is None else Compiler.from_dict(compiler, fields.path("compiler")),
        )
        fields.done()
        return scan

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as the cache keeps it."""
        return {
            "path": self.path,
            "size": self.size,
            "kind": self.kind,
            "groups": [group.to_dict() for group in self.groups],
            "findings": [finding.to_dict() for finding in self.findings],
            "lost": self.lost,
            "needs": None if self.needs is None else self.needs.to_dict(),
            "symbols": None if self.symbols is None else self.symbols.to_dict(),
            "compiler": None if self.compiler is None else self.compiler.to_dict(),
        }


def _read_image(value: Any, where: str) -> Image:
    try:
        return Image.parse(read_text(value, where))
    except FormatError as fault:
        raise FormatError("E-FORMAT", where, expected=fault.expected, found=fault.found) from fault


def _read_texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise FormatError("E-FORMAT", where, expected="a list", found="something else")
    return tuple(read_text(item, f"{where}[{i}]") for i, item in enumerate(value))
