"""Write docs/real-wheels.md: what known wheels hold, judged by envbundle for every usual GPU.

Run it with folders of wheels (`pip download --no-deps` fetches them; several GB, so nothing in CI does):
``python scripts/make_real_wheels.py FOLDER... [--cache DIR] [--output FILE]``. The page is a second opinion
on hand-made tables, and a list of what to look at when a rule changes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.host.file_urls import file_digest
from envbundle.inspection.coverage import judge_file, sum_distribution
from envbundle.resolver.evidence import rows_of
from envbundle.resolver.gather import Artifact
from envbundle.resolver.jit import jit_rules
from envbundle.resolver.linkage import judge_set
from envbundle.resolver.ownership import claims_of
from envbundle.resolver.scan import Scanner
from envbundle.spec.manifest import Manifest
from envbundle.spec.target import Arch, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.resolver.contents import WheelScan
    from envbundle.resolver.evidence import Row

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "real-wheels.md"
GPUS = tuple(Arch.sm(number) for number in (75, 80, 86, 89, 90, 100, 103, 110, 120, 121))
_TORCH = ("torch", "triton", "nvidia-", "cuda-", "markupsafe")


def cell(row: Row) -> str:
    """Return how a file's modules serve one GPU: ``n``, ``j``, ``-``, or counts of each."""
    counts = row.counts
    match counts.verdict:
        case "native":
            return "n"
        case "jit":
            return "j"
        case "none":
            return "-"
        case "no-gpu-code":
            return ""
        case "unknown":
            return "?"
        case _:
            parts = [(counts.native, "n"), (counts.jit, "j"), (counts.missing, "-")]
            return " ".join(f"{number}{letter}" for number, letter in parts if number)


def archs(row: Row, kind: str) -> str:
    """Return the architectures of one kind of image, shortest form, rising."""
    found = {
        entry.arch.rpartition("_")[2] for scan in row.scans for entry in scan.entries if entry.kind == kind
    }
    return " ".join(sorted(found, key=lambda name: (int(name.rstrip("af")), name))) or "none"


def table(scan: WheelScan) -> Iterable[str]:
    """Yield the rows of one wheel: each file with GPU code, stand-alone ones as one row."""
    files = tuple(file for file in scan.files if file.has_gpu_code)
    by_gpu = {gpu: rows_of(files, gpu, None) for gpu in GPUS}
    for position, row in enumerate(by_gpu[GPUS[0]]):
        total = sum(file.modules[0] - file.modules[1] for file in row.scans)
        cells = [cell(by_gpu[gpu][position]) for gpu in GPUS]
        name = f"{row.path} ({len(row.scans)} files)" if len(row.scans) > 1 else row.path
        yield f"| {name} ({total}) | {archs(row, 'sass')} | {archs(row, 'ptx')} | {' | '.join(cells)} |"
    if files:
        sums = [
            sum_distribution(judge_file(file, gpu) for file in files).verdict.replace("no-gpu-code", "")
            for gpu in GPUS
        ]
        yield f"| **whole** | | | {' | '.join(sums)} |"


def linkage(scans: Mapping[str, WheelScan], gpu: Arch) -> Iterable[str]:
    """Yield what the judgement of the whole set says of each wheel beside torch and what torch needs."""
    base = {name: scan for name, scan in scans.items() if name.startswith(_TORCH)}
    for name in ["torch alone", *sorted(name for name in set(scans) - set(base) if _binary(scans[name]))]:
        chosen = base if name == "torch alone" else {**base, name: scans[name]}
        target = Target(
            name="page", gpus=(gpu,), python="3.12", platform="x86_64-manylinux_2_39", glibc="2.39"
        )
        found = judge_set(
            chosen,
            target,
            Manifest(name="page", version="1", python="3.12"),
            claims=claims_of(chosen, (), "3.12"),
            contested=(),
        ).findings
        told = [
            f"{finding.code}: {finding.expected}"
            for finding in found
            if finding.severity == "error" or (finding.code[:2] != "N-" and name in finding.subject)
        ]
        version = "" if name == "torch alone" else f" {scans[name].version}"
        yield f"| {name}{version} | {'<br>'.join(told) or 'nothing'} |"


def _binary(scan: WheelScan) -> bool:
    """Whether a wheel holds binaries, or is in the table of what compiles at run time."""
    return any(file.kind == "elf" for file in scan.files) or jit_rules().rule(scan.name) is not None


def page(scans: Mapping[str, WheelScan]) -> str:
    """Return the whole page."""
    head = " | ".join(f"{gpu.number // 10}.{gpu.number % 10}" for gpu in GPUS)
    lines = [
        "# Real wheels, judged",
        "",
        "<!-- Written by scripts/make_real_wheels.py from the wheels themselves. -->",
        "",
        "`n` SASS that runs, `j` PTX that the driver compiles, `-` nothing; where modules of one file",
        "differ, their numbers. What `-` means for a lock stands in [judgements](judgements.md).",
        "",
        "The number behind a file counts its modules that hold kernels. Containers without any are left out,",
        "so counts by hand can be higher: vllm's `_C_stable_libtorch` has 118 containers, 11 of them empty,",
        "and torch's `libtorch_cuda` 475, 41 of them empty. A file whose PTX stands in relocatable objects",
        "alone (the older builds in bitsandbytes) is `j` where each such object has PTX for the driver.",
    ]
    for name, scan in sorted(scans.items()):
        rows = list(table(scan))
        if rows:
            lines += ["", f"## {name} {scan.version}", "", f"| file | SASS | PTX | {head} |"]
            lines += ["|---" * (3 + len(GPUS)) + "|", *rows]
    compilers = [
        f"| {name} {scan.version} | {file.path} | {file.compiler.version} | "
        f"sm_{file.compiler.oldest} to sm_{file.compiler.newest} |"
        for name, scan in sorted(scans.items())
        for file in scan.files
        if file.compiler is not None
    ]
    lines += [
        "",
        "## Bundled compilers",
        "",
        "| wheel | file | release | compiles for |",
        "|---|---|---|---|",
    ]
    lines += compilers
    lines += [
        "",
        "## Beside torch with its own dependencies, on sm_103",
        "",
        "| wheel | errors and warnings |",
    ]
    lines += ["|---|---|", *linkage(scans, Arch.sm(103))]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Scan every wheel of the given folders and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "envbundle")
    parser.add_argument("--output", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    scans: dict[str, WheelScan] = {}
    for path in sorted(wheel for folder in args.folders for wheel in folder.glob("*.whl")):
        digest, size = file_digest(path)
        scan = Scanner(cache=args.cache).scan(
            Artifact(filename=path.name, path=path, sha256=digest, size=size)
        )
        scans[scan.name] = scan
    args.output.write_text(page(scans), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
