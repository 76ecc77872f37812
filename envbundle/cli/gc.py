"""``envbundle gc``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .output import human_bytes

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle gc /opt/env --keep 2"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("place", metavar="PREFIX|STORE", help="a prefix, or a store's folder")
    parser.add_argument("--keep", type=int, default=2, metavar="N", help="generations to keep (default: 2)")
    parser.add_argument("--dry-run", action="store_true", help="say what would go; remove nothing")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Remove what nothing needs; never the current or previous generation, nor one in use."""
    from envbundle.api.generations import collect

    answer = collect(Path(args.place), keep=args.keep, dry_run=args.dry_run)
    for name in answer["removed"]:
        out.line(f"{'would remove' if args.dry_run else 'removed'} {name}")
    for name, why in answer["kept"].items():
        out.line(f"kept {name}: {why}")
    if "bytes" in answer:
        out.line(f"{human_bytes(answer['bytes'])} freed")
    out.answer(answer)
    return 0
