"""From what a file holds to what that means for one GPU: counts, verdict, reasons, findings.

* *Linked* modules are judged one by one; the union over a file is never taken. Empty modules judge nothing.
* *Relocatable* modules add none where linked ones have kernels, but rescue a linked module that misses the
  GPU if every one of them has usable SASS or PTX: the driver links them at load. Alone they are one module.
* *Catalogue* modules (stand-alone cubins of one distribution, containers in other sections of one file) are
  alternatives: one verdict by union, listed with their counts.
* A vendor's rules are one line in ``JUDGES``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError
from envbundle.spec.coverage import Counts, FileKind, FileScan, Image, ModuleGroup, Verdict
from envbundle.spec.finding import Finding

from . import cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from envbundle.spec.target import Arch

STAND_ALONE: frozenset[FileKind] = frozenset({"cubin", "fatbin", "ptx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One file judged for one architecture.

    ``reasons`` say per image why what is missing does not run; ``notes`` what serves in its place.
    ``ptx_isa_needed`` is the PTX ISA version (major, minor) that the driver must know for the modules that
    are compiled at load. ``kernels_missing`` are the names in missing modules, where the scan has names.
    """

    path: str
    arch: Arch
    kind: FileKind
    counts: Counts
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    ptx_isa_needed: tuple[int, int] | None = None
    kernels_missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict that the counts give."""
        return self.counts.verdict


def judge_file(scan: FileScan, arch: Arch, *, driver: str | None = None) -> Judgement:
    """Judge one scanned file for ``arch``; with ``driver`` PTX counts only where that driver reads it.

    Raises ``UserInputError`` for an architecture of a vendor without rules (E-ARCH-VENDOR), or a driver
    older than every known one (E-DRIVER-VERSION).
    """
    judge = JUDGES.get(arch.vendor)
    if judge is None:
        vendors = ", ".join(sorted(JUDGES))
        raise UserInputError("E-ARCH-VENDOR", str(arch), expected=f"a GPU of {vendors}", found=arch.vendor)
    return judge(scan, arch, driver)


def sum_distribution(judgements: Iterable[Judgement]) -> Counts:
    """Sum up the files of one distribution, all judged for the same architecture.

    Its stand-alone cubins, fatbins and PTX texts are alternatives of each other: one verdict by union.
    """
    total = Counts()
    native = jit = missing = damaged = 0
    for judgement in judgements:
        counts = judgement.counts
        if judgement.kind not in STAND_ALONE:
            total += counts
        elif counts.unknown:
            damaged += counts.missing + counts.spare_missing
            native, jit = native + counts.native, jit + counts.jit + counts.spare_jit
        else:
            native, jit = native + counts.native, jit + counts.jit + counts.spare_jit
            missing += counts.missing + counts.spare_missing
    return total + Counts.alternatives(native=native, jit=jit, missing=missing, damaged=damaged)


class _Nvidia:
    """One judging of one file by the rules of ``cuda``."""

    def __init__(self, scan: FileScan, arch: Arch, driver: str | None) -> None:
        self.scan, self.arch, self.driver = scan, arch, driver
        self.max_isa = None if driver is None else cuda.isa_of_driver(driver)
        self.reasons: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.kernels: set[str] = set()
        self.isa: tuple[int, int] | None = None
        self.refused_isa: tuple[int, int] | None = None

    def judge(self) -> Judgement:
        linked, damaged = self._linked()
        sure = linked.native + linked.jit > 0 and linked.missing > 0
        counts = replace(
            linked,
            missing=linked.missing + damaged,
            unknown=(damaged > 0 or self.scan.lost) and not sure,
        )
        counts += self._catalogue()
        return Judgement(
            path=self.scan.path,
            arch=self.arch,
            kind=self.scan.kind,
            counts=counts,
            reasons=tuple(self.reasons),
            notes=tuple(self.notes),
            findings=self._findings(counts),
            ptx_isa_needed=self.isa,
            kernels_missing=tuple(sorted(self.kernels)),
        )

    def _linked(self) -> tuple[Counts, int]:
        """Return the counts of what could be read, and the number of modules that could not."""
        tally = {"native": 0, "jit": 0, "missing": 0}
        damaged = 0
        parts = self.scan.relocatable_parts
        rescue = {part: self._link(groups) for part, groups in parts.items()}
        for group in self.scan.groups:
            if group.role != "linked" or group.state == "empty":
                continue
            if group.state == "damaged":
                damaged += group.count
                continue
            service = cuda.serve(group.images, self.arch.number, self.max_isa)
            if service.how == "missing" and group.part in rescue and rescue[group.part].how != "missing":
                service = replace(rescue[group.part], how="jit")
            if service.how == "missing" and group.state == "unread":
                damaged += group.count
                continue
            tally[service.how] += group.count
            self._account(service, [group])
        for part, groups in parts.items():
            if self.scan.links_kernels(part) or all(group.state == "empty" for group in groups):
                continue
            if any(group.state == "damaged" for group in groups):
                damaged += 1
                continue
            tally[rescue[part].how] += 1
            self._account(rescue[part], groups)
        counts = Counts(native=tally["native"], jit=tally["jit"], missing=tally["missing"])
        return counts, damaged

    def _link(self, groups: Iterable[ModuleGroup]) -> cuda.Service:
        """Say how relocatable modules serve together: as the worst of them does."""
        worst = cuda.Service("native")
        isa: tuple[int, int] | None = None
        for group in groups:
            service = cuda.serve(group.images, self.arch.number, self.max_isa)
            if service.how == "missing" or group.state == "damaged":
                return replace(service, how="missing")
            isa = max(filter(None, (isa, service.isa)), default=None)
            worst = service if service.how == "jit" or worst.image is None else worst
        return replace(worst, isa=isa)

    def _catalogue(self) -> Counts:
        groups = [g for g in self.scan.groups if g.role == "catalogue" and g.state != "empty"]
        served = [(g, cuda.serve(g.images, self.arch.number, self.max_isa)) for g in groups]
        tally = {"native": 0, "jit": 0, "missing": 0, "damaged": 0}
        for group, service in served:
            doubtful = group.state == "damaged" or (group.state == "unread" and service.how == "missing")
            tally["damaged" if doubtful else service.how] += group.count
        best = "native" if tally["native"] else "jit" if tally["jit"] else "missing"
        for group, service in served:
            if service.how == best and group.state != "damaged":
                self._account(service, [group])
        return Counts.alternatives(**tally)

    def _account(self, service: cuda.Service, groups: Iterable[ModuleGroup]) -> None:
        """Remember why a module is missing, or what serves in place of its own architecture."""
        if service.how == "missing":
            for group in groups:
                self.kernels.update(group.kernels)
                for image in group.images:
                    why = cuda.fault(image, self.arch.number, self.max_isa)
                    if why is not None:
                        self.reasons.setdefault(why)
            self.refused_isa = max(filter(None, (self.refused_isa, service.refused_isa)), default=None)
            return
        self.isa = max(filter(None, (self.isa, service.isa)), default=None)
        used = service.image
        if used is not None and used.number != self.arch.number:
            self.notes.setdefault(self._note(service, used))

    def _note(self, service: cuda.Service, image: Image) -> str:
        if service.how == "native":
            return f"{self.arch} served by {image.arch} SASS (same major)"
        return f"{self.arch} served by {image.arch} PTX {image.isa}, compiled at load"

    def _findings(self, counts: Counts) -> tuple[Finding, ...]:
        """Damage refuses only where the answer hangs on it; a driver where nothing else serves."""
        found = [
            replace(finding, severity="warning")
            if finding.severity == "error" and not counts.unknown
            else finding
            for finding in self.scan.findings
        ]
        if self.refused_isa is not None and self.max_isa is not None and self.driver is not None:
            isa, known = (f"{major}.{minor}" for major, minor in (self.refused_isa, self.max_isa))
            newer, own = cuda.driver_for_isa(self.refused_isa), self.driver
            found.append(
                Finding(
                    code="E-PTX-DRIVER",
                    severity="error" if counts.verdict == "none" else "warning",
                    subject=self.scan.path,
                    expected=f"PTX ISA {known} or older",
                    found=f"PTX ISA {isa} needs a newer driver than {own} ({own} takes <= {known})",
                    hint=f"needs driver {newer}, or code compiled for {self.arch}",
                )
            )
        return tuple(found)


def _judge_nvidia(scan: FileScan, arch: Arch, driver: str | None) -> Judgement:
    return _Nvidia(scan, arch, driver).judge()


JUDGES: dict[str, Callable[[FileScan, Arch, str | None], Judgement]] = {"nvidia": _judge_nvidia}
