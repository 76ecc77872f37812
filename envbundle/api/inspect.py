"""``inspect``: what GPU code files, wheels and folders hold, with no manifest and no GPU."""

from __future__ import annotations

import csv
import io
import mmap
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError, UserInputError
from envbundle.host.files import host_errors
from envbundle.inspection.report import inspect_json
from envbundle.inspection.scan import scan_file, worth_scanning
from envbundle.inspection.wheel import read_wheel, scan_wheel
from envbundle.progress import SILENT, Reporter
from envbundle.resolver.inspected import compiler_notes, judge_inspected
from envbundle.spec.finding import Finding, findings_of
from envbundle.spec.target import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envbundle.spec.coverage import FileScan
_HEAD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectAnswer:
    """``value`` is the JSON object without findings; ``status`` the exit status that it means."""

    value: dict[str, Any]
    findings: tuple[Finding, ...]
    status: int


@dataclass(slots=True)
class _Seen:
    """What was read so far: scans, and the distributions that own them."""

    scans: list[FileScan]
    distributions: list[tuple[str, str, list[FileScan]]]
    findings: list[Finding]


def inspect(
    paths: Sequence[str],
    *,
    archs: Sequence[str] = (),
    driver: str | None = None,
    kernels: bool = False,
    reporter: Reporter = SILENT,
) -> InspectAnswer:
    """Read binaries, wheels and folders and judge them for ``archs`` (none: the usual ones).

    ``driver`` judges PTX as that driver would; ``kernels`` names the kernels of missing modules. Damage is a
    finding; raises ``UserInputError`` for a path that is not there or an arch that is no GPU's name.
    """
    chosen = [_arch(name) for name in archs] or None
    seen = _Seen([], [], [])
    for text in paths:
        path = Path(text)
        if not path.exists():
            raise UserInputError("E-NOT-FOUND", text, expected="a file or folder", found="nothing")
        try:
            if path.is_dir():
                _folder(path, text, seen, kernels=kernels, reporter=reporter)
            elif path.suffix == ".whl":
                _wheel(path, text, seen, kernels=kernels, reporter=reporter)
            else:
                seen.scans.append(_scan(path, text, kernels=kernels))
        except EnvbundleError as fault:
            seen.findings += findings_of(fault)
    value = inspect_json(seen.scans, seen.distributions, chosen, driver=driver)
    findings = (
        *seen.findings,
        *compiler_notes(seen.scans),
        *(Finding.from_dict(finding) for finding in value.pop("findings")),
    )
    nothing = chosen is not None and any(
        row["verdict"] == "none" for item in value["files"] for row in item["verdicts"].values()
    )
    refused = nothing or any(finding.severity == "error" for finding in findings)
    return InspectAnswer(value=value, findings=findings, status=1 if refused else 0)


def _arch(name: str) -> Arch:
    try:
        return Arch.parse(name)
    except EnvbundleError as fault:
        raise UserInputError(
            fault.code, "--arch", expected=fault.expected, found=fault.found, hint="write it as sm_103"
        ) from fault


def _scan(path: Path, name: str, *, kernels: bool) -> FileScan:
    with host_errors(path), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if not size:
            return scan_file(name, b"", size=0, names=kernels)
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return scan_file(name, view, size=size, names=kernels)


def _wheel(path: Path, name: str, seen: _Seen, *, kernels: bool, reporter: Reporter) -> None:
    reporter.start(f"inspect {path.name}", total=path.stat().st_size)
    with host_errors(path), path.open("rb") as stream:
        contents = read_wheel(stream, path.name)
        scans = [_named(scan, f"{name}/{scan.path}") for scan in scan_wheel(stream, contents, names=kernels)]
    reporter.finish(f"inspect {path.name}")
    seen.findings += contents.findings
    seen.scans += scans
    seen.distributions.append((contents.name, contents.version, scans))


def _folder(folder: Path, name: str, seen: _Seen, *, kernels: bool, reporter: Reporter) -> None:
    owners = dict(_owners(folder))
    owned: dict[tuple[str, str], list[FileScan]] = {key: [] for key in owners.values()}
    placed: dict[str, FileScan] = {}
    reporter.start(f"inspect {name}", unit="files")
    for path in _files(folder):
        reporter.advance(f"inspect {name}")
        with host_errors(path), path.open("rb") as stream:
            head = stream.read(_HEAD)
        if not worth_scanning(path.name, head):
            continue
        scan = _scan(path, f"{name.rstrip('/')}/{path.relative_to(folder).as_posix()}", kernels=kernels)
        seen.scans.append(scan)
        placed[path.relative_to(folder).as_posix()] = scan
        owner = owners.get(path)
        if owner is not None:
            owned[owner].append(scan)
    reporter.finish(f"inspect {name}")
    seen.distributions += [(*key, scans) for key, scans in sorted(owned.items())]
    named = {path: owner for path in placed if (owner := owners.get(folder / path)) is not None}
    seen.findings += judge_inspected(placed, named, prefix=str(folder.resolve()))


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _owners(folder: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield each file that a RECORD below ``folder`` names, with name and version of its distribution."""
    for record in sorted(folder.rglob("*.dist-info/RECORD")):
        stem = record.parent.name.removesuffix(".dist-info")
        name, _, version = stem.partition("-")
        text = record.read_text("utf-8", "replace")
        for row in csv.reader(io.StringIO(text)):
            if row:
                yield Path(os.path.normpath(record.parent.parent / row[0])), (name, version)


def _named(scan: FileScan, path: str) -> FileScan:
    return replace(scan, path=path)
