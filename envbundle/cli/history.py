"""``envbundle history``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle history /opt/env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prefix", metavar="PREFIX", help="the prefix of an installed environment")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Show the log of a prefix, oldest first."""
    from envbundle.api.generations import history

    rows = history(Path(args.prefix))
    for row in rows:
        out.line(
            "  ".join(str(row.get(key, "")) for key in ("time", "user", "action", "generation", "detail"))
        )
    out.answer({"history": list(rows)})
    return 0
