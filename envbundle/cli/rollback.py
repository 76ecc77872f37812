"""``envbundle rollback``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle rollback /opt/env"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prefix", metavar="PREFIX", help="the prefix of an installed environment")
    parser.add_argument(
        "--to", default=None, metavar="GENERATION", help="a generation's name (default: the previous one)"
    )


def execute(args: argparse.Namespace, out: Output) -> int:
    """Switch back; needs no store, key, GPU or space."""
    from envbundle.api.generations import rollback

    answer = rollback(Path(args.prefix), to=args.to)
    out.line(f"{args.prefix}: {answer['from']} -> {answer['generation']}")
    for user in answer["live_users"]:
        out.say(f"still running from {answer['from']}, restart it: {user}")
    out.answer(answer)
    return 0
