"""Write docs/real-linkage.md: what the judgements over a whole set say of known wheels beside torch.

Run it with folders of wheels (`pip download --no-deps` fetches them; several GB, so nothing in CI does):
``python scripts/real_linkage.py FOLDER... [--cache DIR] [--output FILE]``. Look at it when a rule changes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.host.file_urls import file_digest
from envbundle.resolver.gather import Artifact
from envbundle.resolver.glibc import floors
from envbundle.resolver.jit import jit_rules
from envbundle.resolver.linkage import judge_set
from envbundle.resolver.ownership import claims_of
from envbundle.resolver.placed import place
from envbundle.resolver.scan import Scanner
from envbundle.spec.manifest import Manifest
from envbundle.spec.target import Arch, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envbundle.resolver.contents import WheelScan

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "real-linkage.md"
_TORCH = ("torch", "triton", "nvidia-", "cuda-", "markupsafe")


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
    lines = [
        "# Real wheels, linked",
        "",
        "<!-- Written by scripts/real_linkage.py from the wheels themselves. -->",
        "",
        "What [judgements](judgements.md) over a set say of published wheels: each beside torch and what",
        "torch itself needs, for sm_103 on glibc 2.39. GPU code is on [another page](real-wheels.md).",
        "",
        "| wheel | errors, and warnings about it |",
        "|---|---|",
        *linkage(scans, Arch.sm(103)),
        "",
        "## What the files ask of the host",
        "",
        "| wheel | ELF files | glibc | libstdc++ |",
        "|---|---|---|---|",
        *(row for name, scan in sorted(scans.items()) if (row := _floor(name, scan))),
        "",
        "## Bundled compilers",
        "",
        "| wheel | file | release | compiles for |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} {scan.version} | {file.path} | {file.compiler.version} | "
        f"sm_{file.compiler.oldest} to sm_{file.compiler.newest} |"
        for name, scan in sorted(scans.items())
        for file in scan.files
        if file.compiler is not None
    ]
    return "\n".join(lines) + "\n"


def _floor(name: str, scan: WheelScan) -> str:
    placed = place({name: scan}, "3.12")
    asked = floors(placed).requires()
    cells = (len(placed), asked.get("glibc", ""), asked.get("glibcxx", ""))
    return f"| {name} {scan.version} | {' | '.join(map(str, cells))} |" if placed else ""


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
