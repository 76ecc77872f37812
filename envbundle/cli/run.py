"""``envbundle run PREFIX -- CMD``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

if TYPE_CHECKING:
    import argparse

    from .output import Output

EXAMPLE = "envbundle run /opt/env -- python -m my_server --port 8000"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prefix", metavar="PREFIX", help="the prefix of an installed environment")
    parser.add_argument("words", nargs="*", metavar="CMD", help="after `--`: the command and its arguments")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Become the command, with the environment's variables set."""
    from envbundle.api.run import run

    if not args.words:
        raise UserInputError("E-USAGE", "envbundle run", found="no command", hint="write it after `--`")
    out.flush()
    run(Path(args.prefix), args.words, environment=dict(os.environ))
    return 0
