"""``envbundle plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .options import add_manifest, add_target

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle plan --arch sm_103"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_manifest(parser)
    add_target(parser)


def execute(args: argparse.Namespace, out: Output) -> int:
    """One screen from the lock: each distribution, its verdict per GPU, the evidence."""
    from envbundle.api.plan import plan

    answer = plan(Path(args.manifest), target=args.target)
    gpus = list(answer["target"]["gpus"]) or ["no GPU"]
    out.line(f"{answer['lock']}: {answer['status']}, for {answer['target']['name']}")
    width = max([len(row["distribution"]) + len(row["version"]) + 1 for row in answer["packages"]] + [12])
    out.line(
        "  ".join(["distribution".ljust(width), *(gpu.ljust(20) for gpu in gpus), "files with GPU code"])
    )
    for row in answer["packages"]:
        name = f"{row['distribution']} {row['version']}"
        cells = [row["verdicts"].get(gpu, "-").ljust(20) for gpu in gpus]
        out.line("  ".join([name.ljust(width), *cells, str(row["files"] or "")]).rstrip())
    for overlay in answer["overlays"]:
        out.line(
            f"overlay of {overlay['distribution']} {overlay['base']}: {overlay['replaces']} files replaced, "
            f"{overlay['adds']} added, {overlay['removes']} removed"
        )
    for gap in answer["exemptions"]:
        out.line(f"accepted gap: {gap['distribution']}:{gap['path']} is {gap['verdict']} on {gap['gpu']}")
    for path in answer["contested"]:
        out.line(f"contested: {path['path']} from {path['winner']}")
    for name, text in answer["requires"].items():
        out.line(f"needs {name} {text}")
    out.answer(answer)
    return 0 if answer["status"] == "fresh" else 1
