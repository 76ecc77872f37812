"""What `envbundle inspect` prints: the JSON object of docs/format.md, and the sentences behind a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envbundle.spec.coverage import EntryKind, FileScan, Needs
from envbundle.spec.finding import Finding
from envbundle.spec.target import Arch

from .coverage import Judgement, judge_file, sum_distribution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbundle.spec.finding import Severity

DEFAULT_ARCHS: tuple[Arch, ...] = tuple(
    Arch.sm(number) for number in (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
)
_MAX_REASONS = 12


def inspect_json(
    files: Iterable[FileScan],
    distributions: Iterable[tuple[str, str, Iterable[FileScan]]] = (),
    archs: Iterable[Arch] | None = None,
    *,
    driver: str | None = None,
) -> dict[str, Any]:
    """Return the ``inspect`` object: files, distributions, findings.

    ``distributions`` are (name, version, scans of its files); ``archs`` None means the default ones, and
    then gaps are no findings. Asked for by name, what a file lacks is a warning that says why.
    """
    asked = archs is not None
    judge = _Judge(tuple(DEFAULT_ARCHS if archs is None else archs), driver)
    rows, findings = [], []
    for scan in files:
        judgements = judge.all(scan)
        rows.append(_file(scan, judgements))
        findings += _once(judgements)
        if asked:
            gaps = (gap_finding(scan, judgement) for judgement in judgements)
            findings += [gap for gap in gaps if gap is not None]
    sums = []
    for name, version, scans in distributions:
        every = [judge.all(scan) for scan in scans]
        verdicts = {
            str(arch): sum_distribution(judgements[number] for judgements in every).summary()
            for number, arch in enumerate(judge.archs)
        }
        sums.append({"name": name, "version": version, "verdicts": verdicts})
    return {"files": rows, "distributions": sums, "findings": [finding.to_dict() for finding in findings]}


class _Judge:
    """Judges each scan for all architectures; files that hold the same are judged once.

    A library of kernels has 16,000 cubins of a handful of kinds.
    """

    def __init__(self, archs: tuple[Arch, ...], driver: str | None) -> None:
        self.archs, self._driver = archs, driver
        self._known: dict[tuple[object, ...], list[Judgement]] = {}

    def all(self, scan: FileScan) -> list[Judgement]:
        """Return the judgements in the order of the architectures; ``path`` may be that of a twin."""
        if scan.findings or self._driver is not None:  # their findings name the file
            return [judge_file(scan, arch, driver=self._driver) for arch in self.archs]
        key = (scan.kind, scan.groups, scan.lost)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = [judge_file(scan, arch) for arch in self.archs]
        return known


def describe(scan: FileScan) -> str:
    """Return what a file holds in one line: ``SASS sm_80, sm_90; no PTX``."""
    images = {image for group in scan.groups for image in group.images}
    held: dict[EntryKind, dict[str, None]] = {"sass": {}, "ptx": {}, "nvvm": {}}
    for image in sorted(images, key=lambda image: (image.number, image.suffix, image.isa)):
        held[image.kind].setdefault(image.arch + (f" ({image.isa})" if image.isa else ""))
    parts = [
        "SASS " + ", ".join(held["sass"]) if held["sass"] else "no SASS",
        "PTX " + ", ".join(held["ptx"]) if held["ptx"] else "no PTX",
    ]
    parts += ["LTO-IR " + ", ".join(held["nvvm"])] if held["nvvm"] else []
    return "; ".join(parts)


def gap_finding(
    scan: FileScan, judgement: Judgement, *, code: str | None = None, severity: Severity = "warning"
) -> Finding | None:
    """Return the finding for what a file lacks for one architecture, or None where it lacks nothing.

    ``code`` and ``severity`` are the caller's policy; without a code it is W-ARCH-NONE or W-ARCH-PARTIAL.
    """
    counts, arch = judgement.counts, judgement.arch
    served = counts.native + counts.jit
    total = served + counts.missing
    if judgement.verdict == "none":
        found = f"{describe(scan)}; nothing runs on {arch}"
    elif judgement.verdict == "partial":
        found = f"{describe(scan)}; {arch}: {served} of {total} device modules"
    else:
        return None
    reasons = list(judgement.reasons[:_MAX_REASONS])
    if judgement.kernels_missing:
        names = ", ".join(judgement.kernels_missing[:_MAX_REASONS])
        more = len(judgement.kernels_missing) - _MAX_REASONS
        reasons.append(f"kernels missing: {names}" + (f" and {more} more" if more > 0 else ""))
    return Finding(
        code=code or ("W-ARCH-NONE" if judgement.verdict == "none" else "W-ARCH-PARTIAL"),
        severity=severity,
        subject=scan.path,
        expected=f"code for {arch}",
        found=found,
        hint="; ".join(reasons),
    )


def _file(scan: FileScan, judgements: list[Judgement]) -> dict[str, Any]:
    total, empty = scan.modules
    needs = scan.needs or Needs()
    return {
        "path": scan.path,
        "modules": {"total": total, "empty": empty},
        "entries": [entry.to_dict() for entry in scan.entries],
        "verdicts": {str(judgement.arch): judgement.counts.summary() for judgement in judgements},
        "kernels_missing": {
            str(judgement.arch): list(judgement.kernels_missing)
            for judgement in judgements
            if judgement.kernels_missing
        },
        "needs": {
            "sonames": list(needs.sonames),
            "versions": {name: list(versions) for name, versions in needs.versions},
            "rpath": [*needs.rpath, *needs.runpath],
        },
    }


def _once(judgements: list[Judgement]) -> list[Finding]:
    """Return the findings of one file's judgements, each once, at its gravest."""
    rank = {"note": 0, "warning": 1, "error": 2}
    found: dict[Finding, Finding] = {}
    for judgement in judgements:
        for finding in judgement.findings:
            key = replace(finding, severity="note")
            if key not in found or rank[finding.severity] > rank[found[key].severity]:
                found[key] = finding
    return list(found.values())
