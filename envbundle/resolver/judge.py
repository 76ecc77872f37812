"""GPU coverage of one distribution for one target: the policy table of docs/design.md, as data.

* Each file is judged on its own bytes; the stand-alone cubins of a distribution are one catalogue, one row.
* Every GPU of the target must pass.
* Where the manifest says what machine the environment came from, a gap is ``lost`` (that machine's GPU had
  it: an error) or ``never-had`` (it ran without: a note).
* A refusal says what was found, what was wanted, why each image does not run, and the lines that accept it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from envbundle.inspection.coverage import judge_file, sum_distribution
from envbundle.inspection.cuda import driver_for_isa
from envbundle.spec.descriptor import Exemption
from envbundle.spec.finding import Finding, Severity, errors_in
from envbundle.spec.manifest_edit import exemption_lines
from envbundle.spec.target import Arch

from .evidence import Row, evidence_of, holds, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from envbundle.spec.coverage import Counts
    from envbundle.spec.lock import DistributionEvidence
    from envbundle.spec.manifest import CoveragePolicy, PackagePolicy
    from envbundle.spec.target import Target

    from .contents import WheelScan

_COLUMNS: tuple[CoveragePolicy, ...] = ("complete", "files", "any", "runtime-jit")
# Row by row: the code for each policy; the letter says its severity, '' accepts.
_TABLE: dict[str, tuple[str, str, str, str]] = {
    "jit": ("W-PTX-ONLY", "W-PTX-ONLY", "W-PTX-ONLY", ""),
    "jit-refused": ("E-PTX-ONLY", "E-PTX-ONLY", "E-PTX-ONLY", ""),
    "partial": ("E-ARCH-PARTIAL", "W-ARCH-PARTIAL", "W-ARCH-PARTIAL", ""),
    "file": ("E-ARCH-FILE", "E-ARCH-FILE", "W-ARCH-FILE", ""),
    "distribution": ("E-ARCH-NONE", "E-ARCH-NONE", "E-ARCH-NONE", "E-TOOL"),
    "no-code": ("E-NO-DEVICE-CODE", "E-NO-DEVICE-CODE", "E-NO-DEVICE-CODE", "E-TOOL"),
}
_EXEMPTING: CoveragePolicy = "files"
_SEVERITIES: dict[str, Severity] = {"E": "error", "W": "warning", "N": "note"}
_MAX_REASONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionJudgement:
    """What a distribution is worth to a target. ``ptx_isa`` is what the driver must know, (major, minor).

    ``exemptions`` are gaps that the manifest accepts; ``gaps`` those that refuse and could be accepted.
    """

    findings: tuple[Finding, ...]
    evidence: DistributionEvidence | None = None
    exemptions: tuple[Exemption, ...] = ()
    gaps: tuple[Exemption, ...] = ()
    ptx_isa: tuple[int, int] | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing refuses it."""
        return not errors_in(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of one distribution: for which target, under which policy, compared with which source.

    ``named`` says that the manifest names a coverage policy for it; ``compilers`` are the GPU compilers that
    the target will have (files of the environment or required tools), for packages that compile at run time.
    """

    target: Target
    policy: PackagePolicy
    wheel: str
    sources: tuple[Arch, ...] = ()
    compilers: tuple[str, ...] = ()

    @property
    def column(self) -> int:
        """The policy's column in the table."""
        return _COLUMNS.index(self.policy.coverage or "files")


def source_gpus(names: Iterable[str]) -> tuple[Arch, ...]:
    """Return the architectures of a manifest's source machine."""
    return tuple(Arch.parse(name) for name in names)


def judge_distribution(scan: WheelScan, request: Request) -> DistributionJudgement:
    """Judge one distribution for every GPU of the target."""
    files = tuple(sorted((f for f in scan.files if f.has_gpu_code), key=lambda file: file.path))
    by_gpu = {gpu: rows_of(files, gpu, request.target.driver) for gpu in request.target.gpus}
    parts = [_judge_for(scan, rows, gpu, request) for gpu, rows in by_gpu.items()]
    findings = tuple(dict.fromkeys((*scan.findings, *(f for part in parts for f in part.findings))))
    isas = [part.ptx_isa for part in parts if part.ptx_isa is not None]
    return DistributionJudgement(
        findings=findings,
        evidence=evidence_of(scan, files, request.target, by_gpu) if files else None,
        exemptions=tuple(item for part in parts for item in part.exemptions),
        gaps=tuple(item for part in parts for item in part.gaps),
        ptx_isa=max(isas, default=None),
    )


def _judge_for(scan: WheelScan, rows: Sequence[Row], gpu: Arch, request: Request) -> DistributionJudgement:
    total = sum_distribution(judgement for row in rows for judgement in row.judgements)
    teller = _Teller(scan, gpu, request)
    if total.verdict == "no-gpu-code":
        if request.policy.coverage is not None:
            teller.no_code()
    else:
        for row in rows:
            teller.row(row, total)
    isas = [j.ptx_isa_needed for row in rows for j in row.judgements if j.ptx_isa_needed is not None]
    return DistributionJudgement(
        findings=tuple(teller.findings),
        exemptions=tuple(teller.exemptions),
        gaps=tuple(teller.gaps),
        ptx_isa=max(isas, default=None),
    )


class _Teller:
    """Collects the findings of one distribution for one GPU."""

    def __init__(self, scan: WheelScan, gpu: Arch, request: Request) -> None:
        self.scan, self.gpu, self.request = scan, gpu, request
        self.findings: list[Finding] = []
        self.exemptions: list[Exemption] = []
        self.gaps: list[Exemption] = []

    def no_code(self) -> None:
        """Tell of a distribution that should hold GPU code and holds none."""
        self._table(
            "no-code",
            subject=self.request.wheel,
            expected=f"CUDA code for {self.gpu}, since the manifest names a coverage policy",
            found=f"{self.scan.name} {self.scan.version} holds no CUDA code",
            hint="name the index of the CUDA build in [resolve] from, or drop the policy",
        )

    def row(self, row: Row, total: Counts) -> None:
        """Tell of one row."""
        counts = row.counts
        damage = [
            replace(f, subject=f"{self.request.wheel} {f.subject}")
            for j in row.judgements
            for f in j.findings
        ]
        if self._exempt(row) and counts.verdict in ("none", "unknown", "partial") and total.verdict != "none":
            self.exemptions += self._each(row, counts)
            return
        self.findings += damage
        if counts.verdict == "unknown" and not errors_in(damage):
            self._say(
                "E-FATBIN",
                row,
                expected=f"GPU code that can be judged for {self.gpu}",
                found="damaged GPU code",
            )
        match counts.verdict:
            case "jit":
                self._jit(row)
            case "partial":
                self._partial(row, counts)
            case "none" if total.verdict in ("none", "unknown"):
                self._none(row, counts, "distribution")
            case "none":
                self._none(row, counts, "file")
            case _:
                pass
        self._notes(row)

    def _exempt(self, row: Row) -> bool:
        globs = self.request.policy.exempt
        applies = bool(globs) and _COLUMNS[self.request.column] == _EXEMPTING
        return applies and all(any(fnmatchcase(path, glob) for glob in globs) for path in row.paths)

    def _each(self, row: Row, counts: Counts) -> list[Exemption]:
        return [
            Exemption(distribution=self.scan.name, path=path, gpu=str(self.gpu), verdict=counts.verdict)
            for path in row.paths
        ]

    def _jit(self, row: Row) -> None:
        isa = max((j.ptx_isa_needed for j in row.judgements if j.ptx_isa_needed), default=None)
        need = f"PTX ISA {isa[0]}.{isa[1]}, driver {driver_for_isa(isa)} or newer" if isa else "PTX"
        self._table(
            "jit-refused" if self.request.policy.jit == "refuse" else "jit",
            subject=f"{self.request.wheel} {row.shown()}",
            expected=f"SASS for {self.gpu}",
            found=f"PTX only: {need}",
            hint="compiled at first load, on every machine anew",
        )

    def _partial(self, row: Row, counts: Counts) -> None:
        served, every = counts.native + counts.jit, counts.native + counts.jit + counts.missing
        kernels = [name for each in row.judgements for name in each.kernels_missing]
        self._gap(
            row,
            "partial",
            expected=f"all device modules for {self.gpu}",
            found=f"{self.gpu}: {served} of {every} device modules" + _listed("; missing kernels", kernels),
        )

    def _none(self, row: Row, counts: Counts, kind: str) -> None:
        modules = counts.missing + counts.spare_missing
        entries = [entry for scan in row.scans for entry in scan.entries]
        self._gap(
            row,
            kind,
            expected=f"code that runs on {self.gpu}",
            found=f"{holds(entries)}; nothing of {modules} device modules runs on {self.gpu}",
        )

    def _gap(self, row: Row, kind: str, *, expected: str, found: str) -> None:
        """Tell of missing code; compared with the source machine where the manifest has one."""
        reasons = _listed("why", row.reasons())
        if self.request.sources:
            lost = self._had(row)
            if not lost:
                names = ", ".join(map(str, self.request.sources))
                self._say(
                    "N-NEVER-HAD", row, expected=expected, found=found, hint=f"{names} ran without it too"
                )
                return
            found += f"; lost: it runs on {', '.join(map(str, lost))}"
        if kind == "file" and _COLUMNS[self.request.column] == _EXEMPTING:
            self.gaps += self._each(row, row.counts)
        self._table(
            kind,
            subject=f"{self.request.wheel} {row.shown()}",
            expected=expected,
            found=found,
            hint="\n".join(
                filter(None, (reasons, self._renamed_or_old(row, kind), self._ways_out(row, kind)))
            ),
        )

    def _had(self, row: Row) -> tuple[Arch, ...]:
        """Return those source GPUs on which this row is better served than on the target's."""
        rank = {"none": 0, "no-gpu-code": 0, "unknown": 0, "partial": 1, "jit": 2, "native": 2}
        here = row.counts
        had = []
        for gpu in self.request.sources:
            there = sum_distribution(judge_file(scan, gpu) for scan in row.scans)
            better = rank[there.verdict] > rank[here.verdict] or (
                there.verdict == here.verdict == "partial" and there.missing < here.missing
            )
            if better:
                had.append(gpu)
        return tuple(had)

    def _renamed_or_old(self, row: Row, kind: str) -> str:
        sass = [int(e.arch[3:].rstrip("af")) for s in row.scans for e in s.entries if e.kind == "sass"]
        if kind == "distribution" and sass and self.gpu.number and self.gpu.number < min(sass):
            return f"an older CUDA build (e.g. +cu126 in place of +cu130) may still have {self.gpu}"
        return ""

    def _ways_out(self, row: Row, kind: str) -> str:
        """Return what accepts or mends the gap, ready to be pasted."""
        name, target = self.scan.name, self.request.target.name
        coverage = self.request.policy.coverage or "files"
        if kind == "distribution" and self.request.policy.build is not None:
            return (
                f"[package.{name}.build] is not carried out by this version of envbundle: build the wheel, "
                "and name its folder in find-links"
            )
        if kind == "distribution":
            return f"take another version or index of {name}, or [package.{name}.build] for {self.gpu}"
        if coverage == "complete":
            return f'to accept partial files: [target.{target}.package.{name}] coverage = "files"'
        if kind != "file" or coverage != "files":
            return ""
        header, line = exemption_lines(target, name, row.paths[:20])
        gaps = " ".join(f"--accept-gap {name}:{path}" for path in row.paths[:20])
        return f"to accept it: lock with {gaps}, or add\n{header}\n{line}"

    def _notes(self, row: Row) -> None:
        notes = dict.fromkeys(note for each in row.judgements for note in each.notes if "SASS" in note)
        for note in list(notes)[:3]:
            self._say("N-SAME-MAJOR", row, found=note)

    def _table(self, kind: str, *, subject: str, expected: str, found: str, hint: str) -> None:
        code = _TABLE[kind][self.request.column]
        if code == "E-TOOL":
            if self.request.compilers:
                return
            expected = "a GPU compiler on the target (nvcc, ptxas or NVRTC), since coverage = runtime-jit"
            hint = 'add an [[invariant]] kind = "tool" for it, or a distribution that carries one'
        if code:
            self.findings.append(
                Finding(
                    code=code,
                    severity=_SEVERITIES[code[0]],
                    subject=subject,
                    expected=expected,
                    found=found,
                    hint=hint,
                )
            )

    def _say(self, code: str, row: Row, *, expected: str = "", found: str = "", hint: str = "") -> None:
        self.findings.append(
            Finding(
                code=code,
                severity=_SEVERITIES[code[0]],
                subject=f"{self.request.wheel} {row.shown()}",
                expected=expected,
                found=found,
                hint=hint,
            )
        )


def _listed(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    more = f" and {len(items) - _MAX_REASONS} more" if len(items) > _MAX_REASONS else ""
    return f"{title}: {', '.join(items[:_MAX_REASONS])}{more}"
