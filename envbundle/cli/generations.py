"""``envbundle generations``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle generations /opt/env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prefix", metavar="PREFIX", help="the prefix of an installed environment")


def execute(args: argparse.Namespace, out: Output) -> int:
    """List what stands under a prefix, oldest first."""
    from envbundle.api.generations import generations

    rows = generations(Path(args.prefix))
    for row in rows:
        mark = "*" if row["current"] else " "
        out.line(
            f"{mark} {row['generation']}  {row['name']} {row['version']} for {row['target']}"
            f"  {row['installed_at']}"
        )
    out.answer({"generations": list(rows)})
    return 0
